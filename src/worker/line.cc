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
Result<Lines> make(const LineConfig& config, std::span<Function* const> functions,
                   std::index_sequence<place...>) {
  Result<Lines> lines =
      std::unexpected(unknown_scheme("table", config.table, TableSchemes::names()));
  const auto make_if_named = [&]<std::size_t at>(std::integral_constant<std::size_t, at>) {
    if (TableSchemes::At<at>::kName == config.table)
      lines = make_lines_of_table<at>(config, functions);
  };
  (make_if_named(std::integral_constant<std::size_t, place>{}), ...);
  return lines;
}

}  // namespace

Error unknown_scheme(std::string_view axis, std::string_view name,
                     const std::vector<std::string>& known) {
  return {fmt::format("{} \"{}\" is not known; there are: {}", axis, name, fmt::join(known, ", ")),
          Error::Kind::usage};
}

Result<Lines> make_lines(const LineConfig& config, std::span<Function* const> functions) {
  return make(config, functions, std::make_index_sequence<TableSchemes::kSize>{});
}

Result<std::unique_ptr<Line>> make_line(const LineConfig& config, Function& function) {
  Function* const only = &function;
  auto lines = make_lines(config, {&only, 1});
  if (!lines) return std::unexpected(lines.error());
  return std::move(lines->front());
}

bool shares_tables(std::string_view sharing) {
  bool shared = false;
  SharingSchemes::select(sharing,
                         [&]<class S>(std::type_identity<S>) { shared = S::Guards::kShared; });
  return shared;
}

}  // namespace millrace
