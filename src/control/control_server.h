// The control socket: HTTP over a Unix socket that only its owner may open (docs/control.md).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "control/control.h"
#include "core/json.h"

namespace millrace {

/// Returns the default path of the control socket of `millrace run`.
std::string default_socket();

class ControlServer {
 public:
  /// Makes a server and its socket. Errors: as `UnixHttp::bind`.
  static Result<std::unique_ptr<ControlServer>> bind(const std::string& path, bool replaces);
  /// Answers from now on, on threads of its own. `control` must outlive the server; `stats` makes
  /// the answer to `GET /stats`. Errors: as `UnixHttp::start`.
  Result<void> start(Control& control, std::function<Json()> stats);
  /// Does what `UnixHttp::take_place` does. Errors: the same.
  Result<void> take_place();
  /// Does what `UnixHttp::leave` does.
  void leave();
  /// Ends all answers, and removes the socket as `UnixHttp` does.
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

 private:
  ControlServer();

  struct Implementation;
  std::unique_ptr<Implementation> is_;
};

}  // namespace millrace
