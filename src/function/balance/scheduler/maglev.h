// Maglev: consistent hashing by the service's table. This is the default: as long as the backends
// stay the same, a connection reaches the same backend without an entry (table full, another
// machine, a restart) as with an entry. While the table is being made, new connections go by plain
// hashing; their entries keep them on their backends.
#pragma once

#include "function/balance/scheduler.h"
#include "function/balance/scheduler/hash.h"

namespace millrace {

class MaglevScheduler final : public Scheduler {
 public:
  explicit MaglevScheduler(const Pool& pool)
      : tables_(pool.tables), table_(pool.maglev), meanwhile_(pool) {}

  std::uint16_t pick(Hash hash) override {
    const Maglev* const table = tables_.want(table_);
    return table != nullptr ? table->pick(hash) : meanwhile_.pick(hash);
  }

 private:
  MaglevTables& tables_;
  std::shared_ptr<MaglevTable> table_;
  HashScheduler meanwhile_;
};

}  // namespace millrace
