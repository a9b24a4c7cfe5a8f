#include "worker/workers_copies.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

#include "core/customers.h"

namespace millrace {
namespace {

constexpr std::size_t kMostContent = WorkersCopies::kMostDatagram - kSealBytes;
static_assert(sizeof(MessageHead) + kMostPayload <= kMostContent);

/// Ticks within which each shard is looked at once, and tells its changes. A longer round puts more
/// records into a message. Streams must wait longer before they send again.
constexpr std::int32_t kRound = 5;
/// Connections that are looked at between two bursts, to tell all of them, while no packets wait;
/// while packets wait it is some every `kBusyBursts` bursts.
constexpr std::size_t kWhileIdle = 64;
constexpr std::size_t kWhileBusy = 8;
constexpr unsigned kBusyBursts = 16;
/// Datagrams of unknown processes that a worker opens in a second, as each takes some microseconds.
constexpr unsigned kMostTries = 200;
/// Senders that are admitted, each with a window of some 200 bytes.
constexpr std::size_t kMostSenders = 4096;

}  // namespace

WorkersCopies::WorkersCopies(Copies& copies, unsigned worker, Line& line, Way& way)
    : copies_(&copies),
      worker_(worker),
      line_(&line),
      way_(&way),
      counters_(&copies.workers_[worker].counters),
      shards_(copies.shards()),
      opener_(copies.settings_.key, copies.self()),
      open_to_all_(copies.settings_.key, Member::none),
      placement_(copies.placement()),
      layouts_(placement_->peers.size()),
      held_(copies.shards()),
      of_grants_(copies.shards()),
      ways_(copies.shards(), Placement::kNowhere),
      batches_(std::max<std::size_t>(placement_->peers.size(), 1)) {
  for (unsigned shard = 0; shard < shards_.size(); ++shard) {
    if (copies.owners_->worker_of(shard) != worker) continue;
    shards_[shard] = std::make_unique<ShardCopy>(shard, line.copied(shard));
    own_.push_back(static_cast<std::uint16_t>(shard));
  }
  if (auto sealer = Sealer::create(copies.settings_.key, sender_of(copies.self(), worker)))
    sealer_ = std::move(*sealer);
}

// --- what comes

template <class K>
bool WorkersCopies::comes_from_other(const K& key) const {
  const K* const here = std::get_if<K>(&copies_->ends());
  if (here == nullptr || key.destination_port != here->source_port ||
      key.destination != here->source) [[likely]]
    return false;
  return std::ranges::any_of(placement_->peers, [&](const Peer& peer) {
    const K* const ends = std::get_if<K>(&peer.ends);
    return ends != nullptr && key == reversed(*ends);
  });
}
template bool WorkersCopies::comes_from_other(const KeyV4& key) const;
template bool WorkersCopies::comes_from_other(const KeyV6& key) const;

std::optional<std::size_t> WorkersCopies::peer_of(Member process) const {
  for (std::size_t n = 0; n < placement_->peers.size(); ++n) {
    if (placement_->peers[n].member == process && process != Member::none) return n;
  }
  return std::nullopt;
}

auto WorkersCopies::take(std::span<const std::byte> datagram, bool is_passed, Tick now)
    -> OtherWorkers {
  OtherWorkers others;
  const auto ends = ends_of(datagram);
  const auto opened = ends ? open(datagram, *ends) : std::nullopt;
  if (!opened) {
    if (!ends) counters_->foreign.add(1);
    return others;
  }
  std::span<const std::byte> content = opened->content;
  if (!is_passed) counters_->datagrams_in.add(1);
  const Member from = process_of(ends->sender);
  const auto peer = peer_of(from);
  Peer::State* const state = peer ? placement_->peers[*peer].state.get() : nullptr;
  const bool agrees = state != nullptr && state->agrees.load(std::memory_order_acquire);
  if (agrees && state->layouts.load(std::memory_order_acquire) != layouts_[*peer]) [[unlikely]]
    note_layouts();
  while (const auto message = take_message(content)) {
    if (message->head.kind == MessageHead::Kind::hello) {
      if (!is_passed) hear(*ends, opened->number, *message);
      continue;
    }
    // A process that is not known yet, or does not know this one, says hello, and no more.
    if (state == nullptr || ends->receiver == Member::none) continue;
    if (message->head.kind == MessageHead::Kind::packet) {
      if (!is_passed) take_packet(*message, *state);
      continue;
    }
    if (!agrees) {
      counters_->disagreeing.add(1);
      return others;
    }
    const std::uint32_t shard = message->head.shard;
    if (shard >= shards_.size()) {
      counters_->malformed.add(1);
    } else if (shards_[shard] == nullptr) {
      if (!is_passed) others.set(copies_->owners_->worker_of(shard));
    } else {
      shards_[shard]->receive(from, *message, now);
      due_.push_back(static_cast<std::uint16_t>(shard));
    }
  }
  if (!content.empty()) counters_->malformed.add(1);
  return others;
}

/// True if a datagram of a sender that has not been admitted may be opened. In a pair it may be the
/// other server's, which has begun anew; if it is for this process, whose number nobody could know
/// before, it is no old one. In a cluster all processes are known.
bool WorkersCopies::may_try(const SealedFor& ends) {
  if (const std::uint64_t now = copies_->now_ms(); now - tried_ms_ >= 1000) {
    tried_ms_ = now;
    tries_ = {};
    open_to_all_.forget_all();
  }
  const bool is_to_all = ends.receiver == Member::none;
  const Member from = process_of(ends.sender);
  const bool may_be_one =
      copies_->is_cluster() ? !is_to_all && peer_of(from) : from != copies_->self();
  return may_be_one && opener_.senders() < kMostSenders && ++tries_[is_to_all] <= kMostTries;
}

/// Opens a datagram. Windows of senders are kept for good: once forgotten, datagrams of theirs that
/// somebody has stored would open again.
std::optional<Opener::Opened> WorkersCopies::open(std::span<const std::byte> datagram,
                                                  const SealedFor& ends) {
  Opener& opener = ends.receiver == Member::none ? open_to_all_ : opener_;
  const bool is_admitted = opener.has_admitted(ends.sender);
  if (!is_admitted && !may_try(ends)) {
    counters_->foreign.add(1);
    return std::nullopt;
  }
  if (!is_admitted && !opener.admit(ends.sender)) return std::nullopt;
  const auto opened = opener.open(datagram);
  if (!opened && !is_admitted) opener.forget(ends.sender);
  return opened;
}

/// Takes a hello. One that is no newer than the latest may have come to another worker before.
void WorkersCopies::hear(const SealedFor& ends, std::uint64_t number, const Message& message) {
  const auto told = read_hello(message.payload);
  if (!told) return counters_->malformed.add(1);
  const Member from = process_of(ends.sender);
  if (ends.receiver == Member::none) {
    // It may be an old one. If not, the process answers a hello that is for it.
    copies_->greeted_.store(static_cast<std::uint64_t>(from), std::memory_order_release);
    return;
  }
  const auto peer = peer_of(from);
  if (peer) {
    auto& latest = placement_->peers[*peer].state->hello;
    std::uint64_t before = latest.load(std::memory_order_relaxed);
    while (before < number && !latest.compare_exchange_weak(before, number)) {
    }
    if (before >= number) return counters_->replayed.add(1);
    placement_->peers[*peer].state->heard_ms.store(copies_->now_ms(), std::memory_order_relaxed);
  }
  copies_->hear(from, message.head.epoch, *told, peer ? &placement_->peers[*peer] : nullptr);
}

void WorkersCopies::take_packet(const Message& message, const Peer::State& from) {
  const MessageHead& head = message.head;
  if (!from.spreads_alike.load(std::memory_order_relaxed)) return counters_->disagreeing.add(1);
  const bool is_one = placement_->hops && head.number <= Customers::kMost;
  if (!is_one) return counters_->malformed.add(1);
  const bool is_taken = way_->take_hop(message.payload, head.count, static_cast<Zone>(head.number));
  (is_taken ? counters_->hops_in : counters_->hops_lost).add(1);
}

// --- what goes

void WorkersCopies::send(Member to, const MessageHead& head, std::span<const std::byte> payload) {
  if (const auto peer = peer_of(to)) put(*peer, to, head, payload);
}

/// Puts a message for a process into its server's batch.
void WorkersCopies::put(std::size_t peer, Member to, const MessageHead& head,
                        std::span<const std::byte> payload) {
  Batch& batch = batches_[peer];
  const std::size_t bytes = sizeof(head) + payload.size();
  if (batch.to != to || batch.messages.size() + bytes > kMostContent) flush(peer);
  batch.to = to;
  const std::size_t at = batch.messages.size();
  batch.messages.resize(at + bytes);
  std::memcpy(&batch.messages[at], &head, sizeof(head));
  if (!payload.empty())
    std::memcpy(&batch.messages[at + sizeof(head)], payload.data(), payload.size());
}

void WorkersCopies::flush(std::size_t peer) {
  Batch& batch = batches_[peer];
  if (batch.messages.empty()) return;
  sealed_.clear();
  if (sealer_) sealer_->seal(batch.to, batch.messages, sealed_);
  batch.messages.clear();
  const unsigned hops = std::exchange(batch.hops, 0);
  const bool is_sent = !sealed_.empty() && way_->send_to(placement_->peers[peer].ends, sealed_);
  (is_sent ? counters_->datagrams_out : counters_->not_sent).add(1);
  (is_sent ? counters_->hops_out : counters_->hops_lost).add(hops);
}

void WorkersCopies::say_hello(std::size_t peer, Member to, const Copies::Greeting& greeting) {
  const auto& [payload, epoch] = greeting;
  put(peer, to,
      {.kind = MessageHead::Kind::hello,
       .bytes = static_cast<std::uint32_t>(payload.size()),
       .epoch = epoch},
      payload);
}

/// Says hello to all servers. To that of a pair: to its process, and if that is silent, to any.
void WorkersCopies::greet(Tick now) {
  if (copies_->is_cluster()) {
    if (now - hello_at_ < Copies::kHello || !copies_->are_all_alive()) return;
    hello_at_ = now;
    const Copies::Greeting greeting = copies_->hello();
    for (std::size_t n = 0; n < placement_->peers.size(); ++n)
      say_hello(n, placement_->peers[n].member, greeting);
    return;
  }
  const Member other = placement_->peers.front().member;
  const std::uint64_t asked = copies_->greeted_.exchange(0, std::memory_order_acq_rel);
  if (asked != 0 && Member{asked} != other) say_hello(0, Member{asked}, copies_->hello());
  if (now - hello_at_ < Pair::kHello) return;
  hello_at_ = now;
  copies_->tick();
  const Copies::Greeting greeting = copies_->hello();
  if (other != Member::none) say_hello(0, other, greeting);
  if (!copies_->status().hears_other) say_hello(0, Member::none, greeting);
}

void WorkersCopies::between_bursts(Burst& next, Burst& after) {
  const Tick now = after.now;
  if (copies_->changes() != seen_) [[unlikely]]
    adopt(now);
  if (!ending_.empty()) [[unlikely]]
    give_up();
  const bool is_idle = next.size == 0 && after.size == 0;
  const bool may_walk = is_idle || ++busy_bursts_ >= kBusyBursts;
  if (may_walk) busy_bursts_ = 0;
  line_->allow_copying(is_idle ? kWhileIdle : may_walk ? kWhileBusy : 0);
  if (may_walk) tell_all(now);
  if (now != last_ || !holding_.empty()) {
    std::ranges::sort(due_);
    const auto [again, end] = std::ranges::unique(due_);
    due_.erase(again, end);
    for (const std::uint16_t shard : due_) send_of(shard, now);
    due_.clear();
    if (now != last_) look_through(now);
  }
  if (!holding_.empty()) [[unlikely]] {
    for (const std::uint16_t shard : holding_) release(shard, now);
    std::erase_if(holding_, [this](std::uint16_t shard) { return held_[shard].empty(); });
  }
  for (std::size_t n = 0; n < batches_.size(); ++n) flush(n);
}

/// Goes on with the next shard that is not in sync. Waits for none whose other copy does not
/// answer, or has to begin itself.
void WorkersCopies::tell_all(Tick now) {
  constexpr unsigned kMost = 8;  // shards that are looked at
  for (unsigned n = 0; n < kMost && n < own_.size(); ++n) {
    if (telling_ >= own_.size()) telling_ = 0;
    const unsigned shard = own_[telling_];
    if (!shards_[shard]->is_in_sync()) {
      send_of(shard, now);
      if (!shards_[shard]->is_telling()) ++telling_;
      return;
    }
    ++telling_;
  }
}

void WorkersCopies::send_of(unsigned shard, Tick now) {
  if (shard < shards_.size() && shards_[shard] != nullptr) shards_[shard]->send(*this, now);
}

std::uint64_t WorkersCopies::hop(Burst& burst, std::uint64_t stay) {
  std::vector<Counter>& served = copies_->workers_[worker_].packets;
  std::uint64_t gone = 0;
  const auto look_at = [&](const auto& lane) {
    for (unsigned n = 0; n < lane.size; ++n) {
      const unsigned i = lane.packet[n];
      if ((stay >> i & 1) != 0) continue;
      const unsigned shard = burst.shard[i];
      const Placement::OfShard& of = placement_->shards[shard];
      std::uint8_t to = ways_[shard];
      if ((burst.hopped >> i & 1) != 0)
        to = of.assignment.role == CopyRole::none ? Placement::kNowhere : Placement::kHere;
      if (to == Placement::kHere) {
        // It may go to the worker that has the shard, and come here once more.
        if (shards_[shard] != nullptr) served[shard].add(1);
        continue;
      }
      gone |= std::uint64_t{1} << i;
      burst.verdict[i] = to == Placement::kNowhere ? Verdict::no_server : Verdict::hopped;
      if (to == Placement::kNowhere) continue;
      if (burst.length[i] > copies_->most_hop()) {
        burst.verdict[i] = Verdict::too_big;
        counters_->hops_lost.add(1);
        continue;
      }
      put(to, placement_->peers[to].member,
          {.kind = MessageHead::Kind::packet,
           .count = burst.link[i],
           .bytes = burst.length[i],
           .shard = shard,
           .epoch = of.assignment.epoch,
           .number = burst.customer_of(i)},
          {burst.data[i], burst.length[i]});
      ++batches_[to].hops;
    }
  };
  look_at(burst.v4);
  look_at(burst.v6);
  look_at(burst.quoted_v4);
  look_at(burst.quoted_v6);
  return gone;
}

/// Looks at some shards each tick, so that all have been looked at within `kRound` ticks: streams
/// notice that time has passed. Also what need not be done more often than once a tick.
void WorkersCopies::look_through(Tick now) {
  const auto passed = static_cast<std::size_t>(std::clamp(now - last_, 1, kRound));
  last_ = now;
  copies_->workers_[worker_].alive_ms.store(copies_->now_ms(), std::memory_order_relaxed);
  if (worker_ == 0) greet(now);
  note_heard();
  if (placement_->hops) find_ways();
  const std::size_t some = (own_.size() * passed + kRound - 1) / kRound;
  for (std::size_t n = 0; n < some && n < own_.size(); ++n) {
    const unsigned shard = own_[looked_at_++];
    send_of(shard, now);
    note_in_sync(shard);
    note_grants(shard, now);
    is_sure_ &= is_sure(shard);
    if (looked_at_ < own_.size()) continue;
    looked_at_ = 0;
    if (std::exchange(has_changed_, false)) copies_->note_in_sync();
    state_.is_sure = std::exchange(is_sure_, true);
    count();
  }
  line_->note_copies(state_);
}

/// Counts what the copies and the opener have counted since the last call.
void WorkersCopies::count() {
  CopiesCounters is;
  for (const unsigned shard : own_) {
    const ShardCopy::Counters& of = shards_[shard]->counters();
    is.applied.add(of.applied);
    is.other_epoch.add(of.old_epoch + of.new_epoch);
    is.no_place.add(of.no_place);
    is.malformed.add(of.malformed);
    is.stranger.add(of.stranger);
    is.anew.add(of.anew);
  }
  for (const Opener* const opener : {&opener_, &open_to_all_}) {
    const Opener::Counters& of = opener->counters();
    is.foreign.add(of.foreign);
    is.misled.add(of.misled);
    is.replayed.add(of.replayed);
    is.version.add(of.version);
  }
  for (const CopiesCounterKind& kind : kCopiesCounterKinds) {
    const std::uint64_t now = (is.*kind.counter).value();
    Counter& before = told_.*kind.counter;
    if (now > before.value()) (counters_->*kind.counter).add(now - before.value());
    if (now > before.value()) before.add(now - before.value());
  }
}

}  // namespace millrace
