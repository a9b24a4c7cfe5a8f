// Generates traffic by profiles of connections, packet after packet in the order of time.
//
// One thread uses a generator. The same plan gives the same bytes on every machine. README.md says
// what the profiles contain and where their distributions come from.
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
  uniform,  ///< all connections in turn, again and again; TCP, IPv4, from clients to servers, SYN
            ///< first, never ended
  flood,    ///< every packet begins a connection: SYN, IPv4, to one server
  skewed,   ///< three connections have half of the packets, or fewer if there are not twice as many
            ///< packets as connections; the others' numbers of packets fall with their rank (Zipf);
            ///< addresses and sizes as in `uniform`
};
/// Returns the profile of that name; none if no profile has it.
std::optional<Profile> profile_named(std::string_view name);
std::string_view to_string(Profile profile);

struct TrafficPlan {
  static constexpr std::uint64_t kMaxConnections = 4'000'000'000;
  static constexpr std::uint64_t kMaxSkewed = 100'000'000;  ///< each connection needs 4 bytes
  static constexpr std::uint64_t kMaxPackets = Capture::kMaxPackets;

  Profile profile = Profile::campus;
  /// Exact number of connections; both directions of a five-tuple are one. 1 to kMaxConnections,
  /// with `skewed` to kMaxSkewed.
  std::uint64_t connections = 10'000;
  /// Exact number of packets: at least `connections`, with `flood` the same number. Below about 5 a
  /// connection, campus connections are cut short.
  std::uint64_t packets = 100'000;
  /// Seed of everything random.
  std::uint64_t seed = 1;
  /// Bytes of a packet that are kept, 64 to 65535.
  std::uint32_t snaplen = 128;
  /// Duration in seconds, 1 to 31,536,000. Campus connections begin within about that time, and the
  /// last ones end up to about half of it, or `longest_ms`, later. Other profiles spread their
  /// packets evenly over it.
  std::uint32_t duration_s = 60;
  /// Longest campus connection in milliseconds, approximately; 0: half of the duration.
  std::uint32_t longest_ms = 0;
  /// True: ACK is the only flag of each TCP packet, as if the capture began mid-connection.
  bool midstream = false;
};

/// Returns the default number of packets: `connections` with `flood`, else ten times as many.
std::uint64_t usual_packets(Profile profile, std::uint64_t connections);

/// Checks a plan, in constant time. Errors: usage (one line with everything that is wrong).
Result<void> check(const TrafficPlan& plan);

class Generator {
 public:
  struct Packet {
    std::uint64_t timestamp_ns;
    std::uint32_t wire_length;
    std::span<const std::byte> bytes;  ///< at most the snaplen; valid until the next call
  };

  /// Makes a generator. For campus this draws all connections once, a fraction of a second for each
  /// million. If another thread sets `stop` meanwhile, drawing ends early, and the generator has no
  /// packets. Errors: those of `check`.
  static Result<Generator> create(const TrafficPlan& plan, const std::atomic<bool>* stop = nullptr);
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;
  Generator(Generator&&) noexcept;
  Generator& operator=(Generator&&) noexcept;
  ~Generator();

  /// Returns the next packet in `packet`; false after the plan's last one.
  bool next(Packet& packet);

  /// Returns the format of a capture file for the packets.
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

/// Returns the whole trace in memory. Errors: those of `check`; failed (no memory).
Result<Capture> generate(const TrafficPlan& plan);

}  // namespace millrace
