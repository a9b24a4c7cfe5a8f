// The commands of `millrace` that measure. `millrace` lists them in its help, and runs another
// program, `millrace-bench`, for them: they need libraries that a dataplane does not need.
#pragma once

#include <array>
#include <string_view>

namespace millrace::cli {

struct NamedCommand {
  std::string_view name;
  std::string_view what;  ///< the command's line in the help
};
inline constexpr NamedCommand kAdvise{"advise", "Which schemes suit a capture on this machine"};
inline constexpr NamedCommand kBench{"bench", "Measure on this machine"};
inline constexpr std::array kHandedOver{kAdvise, kBench};

inline constexpr std::string_view kBenchProgram = "millrace-bench";

}  // namespace millrace::cli
