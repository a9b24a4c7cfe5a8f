// Who plays in the bench of overload: a port that makes the packets of clients and of their
// backends, and judges what comes out.
//
// Each worker has one, with the clients that belong to it. It is made by any thread, belongs to its
// worker while it runs, and may be asked at rest.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "bench/clock.h"
#include "function/balance/balance.h"
#include "measure/worker_counters.h"
#include "port/port.h"
#include "shard/spread.h"
#include "traffic/frame.h"

namespace millrace::bench {

/// The service that all are clients of.
ServiceSpec<AddressV4> played_service();

/// Everybody, by number in the order in which they begin: those that become established, and behind
/// them others, of whom every tenth is a client that goes on and the rest are nobody.
struct Crowd {
  std::uint64_t established = 0;
  std::uint64_t others = 0;

  std::uint64_t all() const { return established + others; }
  bool is_genuine(std::uint64_t number) const {
    return number < established || (number - established) % kGenuineOf == 0;
  }

  static constexpr std::uint64_t kGenuineOf = 10;
};

/// Their numbers, ascending, by the worker that each belongs to where connections are spread so.
std::vector<std::vector<std::uint32_t>> clients_by_worker(const Crowd& crowd,
                                                          const millrace::Spread& spread,
                                                          unsigned workers);

/// What came of the packets of some ports, in the second act but for `misdirected`.
struct Judgement {
  std::uint64_t packets = 0;  ///< of everybody
  std::uint64_t misdirected = 0;
  // Packets that established connections, and all that are genuine, have to send: also those that
  // were not sent, because their clients had not got so far. And how many came out right.
  std::uint64_t established_due = 0;
  std::uint64_t established_good = 0;
  std::uint64_t genuine_due = 0;
  std::uint64_t genuine_good = 0;
  // Of those that began.
  std::uint64_t others = 0;
  std::uint64_t without_entry = 0;  ///< never got one
  std::uint64_t clients = 0;
  std::uint64_t served = 0;                    ///< clients for whom nothing went wrong
  std::optional<std::uint64_t> first_refused;  ///< number of the first who found no place

  void add(const Judgement& more);
};

class OverloadPort final : public Port {
 public:
  struct Pace {
    unsigned burst = 32;
    std::uint64_t packets_per_ms = 2048;
  };
  enum class Act : std::uint8_t {
    opening,   ///< handshakes of those that become established, and nothing else
    overload,  ///< their packets, while others begin
  };

  /// `clients` are its own, as `clients_by_worker` has them; `counters` those of the line that runs
  /// with it.
  OverloadPort(const CycleClock& clock, const Crowd& crowd, std::vector<std::uint32_t> clients,
               const Pace& pace, const WorkerCounters& counters);

  void play(Act act) {
    act_ = act;
    sent_established_ = begun_ = packets_ = 0;
    own_ns_ = 0;
  }

  LinkType link_type() const override { return LinkType::ethernet; }
  bool receive(Burst& burst) override;
  void send(const Burst& burst, std::uint64_t forward) override;

  /// What this act took that is none of the line's time.
  double own_ns() const { return own_ns_; }
  Judgement judgement() const;
  /// Of its clients below that number, those that ever had an entry.
  std::uint64_t entries_below(std::uint64_t number) const;

 private:
  /// What a client and its backend send, in this order.
  enum class Step : std::uint8_t { syn, syn_ack, ack, question, answer };
  static bool is_from_backend(Step step) { return step == Step::syn_ack || step == Step::answer; }
  // Clients are places in `clients_` from here on.
  struct Due {
    std::uint64_t at;  // moment
    std::uint64_t client;
    Step step;
  };
  using FrameBytes = std::array<std::byte, 64>;

  bool is_genuine(std::uint64_t n) const { return crowd_.is_genuine(clients_[n]); }
  bool next(Burst& burst);
  void add(Burst& burst, std::uint64_t n, Step step);
  void judge(const Burst& burst, unsigned i, bool forwarded);
  std::optional<std::uint64_t> first_without_entry(const Burst& burst) const;

  const CycleClock* clock_;
  Crowd crowd_;
  std::vector<std::uint32_t> clients_;  // their numbers
  std::uint64_t established_;           // of them
  Pace pace_;
  const WorkerCounters* counters_;
  std::vector<std::uint8_t> backend_;  // of a client, 0: none yet
  std::vector<bool> wrong_;
  std::vector<bool> has_entry_;  // or had one
  Act act_ = Act::opening;
  std::uint64_t sent_established_ = 0;  // packets, and those that were left out
  std::uint64_t begun_ = 0;             // clients
  std::deque<Due> due_;                 // empty between two acts
  std::uint64_t moment_ = 0;            // packets, and those that time passed instead of
  std::uint64_t in_flight_ = 0;
  FrameBuilder builder_;
  std::array<std::array<FrameBytes, Burst::kMax>, kBurstsInFlight + 1> frames_;
  std::size_t frames_in_flight_ = 0;
  std::uint64_t asked_ = 0;  // for packets
  double own_ns_ = 0;
  std::uint64_t packets_ = 0;
  std::uint64_t good_established_ = 0;
  std::uint64_t good_genuine_ = 0;
  std::uint64_t misdirected_ = 0;
  std::optional<std::uint64_t> first_refused_;
};

}  // namespace millrace::bench
