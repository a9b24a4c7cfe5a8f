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

/// Names and numbers. What a name may not have in DPDK is written as '_'; of more than 256, those.
using TelemetryTable = std::vector<std::pair<std::string, std::uint64_t>>;

/// Answers of a process; one at a time has them. DPDK's environment runs, with telemetry.
class Telemetry {
 public:
  struct Command {
    std::string name;  ///< "/millrace/packets"
    std::string help;
    std::function<TelemetryTable()> answer;  ///< on DPDK's threads, some at once
  };
  /// Errors (failed): DPDK takes no more commands.
  static Result<Telemetry> serve(std::vector<Command> commands);
  ~Telemetry();
  Telemetry(Telemetry&& other) noexcept : serves_(std::exchange(other.serves_, false)) {}
  Telemetry& operator=(Telemetry&&) = delete;

 private:
  Telemetry() = default;
  bool serves_ = true;
};

}  // namespace millrace
