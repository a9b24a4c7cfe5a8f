// The lists of all tables, sharing schemes and ageing schemes. Tests, benchmarks and the choice at
// start go through these lists. To add a scheme, write its header and name it here.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "conntrack/ageing/lazy.h"
#include "conntrack/ageing/none.h"
#include "conntrack/ageing/scan.h"
#include "conntrack/ageing/wheel.h"
#include "conntrack/sharing/hierarchical.h"
#include "conntrack/sharing/lock_free_cuckoo.h"
#include "conntrack/sharing/lock_free_race.h"
#include "conntrack/sharing/locked_cuckoo.h"
#include "conntrack/sharing/mutex.h"
#include "conntrack/sharing/sharded.h"
#include "conntrack/sharing/spinlock.h"
#include "conntrack/table/chained.h"
#include "conntrack/table/cuckoo_plus_plus.h"
#include "conntrack/table/cuckoo_rte_hash.h"
#include "conntrack/table/dhash.h"
#include "conntrack/table/hopscotch.h"
#include "conntrack/table/horton.h"
#include "conntrack/table/robin_hood.h"
#include "conntrack/table/std.h"
#include "conntrack/table/swiss.h"
#include "conntrack/table_scheme.h"
#include "millrace/race.h"

namespace millrace {

/// A table in a form that the command line does not offer: for tests and benchmarks.
template <template <class> class T>
using TableVariant = TableScheme<T>;

/// One line of `millrace schemes`.
struct SchemeDescription {
  std::string name;
  std::string summary;
};

/// A list of types with a `kName` and a `kSummary`.
template <class... Scheme>
struct SchemeList {
  static constexpr std::size_t kSize = sizeof...(Scheme);
  template <std::size_t i>
  using At = std::tuple_element_t<i, std::tuple<Scheme...>>;

  static std::vector<std::string> names() { return {std::string(Scheme::kName)...}; }
  static std::vector<SchemeDescription> descriptions() {
    return {{std::string(Scheme::kName), std::string(Scheme::kSummary)}...};
  }

  /// Calls `use` with the `std::type_identity` of the scheme of that name; returns false if there
  /// is none.
  template <class Use>
  static bool select(std::string_view name, Use&& use) {
    return ((Scheme::kName == name && (use(std::type_identity<Scheme>{}), true)) || ...);
  }
};

/// Joins lists, in their order.
template <class... List>
struct Joined;
template <class List>
struct Joined<List> {
  using Type = List;
};
template <class... A, class... B, class... Rest>
struct Joined<SchemeList<A...>, SchemeList<B...>, Rest...> {
  using Type = typename Joined<SchemeList<A..., B...>, Rest...>::Type;
};

/// The first `count` elements of a list.
template <std::size_t count, class List, class Place = std::make_index_sequence<count>>
struct First;
template <std::size_t count, class List, std::size_t... place>
struct First<count, List, std::index_sequence<place...>> {
  using Type = SchemeList<typename List::template At<place>...>;
};

// One line a table: the build counts these lines, as each table is compiled by itself.
using EveryTable = SchemeList<    //
    TableScheme<Race>,            //
    TableScheme<Cuckoo>,          //
    TableScheme<Chained>,         //
    TableScheme<CuckooPlusPlus>,  //
    TableScheme<Horton>,          //
    TableScheme<DHash>,           //
    TableScheme<Hopscotch>,       //
    TableScheme<RobinHood>,       //
    TableScheme<Swiss>,           //
    TableScheme<Std>>;

using EveryVariant = SchemeList<  //
    TableVariant<CuckooPlusPlusTimers>,
    TableVariant<CuckooExtendable>,  //
    TableVariant<DHashPlain>,        //
    TableVariant<DHashXor>,          //
    TableVariant<DHashCrcXor>,       //
    TableVariant<DHashXorCrc>>;

// With MILLRACE_FEW_TABLES the list has only the first MILLRACE_FEW tables. Every sharing scheme
// goes with at least one of these.
#ifdef MILLRACE_FEW_TABLES
using TableSchemes = First<MILLRACE_FEW, EveryTable>::Type;
#else
using TableSchemes = EveryTable;
#endif
#ifdef MILLRACE_COVERING
using TableVariants = SchemeList<>;
#else
using TableVariants = EveryVariant;
#endif

using AllTables = Joined<TableSchemes, TableVariants>::Type;
using SharingSchemes = SchemeList<  //
    Sharded,                        //
    Spinlock,                       //
    Mutex,                          //
    Hierarchical,                   //
    LockedCuckoo,                   //
    LockFreeCuckoo,                 //
    LockFreeRace>;
using AgeingSchemes = SchemeList<Wheel, Scan, Lazy, NoAgeing>;

// With MILLRACE_COVERING fewer combinations are compiled, for builds that take long; variants of
// tables are left out. Each table and each scheme is in at least one combination. The schemes with
// a lock around the table are compiled for the first table only: the code of the lock is the same
// for every table.
#ifdef MILLRACE_COVERING
template <class Table, class Sharing>
inline constexpr bool kCompiled =
    !std::is_same_v<typename Sharing::Guards, Locked> || std::is_same_v<Table, TableSchemes::At<0>>;
#else
template <class Table, class Sharing>
inline constexpr bool kCompiled = true;
#endif

/// The form of a table under a sharing scheme; void if the two do not go together, or are not
/// compiled.
template <class Table, class Sharing>
using FormOf =
    std::conditional_t<kCompiled<Table, Sharing>, typename Sharing::template Form<Table>, void>;

}  // namespace millrace
