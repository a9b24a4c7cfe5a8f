#include "line/line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "conntrack/schemes.h"
#include "line/line_of_table.h"

namespace millrace {
namespace {

Result<void> check_name(std::string_view axis, const std::string& name,
                        const std::vector<std::string>& known) {
  if (std::ranges::count(known, name) != 0) return {};
  return std::unexpected(Error{
      fmt::format("{} \"{}\" is not known; there are: {}", axis, name, fmt::join(known, ", ")),
      Error::Kind::usage});
}

template <class Sharing, class... Table>
std::vector<std::string> tables_of(SchemeList<Table...>) {
  std::vector<std::string> names;
  const auto add_if_it_goes = [&names]<class T>(std::type_identity<T>) {
    if (!std::is_void_v<FormOf<T, Sharing>>) names.emplace_back(T::kName);
  };
  (add_if_it_goes(std::type_identity<Table>{}), ...);
  return names;
}

MakeAgeing& ageing_named(std::string_view name) {
  MakeAgeing* make = nullptr;
  AgeingSchemes::select(name, [&make]<class A>(std::type_identity<A>) { make = &A::create; });
  return *make;
}

template <std::size_t... place>
Result<Lines> make(const LineConfig& config, std::span<Function* const> functions,
                   std::index_sequence<place...>) {
  Result<Lines> lines;
  const auto make_if_named = [&]<std::size_t at>(std::integral_constant<std::size_t, at>) {
    if (TableSchemes::At<at>::kName == config.table)
      lines = make_lines_of_table<at>(config, ageing_named(config.ageing), functions);
  };
  (make_if_named(std::integral_constant<std::size_t, place>{}), ...);
  return lines;
}

}  // namespace

std::vector<std::string> tables_for(std::string_view sharing) {
  std::vector<std::string> names;
  SharingSchemes::select(
      sharing, [&names]<class S>(std::type_identity<S>) { names = tables_of<S>(TableSchemes{}); });
  return names;
}

bool shares_tables(std::string_view sharing) {
  bool shared = false;
  SharingSchemes::select(sharing,
                         [&]<class S>(std::type_identity<S>) { shared = S::Guards::kShared; });
  return shared;
}

Result<void> check_schemes(const LineConfig& config) {
  if (auto ok = check_name("table", config.table, TableSchemes::names()); !ok) return ok;
  if (auto ok = check_name("sharing", config.sharing, SharingSchemes::names()); !ok) return ok;
  if (auto ok = check_name("ageing", config.ageing, AgeingSchemes::names()); !ok) return ok;
  const auto tables = tables_for(config.sharing);
  if (std::ranges::count(tables, config.table) != 0) return {};
  return std::unexpected(
      Error{fmt::format("sharing scheme \"{}\" goes with table {}, not with \"{}\"", config.sharing,
                        fmt::join(tables, ", "), config.table),
            Error::Kind::usage});
}

Result<Lines> make_lines(const LineConfig& config, std::span<Function* const> functions) {
  if (auto ok = check_schemes(config); !ok) return std::unexpected(ok.error());
  if (functions.size() > 1 && !shares_tables(config.sharing)) {
    return std::unexpected(
        Error{fmt::format("sharing scheme \"{}\" gives each worker tables of its own: make lines "
                          "one by one, or choose another scheme",
                          config.sharing),
              Error::Kind::usage});
  }
  LineConfig whole = config;
  if (whole.sources == nullptr) {
    auto sources = make_source_counts(config);
    if (!sources) return std::unexpected(sources.error());
    whole.sources = std::move(*sources);
  }
  return make(whole, functions, std::make_index_sequence<TableSchemes::kSize>{});
}

Result<std::shared_ptr<SourceCounts>> make_source_counts(const LineConfig& config) {
  if (config.source_limit.most == 0) return nullptr;
  auto made = SourceCounts::create(config.source_limit, config.capacity + config.capacity_v6,
                                   config.pages, config.secret);
  if (!made) return std::unexpected(made.error());
  return std::make_shared<SourceCounts>(std::move(*made));
}

Result<std::unique_ptr<Line>> make_line(const LineConfig& config, Function& function) {
  Function* const only = &function;
  auto lines = make_lines(config, {&only, 1});
  if (!lines) return std::unexpected(lines.error());
  return std::move(lines->front());
}

}  // namespace millrace
