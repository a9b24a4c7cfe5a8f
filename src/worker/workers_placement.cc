// The placement, as a worker follows it: its copies get their roles, and packets their ways. A part
// of WorkersCopies.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "worker/workers_copies.h"

namespace millrace {

/// Takes the placement over.
void WorkersCopies::adopt(Tick now) {
  for (std::size_t n = 0; n < batches_.size(); ++n) flush(n);
  count();
  seen_ = copies_->changes();
  placement_ = copies_->placement();
  batches_.resize(std::max<std::size_t>(placement_->peers.size(), 1));
  disagreeing_ = 0;
  layouts_.assign(placement_->peers.size(), nullptr);
  if (copies_->is_cluster())
    opener_.forget_if([this](Member sender) { return !peer_of(process_of(sender)); });
  bool has_new_epoch = false;
  for (const std::uint16_t shard : own_) {
    ShardCopy& copy = *shards_[shard];
    const Assignment& is = placement_->shards[shard].assignment;
    const bool ends = placement_->hops && is.role == CopyRole::none && copy.role() != is.role;
    if (ends) {
      copy.give_up(now);
      line_->assign(shard, is.role);
      ending_.push_back({shard});
      has_new_epoch = true;
    } else if (copy.assign(is, now)) {
      // Connections that are left of an earlier copy are not of this one.
      if (is.role != CopyRole::none &&
          std::erase_if(ending_, [&](const Ending& one) { return one.shard == shard; }) != 0)
        line_->give_up(shard, std::numeric_limits<std::size_t>::max());
      line_->assign(shard, is.role);
      has_new_epoch = true;
    }
    if (is.is_settled) copy.settle(is.epoch);
    note_in_sync(shard);
    follow_grants(shard);
    due_.push_back(shard);
  }
  note_layouts();
  const bool was_sure = state_.is_sure && !has_new_epoch;
  state_ = placement_->state;
  state_.is_sure = was_sure;
  is_sure_ &= !has_new_epoch;
  line_->note_copies(state_);
  note_heard();
  find_ways();
  for (const std::uint16_t shard : own_) note_grants(shard, now);
  if (ending_.empty()) give_up();
}

void WorkersCopies::note_in_sync(unsigned shard) {
  const ShardCopy& copy = *shards_[shard];
  note_deferring(shard);
  copies_->lacks_connections_[shard].store(copy.lacks_connections(), std::memory_order_relaxed);
  const Epoch is = copy.is_in_sync() ? copy.epoch() : 0;
  auto& told = copies_->in_sync_[shard];
  if (told.load(std::memory_order_relaxed) == is) return;
  told.store(is, std::memory_order_relaxed);
  has_changed_ = true;
}

/// Ends connections of shards that have no copy here any more. The bursts that were on their way
/// may still open some.
void WorkersCopies::give_up() {
  constexpr std::size_t kEndAtOnce = 64;  // connections of a shard between two bursts
  constexpr unsigned kRounds = 3;
  for (Ending& one : ending_) {
    const bool is_empty = line_->give_up(one.shard, kEndAtOnce);
    one.rounds = is_empty ? one.rounds + 1 : 0;
    if (!is_empty) break;
  }
  std::erase_if(ending_, [](const Ending& one) { return one.rounds >= kRounds; });
  if (ending_.empty()) copies_->workers_[worker_].followed.store(seen_, std::memory_order_release);
}

/// Notes which servers are heard.
void WorkersCopies::note_heard() {
  heard_ = 0;
  for (std::size_t n = 0; n < placement_->peers.size(); ++n)
    heard_ |= std::uint64_t{copies_->has_heard(placement_->peers[n])} << n;
  note_agreement();
}

/// True if the server of the process is heard.
bool WorkersCopies::hears(Member process) const {
  const auto peer = peer_of(process);
  return peer && (heard_ >> *peer & 1) != 0;
}

/// Finds out which server serves each shard's packets: the master, or the slave while the master is
/// silent.
void WorkersCopies::find_ways() {
  std::uint64_t ways = 0;
  for (std::size_t n = 0; n < placement_->peers.size(); ++n)
    ways |= std::uint64_t{copies_->hears(placement_->peers[n])} << n;
  const auto is_there = [ways](std::uint8_t at) {
    return at == Placement::kHere || (at != Placement::kNowhere && (ways >> at & 1) != 0);
  };
  for (std::size_t shard = 0; shard < ways_.size(); ++shard) {
    const Placement::OfShard& of = placement_->shards[shard];
    ways_[shard] = is_there(of.master)  ? of.master
                   : is_there(of.slave) ? of.slave
                                        : Placement::kNowhere;
  }
}

/// Lets the line read the records of each shard's other copy.
void WorkersCopies::note_layouts() {
  for (std::size_t n = 0; n < layouts_.size(); ++n)
    layouts_[n] = placement_->peers[n].state->layouts.load(std::memory_order_acquire);
  for (const std::uint16_t shard : own_) {
    const auto peer = peer_of(shards_[shard]->other());
    line_->set_layouts(shard, peer ? layouts_[*peer] : nullptr);
  }
}

/// Tells all anew to a server that agrees again: before, it may have taken records to mean
/// something else.
void WorkersCopies::note_agreement() {
  for (std::size_t n = 0; n < placement_->peers.size(); ++n) {
    const Peer& peer = placement_->peers[n];
    const std::uint64_t bit = std::uint64_t{1} << n;
    const bool is_known = peer.state->heard_ms.load(std::memory_order_relaxed) != 0;
    if (peer.state->agrees.load(std::memory_order_relaxed)) {
      if ((disagreeing_ & bit) == 0) continue;
      disagreeing_ &= ~bit;
      for (const std::uint16_t shard : own_) {
        if (shards_[shard]->other() == peer.member) shards_[shard]->begin_anew();
      }
    } else if (is_known) {
      disagreeing_ |= bit;
    }
  }
}

}  // namespace millrace
