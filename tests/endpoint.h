// Ends of IPv4 connections, and packets between them, for tests of whole lines.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "parse/test_checksums.h"
#include "parse/test_packets.h"

namespace millrace::test {

struct Endpoint {
  std::array<std::uint8_t, 4> address;
  std::uint16_t port;
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

inline constexpr std::uint8_t kFin = 1;
inline constexpr std::uint8_t kSyn = 2;
inline constexpr std::uint8_t kAck = 16;

/// Returns a TCP segment with `data` bytes of data; its sequence and acknowledgement numbers are 0.
inline Bytes packet(const Endpoint& from, const Endpoint& to, std::uint8_t flags = kSyn,
                    unsigned data = 0) {
  Bytes ip = bytes({0x45, 0}) + be(40 + data) + be(0) + be(0x4000) + bytes({64, 6, 0, 0});
  for (const auto& end : {from, to}) {
    for (const unsigned byte : end.address) ip = ip + bytes({byte});
  }
  return ethernet(0x0800) + ip + be(from.port) + be(to.port) + zeros(8) + bytes({0x50, flags}) +
         zeros(6 + data);
}

/// Returns an ICMP error, host unreachable, from `from` to the sender of `about`. The error quotes
/// `about`, which must be a result of `packet`.
inline Bytes error_about(const Bytes& about, const Endpoint& from) {
  constexpr unsigned kIp = 14;
  Bytes ip = bytes({0x45, 0}) + be(static_cast<unsigned>(28 + about.size() - kIp)) + be(0) +
             be(0x4000) + bytes({64, 1, 0, 0});
  for (const unsigned byte : from.address) ip = ip + bytes({byte});
  ip = ip + Bytes(about.begin() + 26, about.begin() + 30);
  ip = ip + bytes({3, 1, 0, 0}) + zeros(4) + Bytes(about.begin() + kIp, about.end());
  make_right(ip, {4, 20, 1});
  return ethernet(0x0800) + ip;
}
/// Returns the packet that `error`, a result of `error_about`, quotes.
inline Bytes quoted_by(const Bytes& error) {
  return ethernet(0x0800) + Bytes(error.begin() + 42, error.end());
}

namespace detail {
inline Endpoint end_at(const std::byte* packet, unsigned address_at, unsigned port_at) {
  Endpoint end{};
  for (unsigned i = 0; i < 4; ++i)
    end.address[i] = static_cast<std::uint8_t>(packet[address_at + i]);
  end.port = static_cast<std::uint16_t>(static_cast<unsigned>(packet[port_at]) << 8 |
                                        static_cast<unsigned>(packet[port_at + 1]));
  return end;
}
}  // namespace detail

/// Returns the source of a packet that the function `packet` made.
inline Endpoint source_of(const std::byte* packet) { return detail::end_at(packet, 26, 34); }
/// Returns the destination of a packet that the function `packet` made.
inline Endpoint destination_of(const std::byte* packet) { return detail::end_at(packet, 30, 36); }

}  // namespace millrace::test
