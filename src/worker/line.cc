#include "worker/line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "conntrack/schemes.h"
#include "worker/line_impl.h"

namespace millrace {
namespace {

template <class List>
Error unknown(std::string_view axis, std::string_view name) {
  return {fmt::format("{} \"{}\" is not known; there are: {}", axis, name,
                      fmt::join(List::names(), ", ")),
          Error::Kind::usage};
}

}  // namespace

Result<std::unique_ptr<Line>> make_line(const LineConfig& config, Function& function) {
  Result<std::unique_ptr<Line>> line = std::unexpected(Error{});
  const auto with_ageing = [&]<class T, class S, class A>(T, S, std::type_identity<A>) {
    line = LineOf<T::type::template Of, typename S::type, A>::create(config, function);
  };
  const auto with_sharing = [&](auto table, auto sharing) {
    if (!AgeingSchemes::select(config.ageing, [&](auto a) { with_ageing(table, sharing, a); })) {
      line = std::unexpected(unknown<AgeingSchemes>("ageing", config.ageing));
    }
  };
  const auto with_table = [&](auto table) {
    if (!SharingSchemes::select(config.sharing, [&](auto s) { with_sharing(table, s); })) {
      line = std::unexpected(unknown<SharingSchemes>("sharing", config.sharing));
    }
  };
  if (!TableSchemes::select(config.table, with_table)) {
    line = std::unexpected(unknown<TableSchemes>("table", config.table));
  }
  return line;
}

}  // namespace millrace
