// The oracle of lifetime_test.cc: how long each connection may live, from its packets alone.
//
// The oracle has a clock, and for each live connection the time of the last packet and what the
// packets have shown, but no table of states. The oracle judges a connection when the connection
// is removed, when a packet comes for the connection, and at the end of the run: so each connection
// is judged.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "millrace/types.h"

namespace millrace::test {

/// The phases of a connection: each has its own timeout.
enum class Phase : std::uint8_t {
  syn_sent,
  syn_received,
  established,
  half_closed,  ///< one side has sent its FIN
  last_ack,     ///< both sides have sent their FINs
  time_wait,    ///< both sides have sent their FINs, and another packet has followed
  reset,
  midstream,
  udp_unreplied,
  udp,
  udp_stream,
  icmp_unreplied,
  icmp,
};
struct PhaseTimeout {
  std::string_view name;
  std::uint32_t ms;
};
/// Timeouts in the order of `Phase`. All are different, and none is a multiple of 10 ms, the
/// interval of most of the tested schemes.
inline constexpr std::array kPhases{
    PhaseTimeout{"syn_sent", 6007},      PhaseTimeout{"syn_received", 2103},
    PhaseTimeout{"established", 9001},   PhaseTimeout{"half_closed", 2509},
    PhaseTimeout{"last_ack", 1109},      PhaseTimeout{"time_wait", 4001},
    PhaseTimeout{"reset", 1009},         PhaseTimeout{"midstream", 3301},
    PhaseTimeout{"udp_unreplied", 5003}, PhaseTimeout{"udp", 2903},
    PhaseTimeout{"udp_stream", 7001},    PhaseTimeout{"icmp_unreplied", 1901},
    PhaseTimeout{"icmp", 3701},
};
constexpr const PhaseTimeout& timeout_of(Phase phase) {
  return kPhases[static_cast<std::size_t>(phase)];
}

struct Heard {
  bool from_server;
  std::uint8_t protocol;
  std::uint8_t flags;  ///< TCP only
  bool has_data;       ///< TCP only
};

/// A connection as its packets show it.
class Life {
 public:
  explicit Life(std::uint32_t now) : began_(now), last_(now) {}

  void hear(const Heard& packet, std::uint32_t now) {
    constexpr std::uint32_t kStreamAfterMs = 2000;  // Linux's rule for UDP that goes both ways
    last_ = now;
    protocol_ = packet.protocol;
    if (protocol_ == kTcp) return hear_tcp(packet);
    stream_ = stream_ || (replied_ && now - began_ >= kStreamAfterMs);
    replied_ = replied_ || packet.from_server;
  }
  Phase phase() const {
    if (protocol_ == kTcp) return tcp_phase();
    if (protocol_ != kUdp) return replied_ ? Phase::icmp : Phase::icmp_unreplied;
    if (!replied_) return Phase::udp_unreplied;
    return stream_ ? Phase::udp_stream : Phase::udp;
  }
  std::uint32_t last() const { return last_; }
  std::uint32_t deadline() const { return last_ + timeout_of(phase()).ms; }

 private:
  static constexpr std::uint8_t kTcp = 6;
  static constexpr std::uint8_t kUdp = 17;

  void hear_tcp(const Heard& packet) {
    const bool fin = (packet.flags & 1) != 0;
    const bool syn = (packet.flags & 2) != 0;
    reset_ = reset_ || (packet.flags & 4) != 0;
    fins_acked_ = fins_acked_ || (client_fin_ && server_fin_);
    if (packet.from_server) {
      server_syn_ = server_syn_ || syn;
      server_fin_ = server_fin_ || fin;
      replied_ = replied_ || (!syn && packet.has_data);
    } else {
      syn_acked_ = syn_acked_ || server_syn_;
      client_syn_ = client_syn_ || syn;
      client_fin_ = client_fin_ || fin;
    }
  }
  Phase tcp_phase() const {
    if (reset_) return Phase::reset;
    if (client_fin_ && server_fin_) return fins_acked_ ? Phase::time_wait : Phase::last_ack;
    if (client_fin_ || server_fin_) return Phase::half_closed;
    if (!client_syn_) return replied_ ? Phase::established : Phase::midstream;
    if (!server_syn_) return Phase::syn_sent;
    return syn_acked_ ? Phase::established : Phase::syn_received;
  }

  std::uint32_t began_;
  std::uint32_t last_;
  std::uint8_t protocol_ = 0;
  bool replied_ : 1 = false;
  bool stream_ : 1 = false;
  bool client_syn_ : 1 = false;
  bool server_syn_ : 1 = false;
  bool syn_acked_ : 1 = false;
  bool client_fin_ : 1 = false;
  bool server_fin_ : 1 = false;
  bool fins_acked_ : 1 = false;
  bool reset_ : 1 = false;
};

/// A client's host and port: no two connections of the generator share both
/// (src/traffic/README.md).
using Client = std::uint32_t;

class Oracle {
 public:
  /// `slack_ms`: how long after its timeout a connection may be kept; none: no connection is
  /// removed. `meets_expired`: true if a packet that comes after the timeout still finds its
  /// connection, as long as no sweep has removed the connection, and the connection then goes on;
  /// false if such a packet finds no connection.
  Oracle(std::optional<std::uint32_t> slack_ms, bool meets_expired)
      : slack_ms_(slack_ms), meets_expired_(meets_expired) {}

  /// Notes a removal. The next call of `at` judges it, since a line reports removals before it
  /// reports the present time.
  void removed(Client client) { removed_now_.push_back(client); }
  void at(Tick now) {
    now_ = now.ms;
    for (const Client client : removed_now_) judge_removal(client);
    removed_now_.clear();
  }
  void begins(Client client) {
    ++begun;
    const auto [at, is_new] = live_.try_emplace(client, now_);
    if (!is_new) fault(client, "begins, although it lives", &at->second);
    at->second = Life(now_);
  }
  void passes(Client client, const Heard& packet, bool met) {
    const auto at = live_.find(client);
    Life* life = at == live_.end() ? nullptr : &at->second;
    const bool late = life != nullptr && lateness_ms(*life) >= 0;
    if (met != (life != nullptr && (!late || meets_expired_)))
      fault(client,
            met ? "was found by a packet, although it has ended" : "was not found by its packet",
            life);
    if (!met || life == nullptr) return;
    kept_by_late_packets += late;
    judge_slack(client, *life);
    life->hear(packet, now_);
  }
  /// Judges the connections that are still live at the end.
  void ends() {
    for (const auto& [client, life] : live_) judge_slack(client, life);
  }
  void fault(Client client, std::string_view what, const Life* life = nullptr) {
    constexpr std::uint64_t kShown = 10;
    if (++faults > kShown) return;
    ADD_FAILURE() << "at " << now_ << " ms: the connection of client " << (client >> 16)
                  << ", port " << (client & 0xffff) << ", " << what << "; " << told(life);
  }
  std::size_t live() const { return live_.size(); }
  std::uint32_t now_ms() const { return now_; }

  std::uint64_t begun = 0;
  std::uint64_t removals = 0;
  std::array<std::uint64_t, kPhases.size()> removals_in{};  ///< indexed by phase
  std::uint64_t kept_by_late_packets = 0;  ///< packets that found an expired connection
  std::uint64_t faults = 0;
  // The least and the most time from a connection's timeout to its removal.
  std::int64_t earliest_ms = std::numeric_limits<std::int64_t>::max();
  std::int64_t latest_ms = std::numeric_limits<std::int64_t>::min();

 private:
  /// Returns the time since the connection's timeout; negative before the timeout, and always if
  /// the ageing scheme removes no connection.
  std::int64_t lateness_ms(const Life& life) const {
    if (!slack_ms_) return std::numeric_limits<std::int64_t>::min();
    return std::int64_t{now_} - life.deadline();
  }
  void judge_slack(Client client, const Life& life) {
    if (slack_ms_ && lateness_ms(life) > *slack_ms_) fault(client, "was kept too long", &life);
  }
  void judge_removal(Client client) {
    ++removals;
    const auto at = live_.find(client);
    if (at == live_.end()) return fault(client, "was removed, although it does not live");
    const Life& life = at->second;
    const std::int64_t lateness = lateness_ms(life);
    if (lateness < 0) fault(client, "was removed too early", &life);
    judge_slack(client, life);
    earliest_ms = std::min(earliest_ms, lateness);
    latest_ms = std::max(latest_ms, lateness);
    ++removals_in[static_cast<std::size_t>(life.phase())];
    live_.erase(at);
  }
  static std::string told(const Life* life) {
    if (life == nullptr) return "the oracle knows no such connection";
    const PhaseTimeout& timeout = timeout_of(life->phase());
    return "its last packet came at " + std::to_string(life->last()) + " ms, its timeout (" +
           std::string(timeout.name) + ", " + std::to_string(timeout.ms) + " ms) is at " +
           std::to_string(life->deadline()) + " ms";
  }

  std::optional<std::uint32_t> slack_ms_;
  bool meets_expired_;
  std::uint32_t now_ = 0;
  std::unordered_map<Client, Life> live_;
  std::vector<Client> removed_now_;
};

}  // namespace millrace::test
