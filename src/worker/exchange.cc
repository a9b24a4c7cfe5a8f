#include "worker/exchange.h"

#include <algorithm>
#include <bit>

namespace millrace {
namespace {

/// Returns the packets of a shard, among those in lanes; bits by place in the burst.
std::uint64_t packets_of_shard(const Burst& burst, unsigned shard) {
  // Most bursts have no packet of the shard, and this loop over the whole column costs next to
  // nothing. For packets without a key the column holds values of an earlier burst, so a match
  // proves nothing yet.
  std::uint16_t may_have_some = 0;  // as wide as an element, for vector instructions
  for (const std::uint16_t one : burst.shard) may_have_some |= one == shard ? 1 : 0;
  if (may_have_some == 0) return 0;
  std::uint64_t packets = 0;
  const auto add = [&](const auto& lane) {
    for (unsigned i = 0; i < lane.size; ++i) {
      const unsigned packet = lane.packet[i];
      packets |= std::uint64_t{burst.shard[packet] == shard} << packet;
    }
  };
  add(burst.v4);
  add(burst.v6);
  add(burst.quoted_v4);
  add(burst.quoted_v6);
  return packets;
}

}  // namespace

Result<std::unique_ptr<Exchange>> Exchange::create(unsigned workers,
                                                   std::shared_ptr<Owners> owners) {
  std::unique_ptr<Exchange> exchange(new Exchange(workers, std::move(owners)));
  for (unsigned n = 0; n < workers * workers; ++n) {
    auto ring = PointerRing::create(kRing);
    if (!ring) return std::unexpected(ring.error());
    exchange->rings_.push_back(std::move(*ring));
  }
  return exchange;
}

WorkersExchange::WorkersExchange(Exchange& exchange, unsigned worker, Packets& packets)
    : exchange_(&exchange),
      worker_(worker),
      port_(&packets),
      owners_(&exchange.owners()),
      shards_(owners_->moves(), *this, worker),
      packets_of_(owners_->moves().shards()) {}

/// Drops the packets in the rings to this worker and those that it holds, so that the packets'
/// memory goes back to its pool.
WorkersExchange::~WorkersExchange() {
  std::array<void*, Burst::kMax> left{};
  for (unsigned from = 0; from < workers(); ++from) {
    while (const std::size_t count = exchange_->ring(from, worker_).pop(left)) {
      for (std::size_t i = 0; i < count; ++i) {
        const auto item = std::bit_cast<std::uintptr_t>(left[i]);
        if ((item & kTags) != kMessage) port_->drop(item & ~std::uintptr_t{kTags});
      }
    }
  }
  shards_.release_all([this](Handle packet) { port_->drop(packet); });
}

void WorkersExchange::set_lines(std::vector<Line*> lines) {
  lines_ = std::move(lines);
  lines_[worker_]->add_between(*this);
}

bool WorkersExchange::is_at_rest() const {
  if (is_moving()) return false;
  for (unsigned from = 0; from < workers(); ++from) {
    if (!exchange_->ring(from, worker_).is_empty()) return false;
  }
  return true;
}

bool WorkersExchange::has_sent_all() const {
  for (unsigned to = 0; to < workers(); ++to) {
    if (!exchange_->ring(worker_, to).is_empty()) return false;
  }
  return true;
}

// --- packets

void WorkersExchange::receive(Burst& burst) {
  constexpr std::size_t kMost = Burst::kMax / 2;
  while (shards_.has_released() && burst.size < Burst::kMax)
    port_->place(burst, burst.size++, shards_.release());
  released_ = burst.size;
  std::array<void*, kMost> come{};
  for (unsigned n = 0; n < workers() && burst.size < kMost; ++n) {
    const unsigned from = (first_ + n) % workers();
    const std::size_t count =
        exchange_->ring(from, worker_).pop(std::span(come).first(kMost - burst.size));
    for (std::size_t i = 0; i < count; ++i)
      receive(burst, std::bit_cast<std::uintptr_t>(come[i]), from);
  }
  if (++first_ == workers()) first_ = 0;
  taken_ = burst.size;
}

void WorkersExchange::receive(Burst& burst, std::uintptr_t item, unsigned from) {
  if ((item & kTags) == kMessage) {
    shards_.receive(*std::bit_cast<MoveMessage*>(item & ~std::uintptr_t{kTags}));
    return;
  }
  const Handle packet = item & ~std::uintptr_t{kTags};
  if ((item & kTags) != kPacket) {
    (item & kTags) == kNews ? port_->hear(packet) : port_->copy(packet);
    return port_->drop(packet);
  }
  const unsigned at = burst.size++;
  port_->place(burst, at, packet);
  from_[at] = static_cast<std::uint8_t>(from);
}

template <class K>
void WorkersExchange::find_ways(const Burst& burst, const Lane<K>& lane) {
  for (unsigned i = 0; i < lane.size; ++i) {
    const unsigned packet = lane.packet[i];
    const unsigned shard = burst.shard[packet];
    if (packet >= released_) [[likely]]
      way_[packet] = shards_.way_of(shard, packet < taken_ ? from_[packet] : worker_);
    if (way_[packet].worker == worker_ && !way_[packet].holds) packets_of_[shard].add(1);
  }
}

void WorkersExchange::hand_over(Burst& burst) {
  shards_.begin_burst();
  std::fill_n(way_.begin(), burst.size, ShardsOfWorker::Way{worker_, false});
  find_ways(burst, burst.v4);
  find_ways(burst, burst.v6);
  find_ways(burst, burst.quoted_v4);
  find_ways(burst, burst.quoted_v6);
  std::uint64_t others = 0;
  for (unsigned i = 0; i < burst.size; ++i) {
    if (way_[i].worker == worker_ && !way_[i].holds) continue;
    others |= std::uint64_t{1} << i;
    if (!way_[i].holds) {
      push(way_[i].worker, burst.handle[i], kPacket);
    } else if (!shards_.hold(burst.handle[i], i < taken_ ? from_[i] : worker_)) {
      counters_.not_handed.add(1);
      port_->drop(burst.handle[i]);
    }
  }
  take_out(burst, others);
  released_ = taken_ = 0;  // further parts of the burst came by the worker's own queues
}

void WorkersExchange::push(unsigned worker, Handle packet, Tag tag) {
  void* const pointer = std::bit_cast<void*>(packet | tag);
  if (exchange_->ring(worker_, worker).push({&pointer, 1}) == 1) {
    counters_.handed_over.add(tag == kPacket ? 1 : 0);
  } else {
    counters_.not_handed.add(tag == kPacket ? 1 : 0);
    port_->drop(packet);
  }
}

/// Takes packets that were to be served here out of the burst, and calls `with(packet)` for each.
template <class With>
void WorkersExchange::withdraw(Burst& burst, std::uint64_t packets, With&& with) {
  for_each_bit(packets, [&](unsigned i) {
    packets_of_[burst.shard[i]].subtract(1);
    port_->passed_on(burst.handle[i]);
    with(burst.handle[i]);
  });
  take_out(burst, packets);
}

void WorkersExchange::pass_on(Burst& burst, std::uint64_t packets, unsigned to) {
  withdraw(burst, packets, [&](Handle packet) { push(to, packet, kPacket); });
}

// --- shards

void WorkersExchange::between_bursts(Burst& next, Burst& after) {
  next_ = &next;
  after_ = &after;
  shards_.between_bursts();
}

bool WorkersExchange::send(unsigned to, MoveMessage& message) {
  void* const pointer = std::bit_cast<void*>(std::bit_cast<std::uintptr_t>(&message) | kMessage);
  return exchange_->ring(worker_, to).push({&pointer, 1}) == 1;
}

bool WorkersExchange::pack(unsigned shard, std::vector<std::byte>& parcel) {
  const bool is_idle = next_->size == 0 && after_->size == 0;
  if (!is_idle && ++busy_bursts_ < kBusyBursts) return false;
  busy_bursts_ = 0;
  return lines_[worker_]->pack(shard, is_idle ? kPackedWhileIdle : 1, parcel);
}

void WorkersExchange::unpack(unsigned shard, unsigned from, std::span<const std::byte> parcel) {
  lines_[worker_]->unpack(shard, *lines_[from], parcel);
}

std::uint64_t WorkersExchange::without_connection(unsigned shard) const {
  const std::uint64_t packets = packets_of_shard(*next_, shard);
  return packets == 0 ? 0 : lines_[worker_]->without_connection(*next_, packets);
}

void WorkersExchange::pass_on(std::uint64_t packets, unsigned to) { pass_on(*next_, packets, to); }

void WorkersExchange::drop(std::uint64_t packets) {
  withdraw(*next_, packets, [&](Handle packet) {
    counters_.not_handed.add(1);
    port_->drop(packet);
  });
}

void WorkersExchange::pass_on_all(unsigned shard, unsigned to) {
  for (Burst* const burst : {next_, after_}) pass_on(*burst, packets_of_shard(*burst, shard), to);
}

}  // namespace millrace
