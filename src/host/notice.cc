#include "host/notice.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/protocol.h"
#include "host/ethernet.h"
#include "parse/bytes.h"
#include "parse/checksum.h"

namespace millrace {
namespace {

using detail::big_endian;
using detail::store;
using detail::u16;
using detail::u8;

constexpr unsigned kArp = kEthernetHeader;  // offset of ARP in a frame that is written
constexpr unsigned kArpBytes = 28;
constexpr std::uint16_t kLeastFrame = 60;  // IEEE 802.3, without the frame check sequence

constexpr unsigned kHeaderV6 = 40;
constexpr std::uint8_t kSolicitation = 135;
constexpr std::uint8_t kAdvertisement = 136;
constexpr unsigned kDiscoveryBytes = 24;  // length without options
constexpr std::uint8_t kSourceOption = 1;
constexpr std::uint8_t kTargetOption = 2;
constexpr unsigned kRouterFlag = 0x80;
constexpr unsigned kSolicitedFlag = 0x40;
constexpr unsigned kOverrideFlag = 0x20;
static_assert(kEthernetHeader + kHeaderV6 + kDiscoveryBytes + 8 == kNoticeBytes);

constexpr AddressV6 kAllNodes{{0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};

template <class T>
T read(const std::byte* at) {
  T value;
  std::memcpy(value.bytes.data(), at, value.bytes.size());
  return value;
}
template <class T>
void write(std::byte* at, const T& value) {
  std::memcpy(at, value.bytes.data(), value.bytes.size());
}

std::uint16_t write_arp(std::byte* frame, unsigned operation, const Mac& mac,
                        const AddressV4& sender, const Mac& to, const AddressV4& target) {
  std::fill_n(frame, kLeastFrame, std::byte{});
  write_ethernet(frame, to, mac, kEtherTypeArp);
  constexpr std::array<std::uint8_t, 7> kEthernetAndIp{0, 1, 8, 0, 6, 4, 0};
  std::memcpy(frame + kArp, kEthernetAndIp.data(), kEthernetAndIp.size());
  frame[kArp + 7] = static_cast<std::byte>(operation);
  write(frame + kArp + 8, mac);
  write(frame + kArp + 14, sender);
  if (to != kBroadcast) write(frame + kArp + 18, to);
  write(frame + kArp + 24, target);
  return kLeastFrame;
}

struct Discovery {
  std::uint8_t type;
  unsigned flags;
  AddressV6 target;
  std::uint8_t option;  ///< the option that holds the host's MAC; 0: none
};

std::uint16_t write_discovery(std::byte* frame, const Discovery& message, const Mac& mac,
                              const AddressV6& source, const Mac& to,
                              const AddressV6& destination) {
  const unsigned bytes = kDiscoveryBytes + (message.option != 0 ? 8 : 0);
  std::fill_n(frame, kNoticeBytes, std::byte{});
  write_ethernet(frame, to, mac, kEtherTypeV6);
  std::byte* const ip = frame + kEthernetHeader;
  ip[0] = std::byte{0x60};
  store(ip + 4, big_endian(static_cast<std::uint16_t>(bytes)));
  ip[6] = std::byte{kProtocolIcmpV6};
  ip[7] = std::byte{255};
  write(ip + 8, source);
  write(ip + 24, destination);
  std::byte* const icmp = ip + kHeaderV6;
  icmp[0] = std::byte{message.type};
  icmp[4] = static_cast<std::byte>(message.flags);
  write(icmp + 8, message.target);
  if (message.option != 0) {
    icmp[24] = std::byte{message.option};
    icmp[25] = std::byte{1};  // eight bytes
    write(icmp + 26, mac);
  }
  store(icmp + 2, internet_checksum({icmp, bytes}, pseudo_header_sum(source, destination,
                                                                     kProtocolIcmpV6, bytes)));
  return static_cast<std::uint16_t>(kEthernetHeader + kHeaderV6 + bytes);
}

}  // namespace

AddressV6 solicited_node(const AddressV6& target) {
  AddressV6 group{{0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff}};
  std::copy_n(target.bytes.end() - 3, 3, group.bytes.end() - 3);
  return group;
}

Mac multicast_mac(const AddressV6& group) {
  Mac mac{{0x33, 0x33}};
  std::copy_n(group.bytes.end() - 4, 4, mac.bytes.begin() + 2);
  return mac;
}

AddressV6 link_local(const Mac& mac) {
  const auto& m = mac.bytes;
  return {{0xfe, 0x80, 0, 0, 0, 0, 0, 0, static_cast<std::uint8_t>(m[0] ^ 2), m[1], m[2], 0xff,
           0xfe, m[3], m[4], m[5]}};
}

std::optional<Notice<AddressV4>> read_arp(std::span<const std::byte> frame) {
  const unsigned type_at = ether_type_at(frame);
  if (frame.size() < type_at + 2 + kArpBytes || u16(frame.data() + type_at) != kEtherTypeArp)
    return std::nullopt;
  const std::byte* const arp = frame.data() + type_at + 2;
  const bool is_for_ip =
      u16(arp) == 1 && u16(arp + 2) == kEtherTypeV4 && u8(arp + 4) == 6 && u8(arp + 5) == 4;
  const unsigned operation = u16(arp + 6);
  const auto mac = read<Mac>(arp + 8);
  if (!is_for_ip || operation < 1 || operation > 2 || !mac.is_unicast()) return std::nullopt;
  const auto sender = read<AddressV4>(arp + 14);
  const auto target = read<AddressV4>(arp + 24);
  // A question for the sender's own address is an announcement (RFC 5227, 3).
  if (operation == 2 || sender == target) {
    const bool is_solicited = operation == 2 && read<Mac>(frame.data()).is_unicast();
    return Notice<AddressV4>{
        .target = sender, .sender = {}, .mac = mac, .is_solicited = is_solicited};
  }
  return Notice<AddressV4>{.is_question = true, .target = target, .sender = sender, .mac = mac};
}

std::optional<Headers> headers_of_discovery(std::span<const std::byte> frame) {
  const unsigned l3 = ether_type_at(frame) + 2;
  const unsigned l4 = l3 + kHeaderV6;
  if (frame.size() < l4 + kDiscoveryBytes || u16(frame.data() + l3 - 2) != kEtherTypeV6 ||
      u8(frame.data() + l3 + 6) != kProtocolIcmpV6)
    return std::nullopt;
  const unsigned end = l4 + u16(frame.data() + l3 + 4);
  if (end > frame.size()) return std::nullopt;
  return Headers{static_cast<std::uint16_t>(l3), static_cast<std::uint16_t>(l4),
                 static_cast<std::uint16_t>(end), 6, kProtocolIcmpV6};
}

std::optional<Notice<AddressV6>> read_discovery(std::span<const std::byte> frame,
                                                const Headers& headers) {
  if (headers.family != 6 || headers.protocol != kProtocolIcmpV6) return std::nullopt;
  const unsigned bytes = headers.l4_end - headers.l4;
  if (bytes < kDiscoveryBytes || headers.l4_end > frame.size()) return std::nullopt;
  const std::byte* const ip = frame.data() + headers.l3;
  const std::byte* const icmp = frame.data() + headers.l4;
  const unsigned type = u8(icmp);
  if ((type != kSolicitation && type != kAdvertisement) || u8(icmp + 1) != 0 || u8(ip + 7) != 255)
    return std::nullopt;
  Notice<AddressV6> notice{.is_question = type == kSolicitation,
                           .target = read<AddressV6>(icmp + 8),
                           .sender = read<AddressV6>(ip + 8),
                           .mac = {}};
  const auto destination = read<AddressV6>(ip + 24);
  if (notice.target.bytes[0] == 0xff) return std::nullopt;
  const std::uint64_t sum = pseudo_header_sum(notice.sender, destination, kProtocolIcmpV6, bytes);
  if (internet_checksum({icmp, bytes}, sum) != 0) return std::nullopt;

  const unsigned wanted = notice.is_question ? kSourceOption : kTargetOption;
  for (unsigned at = kDiscoveryBytes; at < bytes;) {
    const unsigned option_bytes = at + 2 <= bytes ? 8U * u8(icmp + at + 1) : 0;
    if (option_bytes == 0 || at + option_bytes > bytes) return std::nullopt;
    if (u8(icmp + at) == wanted) notice.mac = read<Mac>(icmp + at + 2);
    at += option_bytes;
  }
  if (notice.mac && !notice.mac->is_unicast()) return std::nullopt;
  if (notice.is_question) {
    if (notice.sender == AddressV6{} && notice.mac) return std::nullopt;
    return notice;
  }
  const unsigned flags = u8(icmp + 4);
  notice.is_solicited = (flags & kSolicitedFlag) != 0;
  notice.overrides = (flags & kOverrideFlag) != 0;
  if (notice.is_solicited && destination.bytes[0] == 0xff) return std::nullopt;
  // An answer to a question to one station may omit the MAC: take the frame's source.
  if (!notice.mac) notice.mac = read<Mac>(frame.data() + 6);
  return notice;
}

template <>
std::uint16_t write_question(std::byte* frame, const Mac& mac, const AddressV4& sender,
                             const AddressV4& target, const Mac* one) {
  return write_arp(frame, 1, mac, sender, one != nullptr ? *one : kBroadcast, target);
}

template <>
std::uint16_t write_question(std::byte* frame, const Mac& mac, const AddressV6& sender,
                             const AddressV6& target, const Mac* one) {
  const std::uint8_t option = sender == AddressV6{} ? 0 : kSourceOption;
  const AddressV6 destination = one != nullptr ? target : solicited_node(target);
  return write_discovery(frame, {kSolicitation, 0, target, option}, mac, sender,
                         one != nullptr ? *one : multicast_mac(destination), destination);
}

/// Writes an announcement to all stations as a question for the sender's own address (RFC 5227, 3).
template <>
std::uint16_t write_answer(std::byte* frame, const Mac& mac, const AddressV4& target,
                           const AddressV4& asker, const Mac& to) {
  if (asker == AddressV4{}) return write_arp(frame, 1, mac, target, kBroadcast, target);
  return write_arp(frame, 2, mac, target, to, asker);
}

template <>
std::uint16_t write_answer(std::byte* frame, const Mac& mac, const AddressV6& target,
                           const AddressV6& asker, const Mac& to) {
  const bool is_asked = asker != AddressV6{};
  const unsigned flags = kRouterFlag | kOverrideFlag | (is_asked ? kSolicitedFlag : 0);
  const AddressV6 destination = is_asked ? asker : kAllNodes;
  return write_discovery(frame, {kAdvertisement, flags, target, kTargetOption}, mac, target,
                         is_asked ? to : multicast_mac(kAllNodes), destination);
}

}  // namespace millrace
