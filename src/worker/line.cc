#include "worker/line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <type_traits>
#include <utility>

#include "conntrack/schemes.h"
#include "worker/line_of_table.h"

namespace millrace {
namespace {

template <std::size_t... place>
Result<std::unique_ptr<Line>> make(const LineConfig& config, Function& function,
                                   std::index_sequence<place...>) {
  Result<std::unique_ptr<Line>> line =
      std::unexpected(unknown_scheme("table", config.table, TableSchemes::names()));
  const auto make_if_named = [&]<std::size_t at>(std::integral_constant<std::size_t, at>) {
    if (TableSchemes::At<at>::kName == config.table)
      line = make_line_of_table<at>(config, function);
  };
  (make_if_named(std::integral_constant<std::size_t, place>{}), ...);
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
