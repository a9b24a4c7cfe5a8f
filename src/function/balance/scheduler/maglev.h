// Maglev: consistent hashing by the service's own table. The default: connections without an entry
// (table full, another machine, a restart) reach the same backend as those with one.
#pragma once

#include "function/balance/scheduler.h"

namespace millrace {

class MaglevScheduler final : public Scheduler {
 public:
  explicit MaglevScheduler(const Pool& pool) : maglev_(pool.maglev) {}

  std::uint16_t pick(Hash hash) override { return maglev_.pick(hash); }

 private:
  const Maglev& maglev_;
};

}  // namespace millrace
