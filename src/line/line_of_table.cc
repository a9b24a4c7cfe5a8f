#include "line/line_of_table.h"

#include <iterator>
#include <type_traits>

#include "conntrack/schemes.h"
#include "line/line_impl.h"

namespace millrace {
namespace {

template <class Table, class Sharing>
Result<Lines> make(const LineConfig& config, MakeAgeing& ageing,
                   std::span<Function* const> functions) {
  auto made = LineOf<Table::template Of, typename Sharing::Guards>::create(
      config, ageing, Sharing::create, functions);
  if (!made) return std::unexpected(made.error());
  return Lines(std::make_move_iterator(made->begin()), std::make_move_iterator(made->end()));
}

}  // namespace

template <>
Result<Lines> make_lines_of_table<MILLRACE_TABLE>(const LineConfig& config, MakeAgeing& ageing,
                                                  std::span<Function* const> functions) {
  Result<Lines> lines;
  SharingSchemes::select(config.sharing, [&]<class S>(std::type_identity<S>) {
    using Form = FormOf<TableSchemes::At<MILLRACE_TABLE>, S>;
    if constexpr (!std::is_void_v<Form>) lines = make<Form, S>(config, ageing, functions);
  });
  return lines;
}

}  // namespace millrace
