// The port of the overload benchmark: it makes the packets of clients and of their backends, and
// judges the packets that the line sends.
//
// Each worker has one port, with the clients that belong to that worker. Any thread may create the
// port. While the worker runs only that worker uses the port; results may be read afterwards.
//
// Clients are numbered in the order in which they begin. A client is *genuine* if it sends more
// than its SYN; every other client is only a SYN with a forged address.
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

/// Returns the service to which all clients connect.
ServiceSpec<AddressV4> played_service();

/// Counts of clients. Clients that become established have the lowest numbers; then follow the
/// clients that begin later (`others`), of which every tenth is genuine.
struct Crowd {
  std::uint64_t established = 0;
  std::uint64_t others = 0;

  std::uint64_t all() const { return established + others; }
  bool is_genuine(std::uint64_t number) const {
    return number < established || (number - established) % kGenuineOf == 0;
  }

  static constexpr std::uint64_t kGenuineOf = 10;
};

/// Returns for each worker the numbers of the clients that `spread` assigns to it, ascending.
std::vector<std::vector<std::uint32_t>> clients_by_worker(const Crowd& crowd,
                                                          const millrace::Spread& spread,
                                                          unsigned workers);

/// Results of one or several ports for `Act::overload`; `misdirected` and `first_refused` are of
/// both acts.
struct Judgement {
  std::uint64_t packets = 0;  ///< all packets of clients and backends
  std::uint64_t misdirected = 0;
  // `due`: packets that the established clients (or all genuine clients) and their backends have to
  // send. Packets that were not even made, because an earlier packet of their connection was lost
  // or misdirected, count, too. `good`: due packets that the line sent with the right address.
  std::uint64_t established_due = 0;
  std::uint64_t established_good = 0;
  std::uint64_t genuine_due = 0;
  std::uint64_t genuine_good = 0;
  // Clients that began in `Act::overload`.
  std::uint64_t others = 0;
  std::uint64_t without_entry = 0;  ///< clients, forged ones included, that never got an entry
  std::uint64_t clients = 0;        ///< genuine clients
  std::uint64_t served = 0;         ///< genuine clients without a lost or misdirected packet
  std::optional<std::uint64_t> first_refused;  ///< number of the first client that found no room

  /// Adds another port's results.
  void add(const Judgement& more);
};

class OverloadPort final : public Port {
 public:
  struct Pace {
    unsigned burst = 32;
    std::uint64_t packets_per_ms = 2048;
  };
  enum class Act : std::uint8_t {
    opening,   ///< only handshakes of clients that become established
    overload,  ///< packets of established clients, while the later clients begin
  };

  /// `clients` has the numbers of the worker's clients, from `clients_by_worker`; `counters` are
  /// the counters of the line that uses the port. `clock` and `counters` must outlive the port.
  OverloadPort(const CycleClock& clock, const Crowd& crowd, std::vector<std::uint32_t> clients,
               const Pace& pace, const WorkerCounters& counters);

  /// Begins an act: the line's next run is this act.
  void play(Act act) {
    act_ = act;
    sent_established_ = begun_ = packets_ = 0;
    own_ns_ = 0;
  }

  LinkType link_type() const override { return LinkType::ethernet; }
  bool receive(Burst& burst) override;
  void send(const Burst& burst, std::uint64_t forward) override;

  /// Returns the time that the port itself took in this act, to be subtracted from the line's.
  double own_ns() const { return own_ns_; }
  Judgement judgement() const;
  /// Returns how many of the port's clients with numbers below `number` ever had an entry.
  std::uint64_t entries_below(std::uint64_t number) const;

 private:
  /// The packets of a client and its backend, in this order.
  enum class Step : std::uint8_t { syn, syn_ack, ack, question, answer };
  static bool is_from_backend(Step step) { return step == Step::syn_ack || step == Step::answer; }
  // From here on `client` and `n` are a client's place in `clients_`.
  struct Due {
    std::uint64_t at;  // moment from which the packet is due
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
  std::vector<std::uint32_t> clients_;  // the clients' numbers
  std::uint64_t established_;           // number of `clients_` that become established
  Pace pace_;
  const WorkerCounters* counters_;
  std::vector<std::uint8_t> backend_;  // by client; 0: none yet
  std::vector<bool> wrong_;            // by client: a packet was lost or misdirected
  std::vector<bool> has_entry_;        // by client: has or had an entry
  Act act_ = Act::opening;
  // Packets of established clients and their backends so far, counting the packets that refused
  // clients do not send.
  std::uint64_t sent_established_ = 0;
  std::uint64_t begun_ = 0;  // clients that have begun
  std::deque<Due> due_;      // empty between two acts
  // The port's time: each packet takes a moment. If nothing is due, the moments until the next
  // packet is due are skipped.
  std::uint64_t moment_ = 0;
  std::uint64_t in_flight_ = 0;
  FrameBuilder builder_;
  std::array<std::array<FrameBytes, Burst::kMax>, kBurstsInFlight + 1> frames_;
  std::size_t frames_in_flight_ = 0;
  std::uint64_t asked_ = 0;  // packets that the line could have received, in full bursts
  double own_ns_ = 0;
  std::uint64_t packets_ = 0;
  std::uint64_t good_established_ = 0;
  std::uint64_t good_genuine_ = 0;
  std::uint64_t misdirected_ = 0;
  std::optional<std::uint64_t> first_refused_;
};

}  // namespace millrace::bench
