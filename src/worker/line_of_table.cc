#include "worker/line_of_table.h"

#include "conntrack/schemes.h"
#include "worker/line_impl.h"

namespace millrace {
namespace {

template <class Table>
Result<std::unique_ptr<Line>> make(const LineConfig& config, Function& function) {
  Result<std::unique_ptr<Line>> line =
      std::unexpected(unknown_scheme("sharing", config.sharing, SharingSchemes::names()));
  SharingSchemes::select(config.sharing, [&]<class S>(std::type_identity<S>) {
    line = std::unexpected(unknown_scheme("ageing", config.ageing, AgeingSchemes::names()));
    AgeingSchemes::select(config.ageing, [&]<class A>(std::type_identity<A>) {
      line = LineOf<Table::template Of, S, A>::create(config, function);
    });
  });
  return line;
}

}  // namespace

template <>
Result<std::unique_ptr<Line>> make_line_of_table<MILLRACE_TABLE>(const LineConfig& config,
                                                                 Function& function) {
  return make<TableSchemes::At<MILLRACE_TABLE>>(config, function);
}

}  // namespace millrace
