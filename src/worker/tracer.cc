#include "worker/tracer.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "parse/bytes.h"

namespace millrace {
namespace {

/// Before it is served a packet shows one end of its connection only.
template <class K>
bool may_match(const ConnectionFilter& filter, Side side, const K& key) {
  ConnectionFilter known = filter;
  known.backend.reset();
  known.backend_port.reset();
  if (side == Side::reply) {
    known.destination.reset();
    known.destination_port.reset();
  }
  const K of_client = side == Side::originator ? key : reversed(key);
  return known.takes({.key = of_client, .translated = of_client});
}

/// What was written into a packet, at that end of its header.
template <class K>
void read_end(const std::byte* packet, const Headers& headers, bool source,
              typename K::Address& address, std::uint16_t& port) {
  constexpr unsigned kBytes = K::Address::kBytes;
  const unsigned at = headers.l3 + (kBytes == 4 ? 12U : 8U) + (source ? 0 : kBytes);
  std::memcpy(address.bytes.data(), packet + at, kBytes);
  if (has_ports(headers.protocol)) port = detail::u16(packet + headers.l4 + (source ? 0 : 2));
}

/// Once it is served it shows both: as a client's packet, or as what the client will see.
template <class K>
bool matches(const ConnectionFilter& filter, const Burst& burst, unsigned i, Side side,
             const K& key) {
  K of_client = side == Side::originator ? key : reversed(key);
  K translated = of_client;
  const std::byte* const packet = burst.data[i];
  if (side == Side::originator) {
    read_end<K>(packet, burst.headers[i], false, translated.destination,
                translated.destination_port);
  } else {
    read_end<K>(packet, burst.headers[i], true, of_client.destination, of_client.destination_port);
  }
  return filter.takes({.key = of_client, .translated = translated});
}

/// Calls `each(i, side, key)` for packets in lanes.
template <class Each>
void for_each_key(const Burst& burst, Each&& each) {
  const auto of = [&each](const auto& lanes) {
    for (const Side side : {Side::originator, Side::reply}) {
      const auto& lane = side == Side::originator ? lanes.originator : lanes.reply;
      for (unsigned i = 0; i < lane.size; ++i) each(lane.packet[i], side, lane.key[i]);
    }
  };
  of(burst.v4);
  of(burst.v6);
}

std::uint64_t all_of(const Burst& burst) {
  return burst.size == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << burst.size) - 1;
}

}  // namespace

Result<std::unique_ptr<Tracer>> Tracer::create(const ConnectionFilter& filter) {
  auto free = PointerRing::create(kRoom);
  if (!free) return std::unexpected(free.error());
  auto full = PointerRing::create(kRoom);
  if (!full) return std::unexpected(full.error());
  std::unique_ptr<Tracer> tracer(new Tracer(filter, std::move(*free), std::move(*full)));
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

void Tracer::received(const Burst& burst, const std::function<unsigned(Handle)>& link_of) {
  std::uint64_t wanted = filter_.takes_all() ? all_of(burst) : 0;
  for_each_key(burst, [&](unsigned i, Side side, const auto& key) {
    wanted |= std::uint64_t{may_match(filter_, side, key)} << i;
  });
  for (unsigned i = 0; i < burst.size; ++i) {
    if ((wanted >> i & 1) == 0) continue;
    TracedPacket* const packet = slot();
    if (packet == nullptr) continue;
    packet->link = link_of(burst.handle[i]);
    packet->sent = false;
    keep(*packet, {burst.data[i], burst.length[i]}, burst.wire_length[i]);
    pending_.push_back({burst.handle[i], packet});
  }
}

void Tracer::served(const Burst& burst, std::uint64_t forward, std::span<const Outgoing> out) {
  if (pending_.empty()) return;
  std::uint64_t wanted = filter_.takes_all() ? all_of(burst) : 0;
  for_each_key(burst, [&](unsigned i, Side side, const auto& key) {
    wanted |= std::uint64_t{matches(filter_, burst, i, side, key)} << i;
  });
  for (unsigned i = 0; i < burst.size; ++i) {
    const auto came = std::ranges::find(pending_, burst.handle[i], &Pending::handle);
    if (came == pending_.end()) continue;
    TracedPacket* const packet = came->packet;
    pending_.erase(came);
    if ((wanted >> i & 1) == 0) {
      spare_.push_back(packet);
      continue;
    }
    packet->verdict = burst.verdict[i];
    give(packet);
    if ((forward >> i & 1) == 0) continue;
    TracedPacket* const left = slot();
    if (left == nullptr) continue;
    left->link = out[i].link;
    left->sent = true;
    left->verdict = burst.verdict[i];
    keep(*left, {out[i].data, out[i].length}, out[i].length);
    give(left);
  }
}

/// There is room for as many as there are.
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
