// Tables that see to themselves: workers read and change them at once, and no guard stands around
// a stage.
#pragma once

#include "conntrack/sharing/grace.h"

namespace millrace {

struct Unguarded {
  static constexpr bool kShared = true;
  static constexpr bool kConcurrent = true;
  using Settling = SettleAfterGrace;

  struct Guard {};
  static Guard reading() { return {}; }
  static Guard writing() { return {}; }
};

static_assert(Guards<Unguarded>);

}  // namespace millrace
