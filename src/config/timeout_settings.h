// The timeouts that a user may set, by name, with the connection states and protocols that each
// applies to.
// docs/configuration.md explains their values.
#pragma once

#include <algorithm>
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
  std::uint64_t places;   ///< places in `Timeouts::ms` with this timeout, a bit each

  /// `protocol` is needed for protocols that share the states `other_unreplied` and `other`.
  constexpr TimeoutSetting(std::string_view named, std::uint32_t default_s,
                           std::initializer_list<ConnectionState> of, std::uint8_t protocol = 0)
      : name(named), seconds(default_s), places(0) {
    for (const ConnectionState state : of)
      places |= std::uint64_t{1} << Timeouts::place(state, protocol);
  }
};
static_assert(Timeouts::kCount <= 64);

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
      TimeoutSetting{"sctp_init", 60, {sctp_cookie_wait, sctp_cookie_sent, sctp_cookie_echoed}},
      TimeoutSetting{"sctp_established", 210, {sctp_established}},
      TimeoutSetting{"sctp_shutdown",
                     60,
                     {sctp_shutdown_sent, sctp_shutdown_received, sctp_shutdown_ack_sent}},
      TimeoutSetting{"sctp_closed", 10, {sctp_closed, sctp_aborted}},
      TimeoutSetting{"sctp_midstream", 60, {sctp_midstream}},
      TimeoutSetting{"icmp", 60, {icmp_unreplied, icmp}},
      TimeoutSetting{"udplite_unreplied", 120, {other_unreplied}, kProtocolUdpLite},
      TimeoutSetting{"udplite", 300, {other}, kProtocolUdpLite},
      TimeoutSetting{"dccp_unreplied", 240, {other_unreplied}, kProtocolDccp},
      TimeoutSetting{"dccp", 600, {other}, kProtocolDccp},
      TimeoutSetting{"gre_unreplied", 30, {other_unreplied}, kProtocolGre},
      TimeoutSetting{"gre", 180, {other}, kProtocolGre},
      TimeoutSetting{"esp", 600, {other_unreplied, other}, kProtocolEsp},
      TimeoutSetting{"ah", 600, {other_unreplied, other}, kProtocolAuthentication},
      TimeoutSetting{"other", 600, {other_unreplied, other}},
  };
}();

/// Timeouts in seconds, in the order of `kTimeoutSettings`.
struct TimeoutSeconds {
  std::array<std::uint32_t, kTimeoutSettings.size()> of;
  std::uint64_t given = 0;  ///< timeouts that the file gives, a bit each

  constexpr TimeoutSeconds() : of() {
    for (std::size_t i = 0; i < of.size(); ++i) of[i] = kTimeoutSettings[i].seconds;
  }
  Timeouts timeouts() const {
    Timeouts all;
    for (std::size_t i = 0; i < of.size(); ++i) {
      for (std::size_t place = 0; place < Timeouts::kCount; ++place) {
        if ((kTimeoutSettings[i].places >> place & 1) != 0) all.ms[place] = of[i] * 1000;
      }
    }
    return all;
  }
  /// Raises a timeout that the file does not give.
  void raise(std::string_view name, std::uint32_t seconds) {
    for (std::size_t i = 0; i < of.size(); ++i) {
      if (kTimeoutSettings[i].name == name && (given >> i & 1) == 0)
        of[i] = std::max(of[i], seconds);
    }
  }
  /// Returns the longest timeout, in seconds, of the protocols other than TCP, in which any packet
  /// may be a connection's first one.
  std::uint32_t longest_without_syn() const {
    std::uint32_t longest = 0;
    for (std::size_t i = 0; i < of.size(); ++i) {
      const bool of_others = kTimeoutSettings[i].places >> kTcpStates != 0;
      if (of_others && of[i] > longest) longest = of[i];
    }
    return longest;
  }
};

}  // namespace millrace
