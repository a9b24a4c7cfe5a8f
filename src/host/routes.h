// Where packets go next, by the longest prefix of their destination.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/destination_table.h"
#include "millrace/key.h"

namespace millrace {

template <class A>
struct Route {
  A prefix;  ///< all bits behind the first `bits` are 0
  unsigned bits = 0;
  unsigned link = 0;
  std::optional<A> via;  ///< none: the destination itself is on the link
};

template <class A>
class Routes {
 public:
  /// The prefixes are distinct.
  explicit Routes(std::vector<Route<A>> routes) : routes_(std::move(routes)) {
    std::vector<Destination<A>> prefixes;
    for (const Route<A>& route : routes_) prefixes.push_back({route.prefix, route.bits});
    table_.build(prefixes);
  }

  /// Null: there is none.
  const Route<A>* find(const A& destination) const {
    const std::uint32_t i = table_.find(destination, 0, 0);
    return i == table_.kNone ? nullptr : &routes_[i];
  }
  std::span<const Route<A>> all() const { return routes_; }

 private:
  std::vector<Route<A>> routes_;
  DestinationTable<A> table_;
};

}  // namespace millrace
