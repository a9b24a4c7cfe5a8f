#include "live/tracer.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "host/addresses_of.h"
#include "parse/bytes.h"
#include "parse/quote.h"

namespace millrace {
namespace {

/// True if a packet that comes from that side of its connection may match. Parts of the filter that
/// the packet cannot show before it is served are ignored: the backend, the customer at the other
/// end, and for a reply the destination and its port, with `hides_sources` the source, too.
template <class K>
bool may_match(const ConnectionFilter& filter, Side side, const K& key, bool hides_sources) {
  ConnectionFilter known = filter;
  known.backend.reset();
  known.backend_port.reset();
  known.customers.reset();
  if (side == Side::reply) {
    known.destination.reset();
    known.destination_port.reset();
  }
  if (side == Side::reply && hides_sources) {
    known.source.reset();
    known.source_port.reset();
  }
  const K of_client = side == Side::originator ? key : reversed(key);
  return known.takes({.key = of_client, .translated = of_client});
}

/// True if a packet without a connection matches. A packet to a backend's address does not count as
/// the backend's.
template <class K>
bool matches_itself(const ConnectionFilter& filter, const K& key) {
  return !filter.backend && !filter.backend_port && filter.takes({.key = key, .translated = key});
}

/// Returns the key that the packet's bytes show now. The protocol stays as in `key`, and for
/// protocols without ports both port fields.
template <class K>
K key_now(const Burst& burst, unsigned i, K key) {
  const std::byte* const packet = burst.data[i];
  const Headers& headers = burst.headers[i];
  key.set_zone(burst.customer_of(i));
  key.source = source_of<typename K::Address>(packet, headers);
  key.destination = destination_of<typename K::Address>(packet, headers);
  if (!has_ports(headers.protocol)) return key;
  key.source_port = detail::u16(packet + headers.l4);
  key.destination_port = detail::u16(packet + headers.l4 + 2);
  return key;
}

template <class K>
bool matches_itself(const ConnectionFilter& filter, const Burst& burst, unsigned i) {
  const Headers& headers = burst.headers[i];
  K key{.protocol = headers.protocol};
  if (burst.verdict[i] == Verdict::no_service) {
    key = key_now(burst, i, key);
  } else {  // an ICMP message has no ports
    key.source = source_of<typename K::Address>(burst.data[i], headers);
    key.destination = destination_of<typename K::Address>(burst.data[i], headers);
    key.set_zone(burst.customer_of(i));
  }
  return matches_itself(filter, key);
}

/// True if a packet in no lane, or an ICMP error, is routable and matches by the key in its own
/// header.
bool matches_itself(const ConnectionFilter& filter, const Burst& burst, unsigned i) {
  const Verdict verdict = burst.verdict[i];
  if (!is_unmatched(verdict) || !is_routable(verdict)) return false;
  return burst.headers[i].family == 4 ? matches_itself<KeyV4>(filter, burst, i)
                                      : matches_itself<KeyV6>(filter, burst, i);
}

/// True if a served packet matches. The keys with which the packet came and leaves show both ends
/// of its connection, which the filter sees from the client's side.
template <class K>
bool matches(const ConnectionFilter& filter, Side side, const K& came, const K& now) {
  if (side == Side::originator) return filter.takes({.key = came, .translated = now});
  return filter.takes({.key = reversed(now), .translated = reversed(came)});
}

/// Returns a bit for each packet of an arrived burst that may match. The side of its connection is
/// not known yet.
std::uint64_t may_match(const ConnectionFilter& filter, const Burst& burst, bool hides_sources) {
  std::uint64_t wanted = 0;
  const auto look = [&](const auto& lane) {
    for (unsigned i = 0; i < lane.size; ++i) {
      const auto& key = lane.key[i];
      const bool may = may_match(filter, Side::originator, key, hides_sources) ||
                       may_match(filter, Side::reply, key, hides_sources) ||
                       matches_itself(filter, key);
      wanted |= std::uint64_t{may} << lane.packet[i];
    }
  };
  look(burst.v4);
  look(burst.v6);
  look(burst.quoted_v4);
  look(burst.quoted_v6);
  return wanted;
}

/// Returns a bit for each packet of a served burst that matches: packets in `lane` by their own
/// key, ICMP errors in `quoted` by the key that they quote.
template <class K>
std::uint64_t matches(const ConnectionFilter& filter, const Burst& burst, const Lane<K>& lane,
                      const Lane<K>& quoted) {
  std::uint64_t wanted = 0;
  for (unsigned n = 0; n < lane.size; ++n) {
    const unsigned i = lane.packet[n];
    const Side side = lane.side(n);
    const K& came = lane.key[n];
    const K now = key_now(burst, i, came);
    // A packet belongs to no connection if it has no entry and no function has rewritten it, and if
    // it is a reply or no function has served it.
    const bool is_nobodys = lane.connection[n] == ConnId::none && now == came &&
                            (side == Side::reply || !is_served(burst.verdict[i]));
    const bool does = is_nobodys ? matches_itself(filter, came) : matches(filter, side, came, now);
    wanted |= std::uint64_t{does} << i;
  }
  for (unsigned n = 0; n < quoted.size; ++n) {
    const unsigned i = quoted.packet[n];
    const K& came = quoted.key[n];
    const auto quote = read_quote<K>(burst.data[i], burst.headers[i]);
    K now = quote ? reversed(quote->key) : came;
    now.set_zone(burst.customer_of(i));
    wanted |= std::uint64_t{matches(filter, quoted.side(n), came, now)} << i;
  }
  return wanted;
}

}  // namespace

Result<std::unique_ptr<Tracer>> Tracer::create(const ConnectionFilter& filter, bool hides_sources) {
  auto free = PointerRing::create(kRoom);
  if (!free) return std::unexpected(free.error());
  auto full = PointerRing::create(kRoom);
  if (!full) return std::unexpected(full.error());
  std::unique_ptr<Tracer> tracer(
      new Tracer(filter, hides_sources, std::move(*free), std::move(*full)));
  for (unsigned n = 0; n < kRoom; ++n) {
    void* const packet = tracer->all_.emplace_back(std::make_unique<TracedPacket>()).get();
    tracer->free_.push({&packet, 1});
  }
  tracer->pending_.reserve(kRoom);
  tracer->spare_.reserve(kRoom);
  return tracer;
}

TracedPacket* Tracer::slot() {
  if (!spare_.empty()) {
    TracedPacket* const packet = spare_.back();
    spare_.pop_back();
    return packet;
  }
  void* packet = nullptr;
  if (free_.pop({&packet, 1}) == 0) lost_.add(1);
  return static_cast<TracedPacket*>(packet);
}

void Tracer::keep(TracedPacket& slot, std::span<const std::byte> bytes,
                  std::uint32_t wire_length) const {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  slot.time_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(now).count());
  slot.wire_length = wire_length;
  slot.length = static_cast<std::uint16_t>(std::min(bytes.size(), TracedPacket::kMost));
  std::memcpy(slot.bytes.data(), bytes.data(), slot.length);
}

void Tracer::received(const Burst& burst) {
  const std::uint64_t all = filter_.takes_all() ? all_of(burst) : 0;
  const std::uint64_t wanted = all | may_match(filter_, burst, hides_sources_);
  for (unsigned i = 0; i < burst.size; ++i) {
    const bool is_sure = (all >> i & 1) != 0 || matches_itself(filter_, burst, i);
    if (!is_sure && (wanted >> i & 1) == 0) continue;
    TracedPacket* const packet = slot();
    if (packet == nullptr) continue;
    packet->link = burst.link[i];
    packet->sent = false;
    packet->customer = burst.customer_of(i);
    keep(*packet, {burst.data[i], burst.length[i]}, burst.wire_length[i]);
    pending_.push_back({burst.handle[i], packet, is_sure});
  }
}

void Tracer::forget(Handle packet) {
  const auto came = std::ranges::find(pending_, packet, &Pending::handle);
  if (came == pending_.end()) return;
  spare_.push_back(came->packet);
  pending_.erase(came);
}

void Tracer::served(const Burst& burst, std::uint64_t packets, std::uint64_t forward,
                    std::span<const Outgoing> out) {
  if (pending_.empty()) return;
  const std::uint64_t wanted = matches(filter_, burst, burst.v4, burst.quoted_v4) |
                               matches(filter_, burst, burst.v6, burst.quoted_v6);
  for_each_bit(packets, [&](unsigned i) {
    const auto came = std::ranges::find(pending_, burst.handle[i], &Pending::handle);
    if (came == pending_.end()) return;
    const auto [handle, packet, is_sure] = *came;
    pending_.erase(came);
    if (!is_sure && (wanted >> i & 1) == 0) {
      spare_.push_back(packet);
      return;
    }
    packet->verdict = burst.verdict[i];
    give(packet);
    if ((forward >> i & 1) == 0) return;
    TracedPacket* const left = slot();
    if (left == nullptr) return;
    left->link = out[i].link;
    left->sent = true;
    left->customer = burst.customer_of(i);
    left->verdict = burst.verdict[i];
    keep(*left, {out[i].data, out[i].length}, out[i].length);
    give(left);
  });
}

/// Passes a copy to the thread that takes the copies. The ring has room for all of them.
void Tracer::give(TracedPacket* packet) {
  void* const pointer = packet;
  full_.push({&pointer, 1});
}

const TracedPacket* Tracer::take() {
  if (taken_ != nullptr) {
    void* const pointer = std::exchange(taken_, nullptr);
    free_.push({&pointer, 1});
  }
  void* packet = nullptr;
  if (full_.pop({&packet, 1}) == 1) taken_ = static_cast<TracedPacket*>(packet);
  return taken_;
}

}  // namespace millrace
