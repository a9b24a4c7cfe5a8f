#include "bench/nat_port.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/protocol.h"
#include "host/ingress.h"
#include "parse/bytes.h"
#include "parse/checksum.h"
#include "parse/parse.h"
#include "traffic/random.h"

namespace millrace::bench {
namespace {

using detail::big_endian;
using detail::load;
using detail::store;

constexpr std::uint32_t kCustomers = 0x0a00'0001;  // 10.0.0.1
constexpr std::uint32_t kRemotes = 0xc612'0000;    // 198.18.0.0
constexpr std::uint32_t kPublic = 0x6440'0000;     // 100.64.0.0
constexpr std::uint32_t kFarEnds = 0xac10'0000;    // 172.16.0.0
constexpr std::uint32_t kNearEnd = 0xc000'0201;    // 192.0.2.1
constexpr unsigned kPublicBits = 10;
constexpr std::uint64_t kRemoteAddresses = std::uint64_t{1} << 17;
constexpr std::uint64_t kFirstPort = 1024;
constexpr std::uint64_t kInsidePorts = 65'536 - kFirstPort;
constexpr std::uint64_t kRemotePorts = 49'151;  // from 1 on
static_assert(kMostOfCustomer < kInsidePorts);

constexpr unsigned kOuter = 20 + 4;  // IPv4 and GRE
constexpr std::size_t kCheckSequence = 4;
constexpr std::size_t kL3 = 14;
constexpr std::size_t kEnds = kL3 + 12;
constexpr std::size_t kL4 = kL3 + 20;
constexpr std::size_t kIpChecksum = kL3 + 10;
constexpr std::size_t kUdpChecksum = kL4 + 6;

std::uint16_t ip_length(unsigned packet_bytes) {
  return static_cast<std::uint16_t>(packet_bytes - kCheckSequence - kL3);
}
std::uint16_t udp_length(unsigned packet_bytes) {
  return static_cast<std::uint16_t>(ip_length(packet_bytes) - (kL4 - kL3));
}

/// Returns the headers of a frame without addresses, ports and checksums; the payload is zeros.
std::array<std::byte, 64> head_of(unsigned packet_bytes) {
  std::array<std::byte, 64> head{};
  constexpr std::array<std::uint8_t, kL3> kEthernet{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0};
  std::memcpy(head.data(), kEthernet.data(), kL3);
  head[kL3] = std::byte{0x45};
  store(&head[kL3 + 2], big_endian(ip_length(packet_bytes)));
  head[kL3 + 8] = std::byte{64};  // hops
  head[kL3 + 9] = std::byte{kProtocolUdp};
  store(&head[kL4 + 4], big_endian(udp_length(packet_bytes)));
  return head;
}

AddressV4 address(std::uint32_t number) { return std::bit_cast<AddressV4>(big_endian(number)); }
std::uint16_t port(std::uint64_t number) { return big_endian(static_cast<std::uint16_t>(number)); }

/// Computes the checksums of frames of one length.
class Checksums {
 public:
  explicit Checksums(unsigned packet_bytes) {
    const auto head = head_of(packet_bytes);
    ip_ = add_words(0, std::span(head).subspan(kL3, kL4 - kL3));
    udp_ = pseudo_header_sum(AddressV4{}, AddressV4{}, kProtocolUdp, udp_length(packet_bytes)) +
           add_words(0, std::span(head).subspan(kL4));
  }
  void set(PlannedPacket& packet) const {
    const auto ends = std::as_bytes(std::span(&packet.arrives, 1));
    packet.ip_checksum = internet_checksum(ends.first(std::size_t{2} * AddressV4::kBytes), ip_);
    packet.udp_checksum = internet_checksum(ends, udp_);
    if (packet.udp_checksum == 0) packet.udp_checksum = 0xffff;  // RFC 768
  }

 private:
  std::uint64_t ip_;
  std::uint64_t udp_;
};

WireEnds ends(const WireEnd& from, const WireEnd& to) {
  return {from.address, to.address, from.port, to.port};
}

/// Returns the sum of a frame's big-endian words, folded: 0xffff over what a right checksum covers.
/// Does not use the functions that compute checksums elsewhere.
std::uint32_t plain_sum(const std::byte* from, std::size_t bytes, std::uint32_t sum) {
  for (std::size_t i = 0; i < bytes; i += 2) {
    const auto low = i + 1 < bytes ? std::to_integer<std::uint32_t>(from[i + 1]) : 0;
    sum += std::to_integer<std::uint32_t>(from[i]) << 8 | low;
  }
  while (sum > 0xffff) sum = (sum >> 16) + (sum & 0xffff);
  return sum;
}

bool has_right_checksums(const std::byte* frame) {
  const std::size_t length = detail::u16(frame + kL4 + 4);
  if (plain_sum(frame + kL3, kL4 - kL3, 0) != 0xffff) return false;
  const auto pseudo = static_cast<std::uint32_t>(kProtocolUdp + length);
  return plain_sum(frame + kL4, length, plain_sum(frame + kEnds, 8, pseudo)) == 0xffff;
}

std::uint32_t number(const AddressV4& address) {
  return big_endian(std::bit_cast<std::uint32_t>(address));
}
bool is_customers(const AddressV4& address) { return number(address) >> 24 == kCustomers >> 24; }
/// Returns the far end of the tunnel of the customer with that inside address.
AddressV4 far_end(const AddressV4& inside) {
  return address(number(inside) - kCustomers + kFarEnds);
}

/// True if the address is in 100.64.0.0/10, where pools are.
bool is_public(const AddressV4& address) {
  return (number(address) ^ kPublic) >> (32 - kPublicBits) == 0;
}

}  // namespace

std::string_view to_string(Tunnel tunnel) {
  switch (tunnel) {
    case Tunnel::none:
      return "none";
    case Tunnel::gre:
      return "gre";
  }
  return "";
}
std::vector<Tunnel> tunnels() { return {Tunnel::none, Tunnel::gre}; }

std::string tunnel_port(std::uint64_t customers) {
  const auto bits = 32 - static_cast<unsigned>(std::bit_width(std::bit_ceil(customers)) - 1);
  return fmt::format(R"([[port]]
name = "access"
device = "null"
addresses = ["192.0.2.1/24"]
tunnel = "gre"
customers = ["172.16.0.0/{}"]
)",
                     bits);
}

std::string public_prefix(std::uint64_t addresses) {
  const auto bits = 32 - static_cast<unsigned>(std::bit_width(std::bit_ceil(addresses)) - 1);
  return fmt::format("100.64.0.0/{}", bits);
}

std::vector<NatSession> make_sessions(std::uint64_t count, std::uint64_t customers,
                                      std::uint64_t seed) {
  const Permutation order(count, seed);
  Random random(seed + 1);
  std::vector<NatSession> sessions(count);
  for (NatSession& session : sessions) {
    const std::uint64_t place = order(static_cast<std::uint64_t>(&session - sessions.data()));
    const std::uint64_t customer = place % customers;
    const Permutation ports(kInsidePorts, seed + 2 + customer);
    session.inside = {address(kCustomers + static_cast<std::uint32_t>(customer)),
                      port(kFirstPort + ports(place / customers))};
    session.remote = {
        address(kRemotes + static_cast<std::uint32_t>(random.below(kRemoteAddresses))),
        port(1 + random.below(kRemotePorts))};
  }
  return sessions;
}

NatPlan plan_first_packets(std::span<const NatSession> sessions, unsigned packet_bytes) {
  const Checksums checksums(packet_bytes);
  NatPlan plan(sessions.size());
  for (std::uint32_t n = 0; n < sessions.size(); ++n) {
    plan[n].arrives = ends(sessions[n].inside, sessions[n].remote);
    plan[n].number = n;
    checksums.set(plan[n]);
  }
  return plan;
}

NatPlan plan_replies(std::span<const NatSession> sessions, unsigned packet_bytes) {
  const Checksums checksums(packet_bytes);
  NatPlan plan(sessions.size());
  for (std::uint32_t n = 0; n < sessions.size(); ++n) {
    const NatSession& of = sessions[n];
    plan[n] = {
        .arrives = ends(of.remote, of.outside), .leaves = ends(of.remote, of.inside), .number = n};
    checksums.set(plan[n]);
  }
  return plan;
}

NatPlan plan_both_ways(std::span<const NatSession> sessions, unsigned packet_bytes,
                       std::uint64_t seed) {
  const Checksums checksums(packet_bytes);
  const Permutation order(2 * sessions.size(), seed);
  NatPlan plan(2 * sessions.size());
  for (PlannedPacket& packet : plan) {
    const std::uint64_t place = order(static_cast<std::uint64_t>(&packet - plan.data()));
    packet.number = static_cast<std::uint32_t>(place / 2);
    const NatSession& of = sessions[packet.number];
    const bool is_out = place % 2 == 0;
    packet.arrives = is_out ? ends(of.inside, of.remote) : ends(of.remote, of.outside);
    packet.leaves = is_out ? ends(of.outside, of.remote) : ends(of.remote, of.inside);
    checksums.set(packet);
  }
  return plan;
}

NatPort::NatPort(const CycleClock& clock, unsigned packet_bytes, unsigned burst)
    : clock_(&clock),
      burst_(burst),
      frame_bytes_(packet_bytes - kCheckSequence),
      slot_bytes_(kHeadroom + (frame_bytes_ + 63) / 64 * 64),
      head_(head_of(packet_bytes)),
      slots_(std::make_unique<std::byte[]>(kRing * Burst::kMax * slot_bytes_ + 64)),
      origin_(clock.begin()) {}

void NatPort::use_tunnels(const std::shared_ptr<const Customers>& customers) {
  const Tunnels::End end{
      .link = 0, .address = address(kNearEnd), .mac = {{2, 0, 0, 0, 0, 2}}};  // as in `head_of`
  tunnels_.emplace(customers, std::span(&end, 1));
}

/// Puts the packet of a customer into his tunnel.
void NatPort::wrap(Burst& burst, unsigned i, const AddressV4& customer) {
  std::byte* const inner = burst.data[i] + kL3;
  std::array<std::byte, kOuter> outer{};
  outer[0] = std::byte{0x45};
  store(&outer[2], big_endian(static_cast<std::uint16_t>(burst.length[i] - kL3 + kOuter)));
  outer[8] = std::byte{64};
  outer[9] = std::byte{47};
  const AddressV4 far = far_end(customer);
  const AddressV4 near = address(kNearEnd);
  std::memcpy(&outer[12], far.bytes.data(), far.kBytes);
  std::memcpy(&outer[16], near.bytes.data(), near.kBytes);
  store(&outer[10], internet_checksum(std::span(outer).first(20)));
  store(&outer[22], big_endian<std::uint16_t>(0x0800));
  std::memcpy(inner - kOuter, outer.data(), kOuter);
  std::memcpy(inner - kOuter - kL3, head_.data(), kL3);
  burst.data[i] -= kOuter;
  burst.length[i] = static_cast<std::uint16_t>(burst.length[i] + kOuter);
  burst.wire_length[i] += kOuter;
}

/// Does what a live port does before the line gets a burst.
void NatPort::unwrap(Burst& burst) const {
  const Arrival arrival{0, burst.size, 0};
  tunnels_->unwrap(burst, arrival);
  parse(burst, link_type());
  tunnels_->file(burst, {&arrival, 1});
}

/// Returns a frame's place, aligned to a cache line.
std::byte* NatPort::slot(std::size_t group, unsigned i) const {
  const auto from = reinterpret_cast<std::uintptr_t>(slots_.get());
  std::byte* const aligned = slots_.get() + (64 - from % 64);
  return aligned + (group * Burst::kMax + i) * slot_bytes_ + kHeadroom;
}

void NatPort::play(const Act& act) {
  act_ = act;
  left_ = act.packets;
  next_ = 0;
  forwarded_ = wrong_ = begun_ = 0;
  queue_.reset();
  if (act.ns_each > 0) queue_.emplace(act.packets, act.ns_each, act.queue);
}

bool NatPort::receive(Burst& burst) {
  constexpr std::uint64_t kMostRests = 1'000'000'000;
  burst.size = 0;
  const double ns = clock_->ns_since(origin_);
  burst.now = Tick{static_cast<std::uint32_t>(ns / 1e6) + skipped_ms_};
  if (act_.ends_with != nullptr) return act_.ends_with->live().v4 > 0 && ++begun_ < kMostRests;
  if (act_.pauses_ms > 0) {
    if (begun_ == 0) begun_ = clock_->begin();
    return clock_->ns_since(begun_) < 1e6 * act_.pauses_ms;
  }
  if (!queue_) {
    if (left_ == 0) return false;
    fill(burst, static_cast<unsigned>(std::min<std::uint64_t>(burst_, left_)));
    return true;
  }
  if (begun_ == 0) begun_ = clock_->begin();
  queue_->arrive(clock_->ns_since(begun_));
  if (queue_->is_over()) return false;
  const unsigned count = std::min(burst_, queue_->waiting());
  queue_->skip(count);
  fill(burst, count);
  return true;
}

void NatPort::fill(Burst& burst, unsigned count) {
  if (count == 0) return;
  for (unsigned i = 0; i < count; ++i) {
    const PlannedPacket& packet = act_.plan[next_];
    std::byte* const to = slot(ring_, i);
    std::memcpy(to, head_.data(), head_.size());
    std::memcpy(to + kEnds, &packet.arrives, sizeof(packet.arrives));
    store(to + kIpChecksum, packet.ip_checksum);
    store(to + kUdpChecksum, packet.udp_checksum);
    burst.data[i] = to;
    burst.length[i] = static_cast<std::uint16_t>(frame_bytes_);
    burst.wire_length[i] = static_cast<std::uint32_t>(frame_bytes_);
    burst.handle[i] = next_;
    if (has_tunnels() && is_customers(packet.arrives.source)) wrap(burst, i, packet.arrives.source);
    if (++next_ == act_.plan.size()) next_ = 0;
  }
  burst.size = count;
  left_ -= count;
  ring_ = (ring_ + 1) % kRing;
  if (has_tunnels()) unwrap(burst);
}

void NatPort::send(const Burst& burst, std::uint64_t forward) {
  forwarded_ += static_cast<std::uint64_t>(std::popcount(forward));
  for_each_bit(forward, [&](unsigned i) { wrong_ += !is_sent_right(burst, i); });
}

/// Sends a packet, to a customer through his tunnel. True: it is as it must be.
bool NatPort::is_sent_right(const Burst& burst, unsigned i) {
  const PlannedPacket& planned = act_.plan[burst.handle[i]];
  if (!is_right(burst.data[i], planned)) return false;
  if (!has_tunnels()) return true;
  const bool is_to_customer = (burst.to_customer >> i & 1) != 0;
  if (is_to_customer != is_customers(planned.leaves.destination) && act_.begins.empty())
    return false;
  if (!is_to_customer) return (burst.from_customer >> i & 1) == 0;
  const auto tunnel = tunnels_->access_of(burst.customer[i]);
  if (!tunnel || tunnel->end != far_end(planned.leaves.destination)) return false;
  Outgoing frame{.data = burst.data[i], .length = burst.length[i]};
  tunnels_->wrap(frame, *tunnel);
  return load<AddressV4>(frame.data + kL3 + 16) == tunnel->end;
}

bool NatPort::is_right(const std::byte* frame, const PlannedPacket& planned) {
  const auto left = load<WireEnds>(frame + kEnds);
  if (act_.checks_checksums && !has_right_checksums(frame)) return false;
  if (act_.begins.empty()) return left == (act_.is_untranslated ? planned.arrives : planned.leaves);
  act_.begins[planned.number].outside = {left.source, left.source_port};
  const WireEnds& was = planned.arrives;
  return is_public(left.source) && left.destination == was.destination &&
         left.destination_port == was.destination_port;
}

}  // namespace millrace::bench
