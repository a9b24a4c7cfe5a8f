// Guards of tables that several workers may read and change at once: they do nothing.
#pragma once

#include "conntrack/sharing/grace.h"

namespace millrace {

struct Unguarded {
  static constexpr bool kShared = true;
  static constexpr bool kConcurrent = true;
  using Reclaiming = ReclaimAfterGrace;

  struct Guard {};
  static Guard reading() { return {}; }
  static Guard writing() { return {}; }
};

static_assert(Guards<Unguarded>);

}  // namespace millrace
