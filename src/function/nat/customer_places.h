// The customers of a deterministic pool, counted from 0 on (RFC 7422): each has a place, by
// arithmetic from the configuration alone.
//
// One thread makes the object; then it never changes, and any thread may read it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "function/nat/customer_number.h"

namespace millrace {

class CustomerPlaces {
 public:
  /// Customers whose numbers are `step` apart. Their places follow one another.
  struct Group {
    CustomerNumber first = 0;
    std::uint64_t count = 0;
    std::uint64_t step = 1;
    std::uint64_t place = 0;  ///< the place of the first

    bool has(CustomerNumber customer) const {
      const std::uint64_t behind = std::uint64_t{customer} - first;
      return customer >= first && behind % step == 0 && behind / step < count;
    }
    CustomerNumber last() const { return static_cast<CustomerNumber>(first + (count - 1) * step); }
    friend bool operator==(const Group&, const Group&) = default;
  };

  /// Adds a group behind all others. Customers that are there already keep their places, and are
  /// not counted again if one group has all of them.
  void add(CustomerNumber first, std::uint64_t count, std::uint64_t step) {
    Group group{first, count, step, size()};
    const auto has_all = [&group](const Group& one) {
      return one.has(group.first) && one.has(group.last()) && group.step % one.step == 0;
    };
    if (std::ranges::any_of(groups_, has_all)) return;
    if (!groups_.empty() && groups_.back().step == step &&
        std::uint64_t{groups_.back().last()} + step == first) {
      groups_.back().count += count;
    } else {
      groups_.push_back(group);
    }
  }
  /// Returns the number of places.
  std::uint64_t size() const {
    return groups_.empty() ? 0 : groups_.back().place + groups_.back().count;
  }
  const std::vector<Group>& groups() const { return groups_; }

  std::optional<std::uint64_t> place_of(CustomerNumber customer) const {
    for (const Group& group : groups_) {
      if (group.has(customer)) return group.place + (customer - group.first) / group.step;
    }
    return std::nullopt;
  }
  std::optional<CustomerNumber> at(std::uint64_t place) const {
    if (place >= size()) return std::nullopt;
    const Group& group = *std::prev(std::ranges::upper_bound(groups_, place, {}, &Group::place));
    const auto is = static_cast<CustomerNumber>(group.first + (place - group.place) * group.step);
    return place_of(is) == place ? std::optional(is) : std::nullopt;
  }

  friend bool operator==(const CustomerPlaces&, const CustomerPlaces&) = default;

 private:
  std::vector<Group> groups_;
};

}  // namespace millrace
