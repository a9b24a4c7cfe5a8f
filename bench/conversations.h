// Conversations through a line or several, a batch of packets at a time: makes the packets, and
// checks those that leave.
//
// A batch has at most one packet of a conversation, so its packets may pass in any order. Packets
// are TCP and UDP over IPv4, from 198.18.0.0/16 to one address, 198.19.0.1. A server answers to the
// addresses and ports with which a client's packets reached it, whatever functions have made of
// them; its answers must reach the client as if nobody had rewritten anything.
//
// One thread uses an object.
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

#include "bench/nat_port.h"
#include "millrace/types.h"
#include "port/port.h"
#include "traffic/conversation.h"
#include "traffic/random.h"

namespace millrace::bench {

enum class Talk : std::uint8_t {
  http,    ///< TCP connections of 8 to 16 packets to port 80, as requests of small files have them
  campus,  ///< the mix of the profile `campus` of src/traffic, without pings; of a connection the
           ///< first 1000 packets
};
std::string_view to_string(Talk talk);
std::optional<Talk> talk_named(std::string_view name);

/// The ends of clients' packets that functions change.
struct Changes {
  bool source = false;
  bool destination = false;
};

/// A packet of a batch.
struct BatchPacket {
  std::byte* data = nullptr;  ///< behind headroom
  std::uint16_t length = 0;   ///< bytes at `data`
  std::uint32_t wire_length = 0;
  std::uint32_t conversation = 0;
};

struct Batch {
  static constexpr unsigned kMost = 2048;

  Batch();
  std::vector<BatchPacket> packets;
  std::vector<std::uint32_t> from_clients;  ///< places of packets
  std::vector<std::uint32_t> from_servers;
  Tick now;

 private:
  friend class Conversations;
  static constexpr std::size_t kBytes = 128;  // that are kept of a packet
  static constexpr std::size_t kHeadroom = 128;
  std::unique_ptr<std::byte[]> memory_;
  std::byte* first_;
};

class Conversations {
 public:
  static constexpr std::uint32_t kClients = 4096;

  /// `at_once` conversations go on at any time, 1 or more. Each begins when an earlier one has
  /// ended; the first ones at random moments of the first `kRoundsToBegin` rounds.
  Conversations(Talk talk, std::uint32_t at_once, const Changes& changes, std::uint64_t seed);
  static constexpr std::uint64_t kRoundsToBegin = 16;

  /// Makes the next packets, those of one round at most. A round has a packet of each conversation,
  /// in random order.
  void next(Batch& batch);
  /// Checks the packets of the batch that left, whose places are in `left`. Errors (failed): a
  /// packet is missing, or did not leave as it must.
  Result<void> check(const Batch& batch, std::span<const std::uint32_t> left);

  std::uint64_t rounds() const { return round_; }  ///< that are over
  std::uint64_t begun() const { return begun_; }

 private:
  struct Live {
    Conversation is;
    WireEnds sent;                // of the client's packets, as the client sends them
    WireEnds leave;               // and as they leave; `source_port` is 0 until one has left
    std::uint64_t begins_in = 0;  // round
    bool ends = false;
  };

  void begin(Live& live);
  void add(Batch& batch, std::uint32_t n);
  bool is_right(const BatchPacket& packet, bool is_reply);

  FrameBuilder builder_;
  std::uint64_t seed_;
  std::uint64_t round_ = 0;
  std::uint64_t begun_ = 0;
  std::uint64_t packets_ = 0;
  std::vector<Live> all_;
  std::vector<std::uint16_t> next_port_;  // by client
  Random random_;
  Permutation order_;
  std::uint32_t in_round_ = 0;
  Talk talk_;
  Changes changes_;
};

/// A port that gives packets of a batch to a line. One thread uses it.
class BatchPort final : public Port {
 public:
  explicit BatchPort(unsigned burst) : burst_(burst) {}

  /// The line's next run has the packets at these places; the places of those that leave are
  /// appended to `left`. All must outlive the run.
  void offer(const Batch& batch, std::span<const std::uint32_t> places,
             std::vector<std::uint32_t>& left) {
    batch_ = &batch;
    places_ = places;
    left_ = &left;
  }

  LinkType link_type() const override { return LinkType::ethernet; }
  bool receive(Burst& burst) override;
  void send(const Burst& burst, std::uint64_t forward) override;

 private:
  unsigned burst_;
  const Batch* batch_ = nullptr;
  std::span<const std::uint32_t> places_;
  std::vector<std::uint32_t>* left_ = nullptr;
};

}  // namespace millrace::bench
