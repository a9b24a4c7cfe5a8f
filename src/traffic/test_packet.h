// Reads a frame and sums what its checksums cover, for tests, sharing no code with the writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>

#include "port/capture.h"

namespace millrace::test {

/// Reads an Ethernet frame with an IP header, without tags or IP options.
class View {
 public:
  explicit View(const Capture::Packet& packet) : packet_(packet) {}

  bool is_ip() const { return at16(12) == 0x0800 || at16(12) == 0x86dd; }
  bool ipv6() const { return at16(12) == 0x86dd; }
  unsigned protocol() const { return at8(14 + (ipv6() ? 6 : 9)); }
  unsigned l4() const { return 14 + (ipv6() ? 40 : 20); }
  unsigned ip_payload() const { return ipv6() ? at16(18) : at16(16) - 20U; }
  std::string source() const { return text(14 + (ipv6() ? 8 : 12), ipv6() ? 16 : 4); }
  std::string destination() const { return text(14 + (ipv6() ? 24 : 16), ipv6() ? 16 : 4); }
  bool has_ports() const { return protocol() == 6 || protocol() == 17; }
  unsigned source_port() const { return has_ports() ? at16(l4()) : identifier(); }
  unsigned destination_port() const { return has_ports() ? at16(l4() + 2) : identifier(); }
  unsigned identifier() const { return is_icmp() ? at16(l4() + 4) : 0; }
  bool is_icmp() const { return protocol() == 1 || protocol() == 58; }
  unsigned flags() const { return at8(l4() + 13); }
  std::uint32_t sequence() const { return at16(l4() + 4) << 16 | at16(l4() + 6); }
  std::uint32_t acknowledgement() const { return at16(l4() + 8) << 16 | at16(l4() + 10); }
  unsigned tcp_payload() const { return ip_payload() - (at8(l4() + 12) >> 4) * 4U; }

  using Five = std::tuple<std::string, unsigned, std::string, unsigned, unsigned>;
  Five five_tuple() const {
    return {source(), source_port(), destination(), destination_port(), protocol()};
  }
  /// Returns the same five-tuple for both directions.
  Five conversation() const {
    const Five other{destination(), destination_port(), source(), source_port(), protocol()};
    return std::min(five_tuple(), other);
  }

  /// Returns the ones' complement sum of the IPv4 header; 0xffff if its checksum is right.
  unsigned header_sum() const { return folded(sum(14, 20)); }
  /// Returns the ones' complement sum of pseudo header and payload; 0xffff if the checksum is
  /// right. Bytes that were not captured count as zero.
  unsigned payload_sum() const {
    std::uint64_t total = sum(l4(), ip_payload());
    if (protocol() != 1) {
      total += sum(14 + (ipv6() ? 8U : 12U), ipv6() ? 32 : 8) + protocol() + ip_payload();
    }
    return folded(total);
  }

 private:
  unsigned at8(std::size_t i) const {
    return i < packet_.captured ? std::to_integer<unsigned>(packet_.data[i]) : 0;
  }
  unsigned at16(std::size_t i) const { return at8(i) << 8 | at8(i + 1); }
  std::string text(std::size_t from, std::size_t length) const {
    return {reinterpret_cast<const char*>(packet_.data) + from, length};
  }
  std::uint64_t sum(std::size_t from, std::size_t length) const {
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < length; ++i) total += at8(from + i) << (i % 2 == 0 ? 8 : 0);
    return total;
  }
  static unsigned folded(std::uint64_t total) {
    while (total > 0xffff) total = (total & 0xffff) + (total >> 16);
    return static_cast<unsigned>(total);
  }

  const Capture::Packet& packet_;
};

}  // namespace millrace::test
