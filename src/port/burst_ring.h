// Bursts on their way from one thread to another: DPDK's rte_ring, behind a class that shows none
// of DPDK's types.
#pragma once

#include <memory>

#include "core/burst.h"
#include "millrace/types.h"

struct rte_ring;

namespace millrace {

/// One thread pushes, one pops.
class BurstRing {
 public:
  /// Room for `capacity` bursts, 1 or more. Errors (failed): no memory.
  static Result<BurstRing> create(unsigned capacity);

  /// False where there is no room.
  bool push(Burst* burst);
  /// The one pushed first, or null.
  Burst* pop();

 private:
  struct Free {
    void operator()(rte_ring* ring) const;
  };
  explicit BurstRing(std::unique_ptr<rte_ring, Free> ring) : ring_(std::move(ring)) {}

  std::unique_ptr<rte_ring, Free> ring_;
};

}  // namespace millrace
