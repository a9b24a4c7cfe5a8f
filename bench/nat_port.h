// The port of the NAT benchmark: makes the packets of sessions from a list, and checks each packet
// that a line sends.
//
// Frames are UDP over IPv4. Customers are in 10.0.0.0/8, remote ends in 198.18.0.0/15, and
// customers' public ends in 100.64.0.0/10. Remote ends answer to the public end from which a packet
// came.
//
// One thread uses a port.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/arrivals.h"
#include "bench/clock.h"
#include "core/customers.h"
#include "host/tunnels.h"
#include "line/line.h"
#include "millrace/key.h"
#include "port/port.h"
#include "shard/owners.h"

namespace millrace::bench {

/// The encapsulation of packets on customers' side.
enum class Tunnel : std::uint8_t { none, gre };
std::string_view to_string(Tunnel tunnel);
/// Returns all tunnels.
std::vector<Tunnel> tunnels();

/// The port of a configuration whose customers come through `NatPort` with GRE: [[port]] with as
/// many of them.
std::string tunnel_port(std::uint64_t customers);

/// An address and a port, as they lie in a packet.
struct WireEnd {
  AddressV4 address;
  std::uint16_t port = 0;

  friend bool operator==(const WireEnd&, const WireEnd&) = default;
};
/// The addresses and ports of a packet, in the order in which they lie in it.
struct WireEnds {
  AddressV4 source;
  AddressV4 destination;
  std::uint16_t source_port = 0;
  std::uint16_t destination_port = 0;

  friend bool operator==(const WireEnds&, const WireEnds&) = default;
};
static_assert(sizeof(WireEnd) == 6 && sizeof(WireEnds) == 12);

struct NatSession {
  WireEnd inside;
  WireEnd remote;
  WireEnd outside;  ///< the public end, once a packet has left
};

/// Returns `count` sessions in random order, equally many of each customer but for one, without
/// public ends. Ports are pseudorandom (RFC 4814, 4): customers' from 1024 on, no two of a customer
/// equal; remote ones from 1 to 49151. There may be `kMostOfCustomer` sessions a customer.
std::vector<NatSession> make_sessions(std::uint64_t count, std::uint64_t customers,
                                      std::uint64_t seed);
inline constexpr std::uint64_t kMostOfCustomer = 60'000;
inline constexpr std::uint64_t kMostCustomers = 1'000'000;
/// Returns the prefix of public addresses with room for so many of them.
std::string public_prefix(std::uint64_t addresses);

/// A packet that is to be sent, and how it must leave.
struct PlannedPacket {
  WireEnds arrives;
  WireEnds leaves;
  std::uint16_t ip_checksum = 0;  ///< on arrival, as they lie in the packet
  std::uint16_t udp_checksum = 0;
  std::uint32_t number = 0;  ///< the number of its session
};
static_assert(sizeof(PlannedPacket) == 32);
using NatPlan = std::vector<PlannedPacket>;

/// Returns the first packet of each session, in order. How they leave is not known.
NatPlan plan_first_packets(std::span<const NatSession> sessions, unsigned packet_bytes);
/// Returns the reply to the first packet of each session, in order.
NatPlan plan_replies(std::span<const NatSession> sessions, unsigned packet_bytes);
/// Returns a packet of each direction of each session, in random order.
NatPlan plan_both_ways(std::span<const NatSession> sessions, unsigned packet_bytes,
                       std::uint64_t seed);

class NatPort final : public Port {
 public:
  /// A frame of 64 to 1518 bytes, its check sequence included; in a tunnel, the frame that the
  /// inner packet would have by itself. `clock` must outlive the port.
  NatPort(const CycleClock& clock, unsigned packet_bytes, unsigned burst);
  /// From now on customers' packets arrive and leave in GRE tunnels, as `tunnel_port` has them.
  void use_tunnels(const std::shared_ptr<const Customers>& customers);

  /// From now on numbers the shards of packets without a connection. `owners` must outlive the
  /// port.
  void number_shards_by(const Owners& owners) { owners_ = &owners; }

  /// The line's next run. All that it refers to must outlive the run.
  struct Act {
    std::span<const PlannedPacket> plan;  ///< repeated as often as needed
    std::uint64_t packets = 0;
    double ns_each = 0;     ///< time between two arrivals; 0: as fast as the line receives
    unsigned queue = 4096;  ///< packets that may wait, if they arrive at a rate
    /// Sessions that get their public ends from the packets that leave; empty: packets must leave
    /// as planned.
    std::span<NatSession> begins;
    bool is_untranslated = false;     ///< packets must leave as they arrive
    bool checks_checksums = false;    ///< checks the checksums of packets that leave
    const Line* ends_with = nullptr;  ///< no packets: lets time pass until this line has no session
    std::uint32_t pauses_ms = 0;      ///< no packets: lets so much time pass
  };
  void play(const Act& act);
  /// Advances the time that bursts show.
  void skip_ms(std::uint32_t ms) { skipped_ms_ += ms; }

  LinkType link_type() const override { return LinkType::ethernet; }
  bool receives_parsed() const override { return has_tunnels(); }
  bool receive(Burst& burst) override;
  void number_shards(Burst& burst, const Steering& steering) override {
    if (owners_ != nullptr) owners_->number_shards(burst, steering);
  }
  void send(const Burst& burst, std::uint64_t forward) override;

  /// @name Results of the last act
  /// @{
  std::uint64_t forwarded() const { return forwarded_; }
  std::uint64_t lost() const { return queue_ ? queue_->lost() : 0; }
  /// Packets that did not leave as they must.
  std::uint64_t wrong() const { return wrong_; }
  /// @}

 private:
  static constexpr std::size_t kHeadroom = 128;
  static constexpr std::size_t kRing = kBurstsInFlight + 1;

  /// True if the packets of this act are in tunnels.
  bool has_tunnels() const { return tunnels_ && !act_.is_untranslated; }
  void wrap(Burst& burst, unsigned i, const AddressV4& customer);
  void unwrap(Burst& burst) const;
  bool is_sent_right(const Burst& burst, unsigned i);
  std::byte* slot(std::size_t group, unsigned i) const;
  void fill(Burst& burst, unsigned count);
  bool is_right(const std::byte* frame, const PlannedPacket& planned);

  const CycleClock* clock_;
  unsigned burst_;
  std::size_t frame_bytes_;
  std::size_t slot_bytes_;
  std::array<std::byte, 64> head_{};  // the first bytes of each frame
  std::unique_ptr<std::byte[]> slots_;
  std::optional<Tunnels> tunnels_;
  const Owners* owners_ = nullptr;
  std::uint64_t origin_;
  std::uint32_t skipped_ms_ = 0;
  Act act_;
  std::optional<ArrivalQueue> queue_;
  std::uint64_t begun_ = 0;  // when the first packet of the act arrived
  std::uint64_t left_ = 0;
  std::size_t next_ = 0;  // place in the plan
  std::size_t ring_ = 0;
  std::uint64_t forwarded_ = 0;
  std::uint64_t wrong_ = 0;
};

}  // namespace millrace::bench
