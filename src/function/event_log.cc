#include "function/event_log.h"

#include <fmt/chrono.h>
#include <fmt/compile.h>
#include <fmt/format.h>

#include <ctime>
#include <iterator>

namespace millrace {

std::string time_text(std::uint64_t time_ns) {
  const std::uint64_t ms = time_ns / 1'000'000;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(static_cast<std::time_t>(ms / 1000)), ms % 1000);
}

void begin_event(std::string& text, std::uint64_t time_ns) {
  fmt::format_to(std::back_inserter(text), R"({{"time":"{}")", time_text(time_ns));
}

void end_event(std::string& text, unsigned worker, std::uint64_t missed) {
  fmt::format_to(std::back_inserter(text),
                 FMT_COMPILE(R"(,"worker":{},"missed":{}}})"
                             "\n"),
                 worker, missed);
}

}  // namespace millrace
