#include "report_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "command_line/output.h"
#include "core/grouped.h"

namespace millrace::cli {

std::string of_workers(const RunReport& report) {
  return report.times.size() == 1 ? "a core" : fmt::format("by {} workers", report.times.size());
}

std::string why_stateless(const RunReport& report, std::uint64_t stateless) {
  std::string why = "served without an entry";
  if (report.workers->report_v4().capacity == 0) return why + ", as configured";
  const WorkerCounters counters = report.workers->counters();
  const std::uint64_t half_open = std::min(stateless, counters.over_budget.value());
  const std::uint64_t no_place = std::min(stateless - half_open, counters.refused.value());
  std::string separator = ": ";
  const auto add = [&](std::uint64_t count, std::string_view what) {
    if (count == 0) return;
    why += separator + (count == stateless ? "" : grouped(count) + " ") + std::string(what);
    separator = ", ";
  };
  add(half_open, "while too many are half open");
  add(no_place, "without a place in the table");
  add(stateless - half_open - no_place, "begin no connection");
  return why;
}

}  // namespace millrace::cli
