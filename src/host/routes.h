// Routes, found by the longest prefix of the destination.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/destination_table.h"
#include "host/known_addresses.h"
#include "millrace/key.h"

namespace millrace {

template <class A>
struct Route {
  A prefix;  ///< all bits behind the first `bits` are 0
  unsigned bits = 0;
  unsigned link = 0;
  std::optional<A> via;  ///< the next hop; none: the destination itself is on the link
};

template <class A>
class Routes {
 public:
  /// Makes a table of routes with distinct prefixes.
  explicit Routes(std::vector<Route<A>> routes)
      : routes_(longest_last(std::move(routes))), addresses_(whole_addresses(routes_)) {
    std::vector<Destination<A>> prefixes;
    for (const Route<A>& route : routes_) prefixes.push_back({route.prefix, route.bits});
    all_.build(prefixes);
    std::erase_if(prefixes, [](const Destination<A>& one) { return one.prefix_bits == kWhole; });
    networks_.build(prefixes);
  }

  /// Returns the destination's route; null if there is none.
  const Route<A>* find(const A& destination) const {
    // The smaller table suffices for nearly all packets: few have a route for their address alone.
    const auto& table = addresses_.may_contain(destination) != 0 ? all_ : networks_;
    const std::uint32_t i = table.find(destination, 0, 0);
    return i == all_.kNone ? nullptr : &routes_[i];
  }
  std::span<const Route<A>> all() const { return routes_; }

 private:
  static constexpr unsigned kWhole = 8 * A::kBytes;
  /// Sorts routes for whole addresses last, so that a network has the same index in both tables.
  static std::vector<Route<A>> longest_last(std::vector<Route<A>> routes) {
    std::ranges::stable_partition(routes, [](const Route<A>& one) { return one.bits != kWhole; });
    return routes;
  }
  static std::vector<A> whole_addresses(const std::vector<Route<A>>& routes) {
    std::vector<A> whole;
    for (const Route<A>& route : routes) {
      if (route.bits == kWhole) whole.push_back(route.prefix);
    }
    return whole;
  }

  std::vector<Route<A>> routes_;
  KnownAddresses<A> addresses_;  ///< addresses with a route of their own
  DestinationTable<A> all_;
  DestinationTable<A> networks_;
};

}  // namespace millrace
