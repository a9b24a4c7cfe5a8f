#include "worker/line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "conntrack/schemes.h"
#include "worker/line_of_table.h"

namespace millrace {
namespace {

template <std::size_t... place>
Result<std::unique_ptr<Line>> make(const LineConfig& config, Function& function,
                                   std::index_sequence<place...>) {
  Result<std::unique_ptr<Line>> line =
      std::unexpected(unknown_scheme("table", config.table, TableSchemes::names()));
  ((TableSchemes::At<place>::kName == config.table &&
    (line = make_line_of_table<place>(config, function), true)) ||
   ...);
  return line;
}

}  // namespace

Error unknown_scheme(std::string_view axis, std::string_view name,
                     const std::vector<std::string>& known) {
  return {fmt::format("{} \"{}\" is not known; there are: {}", axis, name, fmt::join(known, ", ")),
          Error::Kind::usage};
}

Result<std::unique_ptr<Line>> make_line(const LineConfig& config, Function& function) {
  return make(config, function, std::make_index_sequence<TableSchemes::kSize>{});
}

}  // namespace millrace
