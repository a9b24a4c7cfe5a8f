#include "worker/line_of_table.h"

#include <functional>
#include <iterator>

#include "conntrack/schemes.h"
#include "worker/line_impl.h"

namespace millrace {
namespace {

template <class Table, class Guards, class Ageing>
Result<Lines> make(const LineConfig& config, const std::function<Guards()>& guards,
                   std::span<Function* const> functions) {
  auto made = LineOf<Table::template Of, Guards, Ageing>::create(config, guards, functions);
  if (!made) return std::unexpected(made.error());
  return Lines(std::make_move_iterator(made->begin()), std::make_move_iterator(made->end()));
}

template <class Table>
Result<Lines> make(const LineConfig& config, std::span<Function* const> functions) {
  Result<Lines> lines =
      std::unexpected(unknown_scheme("sharing", config.sharing, SharingSchemes::names()));
  SharingSchemes::select(config.sharing, [&]<class S>(std::type_identity<S>) {
    if (functions.size() > 1 && !S::Guards::kShared) {
      lines = std::unexpected(
          Error{"sharing scheme \"" + config.sharing +
                    "\" has one worker to its tables: make lines one by one, or choose another",
                Error::Kind::usage});
      return;
    }
    lines = std::unexpected(unknown_scheme("ageing", config.ageing, AgeingSchemes::names()));
    AgeingSchemes::select(config.ageing, [&]<class A>(std::type_identity<A>) {
      lines = make<Table, typename S::Guards, A>(config, S::create, functions);
    });
  });
  return lines;
}

}  // namespace

template <>
Result<Lines> make_lines_of_table<MILLRACE_TABLE>(const LineConfig& config,
                                                  std::span<Function* const> functions) {
  return make<TableSchemes::At<MILLRACE_TABLE>>(config, functions);
}

}  // namespace millrace
