#include "bench/conversations.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "core/protocol.h"
#include "parse/bytes.h"

namespace millrace::bench {
namespace {

constexpr std::uint32_t kLongest = 1000;  // packets of a conversation
constexpr std::uint64_t kPacketsPerMs = 2048;

constexpr std::size_t kL3 = 14;
constexpr std::size_t kProtocolAt = kL3 + 9;
constexpr std::size_t kEnds = kL3 + 12;
constexpr std::size_t kL4 = kL3 + 20;
constexpr std::size_t kHeaders = kL4 + 24;  // the longest; everything behind is zero

WireEnds ends_in(const std::byte* frame) { return detail::load<WireEnds>(frame + kEnds); }

WireEnds back(const WireEnds& ends) {
  return {ends.destination, ends.source, ends.destination_port, ends.source_port};
}

/// Returns the place of a packet's transport checksum.
std::size_t checksum_at(const std::byte* frame) {
  const bool is_tcp = detail::u8(frame + kProtocolAt) == kProtocolTcp;
  return kL4 + (is_tcp ? 16 : 6);
}

/// Returns the sum of big-endian words, by itself.
std::uint32_t sum_of(const std::byte* from, std::size_t bytes, std::uint32_t sum) {
  for (std::size_t i = 0; i < bytes; i += 2) sum += detail::u16(from + i);
  while (sum > 0xffff) sum = (sum >> 16) + (sum & 0xffff);
  return sum;
}

std::uint32_t ip_sum(const std::byte* frame) { return sum_of(frame + kL3, kL4 - kL3, 0); }
/// Returns the sum of the pseudo header, the header and a payload of zeros.
std::uint32_t transport_sum(const std::byte* frame) {
  const std::uint32_t length = detail::u16(frame + kL3 + 2) - std::uint32_t{kL4 - kL3};
  const std::uint32_t pseudo = sum_of(frame + kEnds, 8, detail::u8(frame + kProtocolAt) + length);
  return sum_of(frame + kL4, kHeaders - kL4, pseudo);
}

void put(std::byte* at, std::uint32_t value) {
  detail::store(at, detail::big_endian(static_cast<std::uint16_t>(value)));
}

/// Replaces addresses and ports, and computes the checksums anew.
void address(std::byte* frame, const WireEnds& ends) {
  detail::store(frame + kEnds, ends);
  put(frame + kL3 + 10, 0);
  put(frame + kL3 + 10, ~ip_sum(frame));
  std::byte* const at = frame + checksum_at(frame);
  put(at, 0);
  const std::uint32_t checksum = ~transport_sum(frame) & 0xffff;
  put(at, checksum != 0 ? checksum : 0xffff);
}

}  // namespace

std::string_view to_string(Talk talk) { return talk == Talk::http ? "http" : "campus"; }

std::optional<Talk> talk_named(std::string_view name) {
  for (const Talk talk : {Talk::http, Talk::campus}) {
    if (to_string(talk) == name) return talk;
  }
  return std::nullopt;
}

Batch::Batch()
    : memory_(std::make_unique<std::byte[]>(kMost * (kHeadroom + kBytes) + 64)),
      first_(memory_.get() + (64 - reinterpret_cast<std::uintptr_t>(memory_.get()) % 64)) {
  packets.reserve(kMost);
}

Conversations::Conversations(Talk talk, std::uint32_t at_once, const Changes& changes,
                             std::uint64_t seed)
    : seed_(seed),
      all_(at_once),
      next_port_(kClients),
      random_(seed),
      order_(at_once, seed),
      talk_(talk),
      changes_(changes) {
  for (std::uint16_t& port : next_port_) port = static_cast<std::uint16_t>(random_());
  for (Live& live : all_) {
    begin(live);
    live.begins_in = random_.below(kRoundsToBegin);
  }
}

/// Begins another conversation in place of one that has ended.
void Conversations::begin(Live& live) {
  constexpr std::uint64_t kAnyTime = 1'000'000'000;
  Draft draft;
  auto packets = static_cast<std::uint32_t>(random_.between(8, 16));
  if (talk_ == Talk::campus) {
    do draft = draw_draft(random_);
    while (draft.purpose == Purpose::ping);
    // The draft's weight is 64 times the length of a flow that may be longer than the shortest.
    packets = std::clamp(draft.weight / 64 + 1, fewest_packets(draft.purpose), kLongest);
  }
  live.is = millrace::begin(draft.purpose, packets, kAnyTime, random_);
  live.is.ipv6 = false;
  live.is.server.host = 0;
  if (talk_ == Talk::http) live.is.server.port = 80;
  const auto client = static_cast<std::uint32_t>(begun_++ % kClients);
  std::uint16_t& port = next_port_[client];
  if (++port < 1024) port = 1024;
  live.is.client.host = client;
  live.is.client.port = port;
  live.sent = live.leave = {};
  live.begins_in = 0;
}

void Conversations::next(Batch& batch) {
  batch.packets.clear();
  batch.from_clients.clear();
  batch.from_servers.clear();
  while (batch.packets.size() < Batch::kMost && in_round_ < all_.size()) {
    const auto n = static_cast<std::uint32_t>(order_(in_round_++));
    if (all_[n].begins_in <= round_) add(batch, n);
  }
  packets_ += batch.packets.size();
  batch.now = Tick{static_cast<std::uint32_t>(1 + packets_ / kPacketsPerMs)};
  if (in_round_ < all_.size()) return;
  in_round_ = 0;
  ++round_;
  order_ = Permutation(all_.size(), seed_ + round_);
}

void Conversations::add(Batch& batch, std::uint32_t n) {
  Live& live = all_[n];
  const Frame frame = next_frame(live.is, random_);
  const bool is_reply = frame.from.side == Endpoint::Side::server;
  const auto place = static_cast<std::uint32_t>(batch.packets.size());
  BatchPacket& packet = batch.packets.emplace_back();
  packet.wire_length = builder_.build(frame);
  packet.length =
      static_cast<std::uint16_t>(std::min<std::size_t>(packet.wire_length, Batch::kBytes));
  packet.data = batch.first_ + place * (Batch::kHeadroom + Batch::kBytes) + Batch::kHeadroom;
  packet.conversation = n;
  std::memcpy(packet.data, builder_.data(), packet.length);
  if (is_reply) {
    address(packet.data, back(live.leave));
  } else if (live.sent.source_port == 0) {
    live.sent = ends_in(packet.data);
  }
  (is_reply ? batch.from_servers : batch.from_clients).push_back(place);
}

bool Conversations::is_right(const BatchPacket& packet, bool is_reply) {
  Live& live = all_[packet.conversation];
  const WireEnds left = ends_in(packet.data);
  if (ip_sum(packet.data) != 0xffff || transport_sum(packet.data) != 0xffff) return false;
  if (is_reply) return left == back(live.sent);
  if (live.leave.source_port != 0) return left == live.leave;
  live.leave = left;
  return (left.source != live.sent.source) == changes_.source &&
         (left.destination != live.sent.destination) == changes_.destination;
}

Result<void> Conversations::check(const Batch& batch, std::span<const std::uint32_t> left) {
  if (left.size() != batch.packets.size()) {
    return std::unexpected(Error{"of " + std::to_string(batch.packets.size()) + " packets " +
                                 std::to_string(left.size()) + " left: all must"});
  }
  for (const auto* places : {&batch.from_clients, &batch.from_servers}) {
    for (const std::uint32_t place : *places) {
      const BatchPacket& packet = batch.packets[place];
      if (!is_right(packet, places == &batch.from_servers))
        return std::unexpected(Error{"a packet did not leave as it must"});
      Live& live = all_[packet.conversation];
      if (live.is.done == live.is.packets) begin(live);
    }
  }
  return {};
}

bool BatchPort::receive(Burst& burst) {
  const std::size_t count = std::min<std::size_t>(burst_, places_.size());
  burst.size = static_cast<unsigned>(count);
  burst.now = batch_->now;
  for (unsigned i = 0; i < count; ++i) {
    const BatchPacket& packet = batch_->packets[places_[i]];
    burst.data[i] = packet.data;
    burst.length[i] = packet.length;
    burst.wire_length[i] = packet.wire_length;
    burst.handle[i] = places_[i];
  }
  places_ = places_.subspan(count);
  return count > 0;
}

void BatchPort::send(const Burst& burst, std::uint64_t forward) {
  for_each_bit(forward,
               [&](unsigned i) { left_->push_back(static_cast<std::uint32_t>(burst.handle[i])); });
}

}  // namespace millrace::bench
