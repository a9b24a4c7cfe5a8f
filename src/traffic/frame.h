// Builds Ethernet frames with a payload of zeros and right checksums over the whole frame.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace millrace {

/// One end of a generated conversation, as a position in the address plan (README.md).
struct Endpoint {
  enum class Side : std::uint8_t { client, server };
  Side side = Side::client;
  std::uint32_t host = 0;  ///< below 65,000
  std::uint16_t port = 0;
};

/// Describes a packet to build. Plain value.
struct Frame {
  enum class Protocol : std::uint8_t { tcp, udp, icmp_echo };
  enum Flags : std::uint8_t { kFin = 1, kSyn = 2, kRst = 4, kPsh = 8, kAck = 16 };

  bool ipv6 = false;
  Protocol protocol = Protocol::tcp;
  Endpoint from;
  Endpoint to;
  std::uint16_t payload = 0;          ///< bytes behind the L4 header
  std::uint8_t flags = 0;             ///< flags of TCP; a SYN gets a maximum segment size option
  std::uint32_t sequence = 0;         ///< sequence number of TCP or ICMP echo
  std::uint32_t acknowledgement = 0;  ///< acknowledgement number of TCP
  // An ICMP echo's identifier is the client's port.
};

/// Builds one frame after another in its own memory. Each thread uses a builder of its own.
class FrameBuilder {
 public:
  static constexpr std::uint16_t kMtu = 1500;
  static constexpr std::size_t kLargest = 1514;

  /// Builds a frame, and returns its length on the wire without the frame check sequence, 60 or
  /// more. The bytes are at `data()` until the next call. Headers and payload must fit into `kMtu`.
  std::uint32_t build(const Frame& frame);
  const std::byte* data() const { return bytes_.data(); }

 private:
  alignas(64) std::array<std::byte, kLargest> bytes_{};
};

}  // namespace millrace
