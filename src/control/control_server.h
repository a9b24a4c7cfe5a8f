// The control socket: HTTP over a Unix socket that only its owner may open (docs/control.md).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "control/control.h"
#include "core/json.h"

namespace millrace {

/// Where `millrace run` listens, unless it is told otherwise.
std::string default_socket();

class ControlServer {
 public:
  /// As `UnixHttp::bind`.
  static Result<std::unique_ptr<ControlServer>> bind(const std::string& path, bool replaces);
  /// Answers from now on, on threads of its own. `control` outlives it; `stats` makes the answer to
  /// `GET /stats`. Errors: as `UnixHttp::start`.
  Result<void> start(Control& control, std::function<Json()> stats);
  /// As `UnixHttp`'s.
  Result<void> take_place();
  void leave();
  /// Ends all answers, and removes the socket.
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

 private:
  ControlServer();

  struct Implementation;
  std::unique_ptr<Implementation> is_;
};

}  // namespace millrace
