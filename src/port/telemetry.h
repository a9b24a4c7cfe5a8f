// DPDK's telemetry: counters for its standard tools and exporters, at the socket that
// `dpdk-telemetry.py` opens.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "millrace/types.h"

namespace millrace {

/// Names and numbers. Characters that DPDK does not allow in a name become '_', names are cut to 63
/// characters, and only the first 256 elements are used.
using TelemetryTable = std::vector<std::pair<std::string, std::uint64_t>>;

/// Answers telemetry commands; a process must have at most one object at a time. DPDK's environment
/// must run, with telemetry.
class Telemetry {
 public:
  struct Command {
    std::string name;  ///< for example "/millrace/packets"
    std::string help;
    std::function<TelemetryTable()> answer;  ///< called on DPDK's threads, several at once
  };
  /// Serves these commands until the object is destroyed. Errors: failed (DPDK takes no more
  /// commands).
  static Result<Telemetry> serve(std::vector<Command> commands);
  ~Telemetry();
  Telemetry(Telemetry&& other) noexcept : serves_(std::exchange(other.serves_, false)) {}
  Telemetry& operator=(Telemetry&&) = delete;

 private:
  Telemetry() = default;
  bool serves_ = true;
};

}  // namespace millrace
