#include "port/burst_ring.h"

// The form of rte_ring whose order the compiler, and the thread sanitizer, can see.
#define RTE_USE_C11_MEM_MODEL
#include <rte_ring.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>

namespace millrace {

void BurstRing::Free::operator()(rte_ring* ring) const { std::free(ring); }

Result<BurstRing> BurstRing::create(unsigned capacity) {
  const unsigned count = rte_align32pow2(capacity + 1);
  const auto bytes = static_cast<std::size_t>(rte_ring_get_memsize(count));
  std::unique_ptr<rte_ring, Free> ring(
      static_cast<rte_ring*>(std::aligned_alloc(RTE_CACHE_LINE_SIZE, bytes)));
  if (!ring || rte_ring_init(ring.get(), "bursts", count, RING_F_SP_ENQ | RING_F_SC_DEQ) != 0)
    return std::unexpected(
        Error{"no memory for a ring of " + std::to_string(capacity) + " bursts"});
  return BurstRing(std::move(ring));
}

bool BurstRing::push(Burst* burst) { return rte_ring_sp_enqueue(ring_.get(), burst) == 0; }

Burst* BurstRing::pop() {
  void* burst = nullptr;
  return rte_ring_sc_dequeue(ring_.get(), &burst) == 0 ? static_cast<Burst*>(burst) : nullptr;
}

}  // namespace millrace
