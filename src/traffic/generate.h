// Traffic made up: profiles of connections, packet after packet in the order of time.
//
// One thread uses a generator. The same plan gives the same bytes on every machine. What the
// profiles contain, and where their distributions come from: README.md.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "millrace/types.h"
#include "port/capture.h"

namespace millrace {

enum class Profile : std::uint8_t {
  campus,   ///< mixed, two-way, heavy-tailed
  uniform,  ///< every two packets of a connection separated by one of every other; TCP, IPv4, from
            ///< clients to servers, SYN first, never ended
  flood,    ///< every packet a new connection: SYN, IPv4, to one server
  skewed,   ///< half of the packets in three connections, the others' popularity by rank (Zipf); as
            ///< `uniform` otherwise
};
/// The profile of that name, or nothing.
std::optional<Profile> profile_named(std::string_view name);
std::string_view to_string(Profile profile);

struct TrafficPlan {
  static constexpr std::uint64_t kMaxConnections = 4'000'000'000;
  static constexpr std::uint64_t kMaxSkewed = 100'000'000;  ///< each takes 4 bytes
  static constexpr std::uint64_t kMaxPackets = Capture::kMaxPackets;

  Profile profile = Profile::campus;
  /// Different five-tuples, both directions being one; exactly so many. 1 to kMaxConnections, with
  /// `skewed` to kMaxSkewed.
  std::uint64_t connections = 10'000;
  /// Exactly so many. No fewer than connections; with `flood` as many. Below about 5 a connection,
  /// campus connections are cut short.
  std::uint64_t packets = 100'000;
  /// Draws everything that is random.
  std::uint64_t seed = 1;
  /// Bytes kept of a packet, 64 to 65535.
  std::uint32_t snaplen = 128;
  /// Seconds within which connections begin (campus; the last ones end up to half of that later),
  /// or packets are spread evenly. 1 to 31,536,000.
  std::uint32_t duration_s = 60;
  /// Milliseconds that a campus connection takes, about and at most; 0: half of the duration.
  std::uint32_t longest_ms = 0;
  /// TCP is met in mid-connection: each of its packets bears an ACK and neither SYN, FIN nor RST.
  bool midstream = false;
};

/// Packets where the user gave none: as many as connections with `flood`, else ten times.
std::uint64_t usual_packets(Profile profile, std::uint64_t connections);

/// Error (usage): everything that is wrong with the plan, in one line. Takes no time.
Result<void> check(const TrafficPlan& plan);

class Generator {
 public:
  struct Packet {
    std::uint64_t timestamp_ns;
    std::uint32_t wire_length;
    std::span<const std::byte> bytes;  ///< up to the snaplen; valid until the next call
  };

  /// Errors: those of `check`. For campus this walks all connections once, a fraction of a second a
  /// million. `stop`, set from outside meanwhile, ends that: the generator then has no packets.
  static Result<Generator> create(const TrafficPlan& plan, const std::atomic<bool>* stop = nullptr);
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;
  Generator(Generator&&) noexcept;
  Generator& operator=(Generator&&) noexcept;
  ~Generator();

  /// False after the plan's last packet.
  bool next(Packet& packet);

  /// Of the file that the packets belong in.
  CaptureFormat format() const;

 private:
  struct Source;
  struct ToServers;
  struct Sweep;
  struct Skewed;
  struct Campus;

  explicit Generator(std::unique_ptr<Source> source, const TrafficPlan& plan);

  std::unique_ptr<Source> source_;
  TrafficPlan plan_;
};

/// The whole trace in memory. Errors: usage (see above), failed (no memory).
Result<Capture> generate(const TrafficPlan& plan);

}  // namespace millrace
