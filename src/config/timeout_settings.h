// The timeouts that a user may set, by name, with the connection states that each applies to.
// docs/configuration.md explains their values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "conntrack/tracker.h"

namespace millrace {

struct TimeoutSetting {
  std::string_view name;
  std::uint32_t seconds;  ///< default of the timeout
  std::uint32_t states;   ///< states with this timeout, a bit each

  constexpr TimeoutSetting(std::string_view named, std::uint32_t default_s,
                           std::initializer_list<ConnectionState> of)
      : name(named), seconds(default_s), states(0) {
    for (const ConnectionState state : of) states |= 1U << static_cast<unsigned>(state);
  }
};

inline constexpr std::array kTimeoutSettings = [] {
  using enum ConnectionState;
  return std::array{
      TimeoutSetting{"tcp_syn_sent", 240, {none, syn_sent, syn_sent2}},
      TimeoutSetting{"tcp_syn_received", 240, {syn_received}},
      TimeoutSetting{"tcp_established", 7440, {established}},
      TimeoutSetting{"tcp_fin_wait", 240, {fin_wait, fin_wait_reply}},
      TimeoutSetting{"tcp_close_wait", 240, {close_wait, close_wait_reply}},
      TimeoutSetting{"tcp_last_ack", 30, {last_ack}},
      TimeoutSetting{"tcp_time_wait", 120, {time_wait}},
      TimeoutSetting{"tcp_close", 10, {closed}},
      TimeoutSetting{"tcp_midstream", 240, {midstream}},
      TimeoutSetting{"udp_unreplied", 120, {udp_unreplied}},
      TimeoutSetting{"udp", 120, {udp}},
      TimeoutSetting{"udp_stream", 300, {udp_stream}},
      TimeoutSetting{"sctp", 210, {sctp_unreplied, sctp}},
      TimeoutSetting{"icmp", 60, {icmp_unreplied, icmp}},
      TimeoutSetting{"other", 600, {other_unreplied, other}},
  };
}();

/// Timeouts in seconds, in the order of `kTimeoutSettings`.
struct TimeoutSeconds {
  std::array<std::uint32_t, kTimeoutSettings.size()> of;

  constexpr TimeoutSeconds() : of() {
    for (std::size_t i = 0; i < of.size(); ++i) of[i] = kTimeoutSettings[i].seconds;
  }
  Timeouts timeouts() const {
    Timeouts all;
    for (std::size_t i = 0; i < of.size(); ++i) {
      for (std::size_t state = 0; state < kConnectionStates; ++state) {
        if ((kTimeoutSettings[i].states >> state & 1) != 0) all.ms[state] = of[i] * 1000;
      }
    }
    return all;
  }
  /// Returns the longest timeout, in seconds, of the protocols other than TCP, in which any packet
  /// may be a connection's first one.
  std::uint32_t longest_without_syn() const {
    std::uint32_t longest = 0;
    for (std::size_t i = 0; i < of.size(); ++i) {
      const bool of_others = kTimeoutSettings[i].states >> kTcpStates != 0;
      if (of_others && of[i] > longest) longest = of[i];
    }
    return longest;
  }
};

}  // namespace millrace
