// Grants of ports, which the servers of a cluster share out among themselves. A part of
// WorkersCopies.
#include <cstdint>
#include <utility>

#include "function/grants.h"
#include "worker/workers_copies.h"

namespace millrace {

/// Gives the copy the grants that the placement has, and takes others from it.
void WorkersCopies::follow_grants(unsigned shard) {
  if (copies_->grants() == nullptr) return;
  ShardCopy& copy = *shards_[shard];
  const Placement::OfShard& of = placement_->shards[shard];
  // Before the first assignment nobody had any; later ones may come from another server.
  const bool are_new = copy.epoch() == 1 && copy.grants() == 0;
  of_grants_[shard].are_new = of.grants & (are_new ? of.grants : of_grants_[shard].are_new);
  for (unsigned number = 0; number < Grants::kOfShard; ++number) {
    if (of.assignment.role != CopyRole::none && (of.grants >> number & 1) != 0) {
      copy.grant(number);
    } else {
      copy.withdraw(number);
    }
  }
}

/// Tells functions which grants they may use. A master that has more than its part hands back those
/// that it got last, so that the slave gets them.
void WorkersCopies::note_grants(unsigned shard, Tick now) {
  Grants* const grants = copies_->grants().get();
  if (grants == nullptr) return;
  grants->pass(shard, is_sure(shard), now);
  ShardCopy& copy = *shards_[shard];
  if (copy.role() == CopyRole::master && copy.is_in_sync()) {
    while (copy.grants() > copies_->wanted()) copy.hand_back(latest_grant(shard, now));
  }
  Grants::Bits handed_back = 0;
  for (const std::uint32_t number : copy.handed_back())
    handed_back |= Grants::range(number, number);
  copies_->handed_back_[shard].store(handed_back, std::memory_order_relaxed);
  OfGrants& of = of_grants_[shard];
  if (std::exchange(of.seen, copy.changes_of_use()) == copy.changes_of_use()) return;
  Grants::Bits usable = 0;
  for (unsigned number = 0; number < Grants::kOfShard; ++number)
    usable |= Grants::Bits{copy.may_use(number)} << number;
  grants->set(shard, usable, ~of.are_new, now);
}

/// Returns the grant that the copy got last.
std::uint32_t WorkersCopies::latest_grant(unsigned shard, Tick now) const {
  std::uint32_t latest = 0;
  std::uint32_t least_ms = UINT32_MAX;
  for (unsigned number = 0; number < Grants::kOfShard; ++number) {
    if (!shards_[shard]->has(number)) continue;
    const std::uint32_t ms = copies_->grants()->had_for_ms(shard, number, now);
    if (ms <= least_ms) {
      least_ms = ms;
      latest = number;
    }
  }
  return latest;
}

/// True if no other server can have a connection of the shard that has ended here, or that is not
/// known here, but for a second at most.
bool WorkersCopies::is_sure(unsigned shard) const {
  const Placement::OfShard& of = placement_->shards[shard];
  const ShardCopy& copy = *shards_[shard];
  if (!of.assignment.is_settled) return false;
  if (copy.other() == Member::none) return true;
  return copy.is_in_sync() && (!placement_->hops || hears(copy.other()));
}

}  // namespace millrace
