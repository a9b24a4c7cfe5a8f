#include "shard/moving.h"

#include <algorithm>
#include <utility>

namespace millrace {

ShardMoves::ShardMoves(const Indirection& first, unsigned workers)
    : worker_of_(first.shards()), markers_(workers) {
  for (unsigned shard = 0; shard < shards(); ++shard)
    worker_of_[shard] = static_cast<std::uint16_t>(first.worker_of(shard));
  for (MoveMessage& parcel : parcels_) parcel.connections.reserve(kParcelBytes);
  for (unsigned worker = 0; worker < workers; ++worker) {
    markers_[worker].kind = MoveMessage::Kind::marker;
    markers_[worker].worker = static_cast<std::uint16_t>(worker);
  }
}

void ShardMoves::begin(unsigned shard, unsigned to) {
  shard_ = shard;
  from_ = worker_of(shard);
  to_ = to;
  stage_.store(Stage::giving, std::memory_order_relaxed);
  number_.fetch_add(1, std::memory_order_release);
}

ShardsOfWorker::ShardsOfWorker(ShardMoves& moves, MovingWorker& worker, unsigned number)
    : moves_(&moves),
      worker_(&worker),
      number_(number),
      worker_of_(moves.shards()),
      is_marked_(moves.workers()),
      held_(kMostHeld),
      queues_(moves.workers()) {
  for (unsigned shard = 0; shard < moves.shards(); ++shard)
    worker_of_[shard] = static_cast<std::uint16_t>(moves.worker_of(shard));
  for (std::uint32_t n = 0; n < kMostHeld; ++n) held_[n].next = n + 1 < kMostHeld ? n + 1 : kNone;
  received_.reserve(ShardMoves::kParcels + moves.workers());
  to_pass_.reserve(moves.workers());
}

void ShardsOfWorker::join() {
  seen_ = moves_->number_.load(std::memory_order_acquire);
  role_ = number_ == moves_->from_ ? Role::gives
          : number_ == moves_->to_ ? Role::takes
                                   : Role::turns;
  has_given_ = has_turned_ = false;
  markers_ = 0;
  is_marked_.assign(is_marked_.size(), false);
}

/// Once the shard has changed hands, sends this worker's marker, and directs the shard's packets to
/// the taker; if the ring has no room, tries again after the next burst. The marker may be the last
/// message that the move waits for: once the marker is sent, the members of `moves_` may be those
/// of the next move.
void ShardsOfWorker::turn() {
  if (role_ == Role::gives ||
      moves_->stage_.load(std::memory_order_acquire) != ShardMoves::Stage::given)
    return;
  const unsigned shard = moves_->shard_;
  const unsigned to = moves_->to_;
  if (!worker_->send(moves_->from_, moves_->markers_[number_])) return;
  worker_of_[shard] = static_cast<std::uint16_t>(to);
  has_turned_ = true;
  if (role_ == Role::turns) role_ = Role::none;
}

auto ShardsOfWorker::way_of_moving(unsigned from) const -> Way {
  if (role_ != Role::takes || (from == number_ && !has_turned_))
    return {worker_of_[moves_->shard_], false};
  const bool is_open = from == moves_->from_ || (is_marked_[from] && queues_[from].count == 0);
  return {number_, !is_open};
}

bool ShardsOfWorker::hold(Handle packet, unsigned from) {
  const std::uint32_t at = first_free_;
  if (at == kNone) return false;
  first_free_ = held_[at].next;
  held_[at] = {packet, kNone};
  Queue& queue = queues_[from];
  (queue.count == 0 ? queue.first : held_[queue.last].next) = at;
  queue.last = at;
  ++queue.count;
  ++held_count_;
  if (is_marked_[from]) ++released_;
  return true;
}

Handle ShardsOfWorker::release() {
  unsigned from = 0;
  while (!is_marked_[from] || queues_[from].count == 0) ++from;
  Queue& queue = queues_[from];
  const std::uint32_t at = queue.first;
  queue.first = held_[at].next;
  held_[at].next = first_free_;
  first_free_ = at;
  --queue.count;
  --held_count_;
  --released_;
  return held_[at].packet;
}

void ShardsOfWorker::step() {
  for (MoveMessage* const message : received_) apply(*message);
  received_.clear();
  if (role_ == Role::gives) {
    if (!has_turned_) give();
    pass_markers();
  } else if (role_ == Role::takes && markers_ + 1 == moves_->workers() && held_count_ == 0) {
    role_ = Role::none;
    moves_->stage_.store(ShardMoves::Stage::none, std::memory_order_release);
  }
}

void ShardsOfWorker::apply(MoveMessage& message) {
  if (message.kind == MoveMessage::Kind::parcel) {
    worker_->unpack(moves_->shard_, moves_->from_, message.connections);
    message.connections.clear();
    message.is_free.store(true, std::memory_order_release);
  } else if (role_ == Role::gives) {
    to_pass_.push_back(&message);
  } else {
    mark(message.worker);
  }
}

void ShardsOfWorker::mark(unsigned worker) {
  is_marked_[worker] = true;
  ++markers_;
  released_ += queues_[worker].count;
}

/// Passes markers on to the taker. Packets that arrived before a marker have been passed on by now:
/// they stood in earlier bursts, or in this one.
void ShardsOfWorker::pass_markers() {
  std::size_t sent = 0;
  while (sent < to_pass_.size() && worker_->send(moves_->to_, *to_pass_[sent])) ++sent;
  to_pass_.erase(to_pass_.begin(), to_pass_.begin() + static_cast<std::ptrdiff_t>(sent));
  markers_ += static_cast<unsigned>(sent);
  if (markers_ + 1 == moves_->workers()) role_ = Role::none;
}

/// Sends the parcel that is being filled, which may be empty. False: no parcel is being filled, or
/// the ring has no room.
bool ShardsOfWorker::send_parcel() {
  if (filling_ == nullptr) return false;
  filling_->is_free.store(false, std::memory_order_relaxed);
  if (!worker_->send(moves_->to_, *filling_)) {
    filling_->is_free.store(true, std::memory_order_relaxed);
    return false;
  }
  filling_ = nullptr;
  has_given_ = true;
  return true;
}

/// Packs a few connections. True: no connection is left, and the last parcel has been sent.
bool ShardsOfWorker::pack() {
  if (filling_ == nullptr) {
    auto* const free = std::ranges::find_if(moves_->parcels_, [](const MoveMessage& one) {
      return one.is_free.load(std::memory_order_acquire);
    });
    if (free == moves_->parcels_.end()) return false;
    filling_ = free;
  }
  const auto is_full = [this] { return filling_->connections.size() >= ShardMoves::kFull; };
  const bool is_last = !is_full() && worker_->pack(moves_->shard_, filling_->connections);
  return (is_last || is_full()) && send_parcel() && is_last;
}

void ShardsOfWorker::give() {
  const unsigned shard = moves_->shard_;
  const unsigned to = moves_->to_;
  if (pack()) {
    worker_->pass_on_all(shard, to);
    worker_of_[shard] = static_cast<std::uint16_t>(to);
    has_turned_ = true;
    moves_->worker_of_[shard].store(static_cast<std::uint16_t>(to), std::memory_order_release);
    moves_->stage_.store(ShardMoves::Stage::given, std::memory_order_release);
    return;
  }
  const std::uint64_t unknown = worker_->without_connection(shard);
  if (unknown == 0) return;
  // Before the first parcel the taker does not know how the giver serves packets without an entry.
  const bool is_in_order = has_given_ && (filling_ == nullptr || filling_->connections.empty());
  if (is_in_order || send_parcel()) {
    worker_->pass_on(unknown, to);
  } else {
    worker_->drop(unknown);
  }
}

}  // namespace millrace
