// Tables that see to themselves: workers read and change them at once, and no guard stands around
// a stage.
#pragma once

#include <cstdint>

#include "conntrack/sharing/grace.h"
#include "millrace/detail/waiting.h"

namespace millrace {

struct Unguarded {
  static constexpr bool kShared = true;
  static constexpr bool kConcurrent = true;
  using Settling = SettleAfterGrace;

  struct Guard {};
  static Guard reading() { return {}; }
  static Guard writing() { return {}; }
  static std::uint64_t waited_ns() { return detail::Waiting::sum_ns(); }
};

static_assert(Guards<Unguarded>);

}  // namespace millrace
