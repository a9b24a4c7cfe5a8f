// The question: how fast is NAT with many sessions, on one core? Measured as RFC 9693
// ("Benchmarking Methodology for Stateful NATxy Gateways") says, from memory:
//
// 1. Establishment: customers send the first packet of each session, in random order, as fast as
//    the line receives them. This also fills the tables (the RFC's preliminary phase).
// 2. Established throughput: half of the packets go each way, sessions in random order. First as
//    fast as the line receives them; then at a given rate, for the highest rate at which no packet
//    is lost at a queue of limited length (binary search, RFC 2544, 26.1).
// 3. Capacity: further sessions begin until one is refused.
// 4. Tear-down: time advances beyond all timeouts, and the line ends the sessions.
//
// Each packet that leaves is compared with what it must be; checksums in one untimed pass. The
// lower bounds, parsing alone and parsing with one touch of `race` (parse_and_touch.h), get the
// same packets.
//
// This differs from the RFC: a trial is shorter (`seconds`; the RFC has 60 s for throughput), and
// counts as lossy only if each of three trials at that rate lost packets, because a pause of the
// machine loses packets at any rate.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/nat_port.h"
#include "bench/progress.h"
#include "bench/settings.h"
#include "bench/spread.h"
#include "millrace/memory.h"
#include "millrace/types.h"

namespace millrace::bench {

struct NatCase {
  std::uint64_t connections = 5'000'000;
  std::uint64_t users = 16'384;  ///< customers; `connections` if those are fewer
  unsigned packet_bytes = 64;    ///< with the frame check sequence; 64 to 1518
  Tunnel tunnel = Tunnel::none;

  auto operator<=>(const NatCase&) const = default;
};

struct NatOptions : Settings {
  NatOptions() { repetitions = 3; }

  std::vector<NatCase> cases{{}};
  std::vector<std::string> tables{"race"};
  double seconds = 2;     ///< length of a trial at a given rate
  unsigned queue = 4096;  ///< packets that may wait
  unsigned burst = 32;

  static constexpr std::uint64_t kMostConnections = 100'000'000;
};

struct NatResult {
  NatCase of;
  std::string table;
  Spread establishment;  ///< million sessions a second
  Spread lossless;       ///< Mpps of established sessions without loss
  Spread unpaced;        ///< Mpps of established sessions, as fast as the line receives them
  /// Share of packets that is lost at 0.95 of `unpaced`; the least of three trials.
  Spread lost_at_95;
  Spread tear_down;            ///< million sessions a second
  std::uint64_t capacity = 0;  ///< sessions when the first one was refused
  std::uint64_t mappings = 0;  ///< held by the case's sessions
  double bytes_per_session = 0;
  double bytes_per_mapping = 0;  ///< growth of the process with port blocks
  Spread parse;                  ///< Mpps of established sessions: receive and parse alone
  Spread touch;                  ///< the same, and find and update one record in `race`
  Spread touch_new;              ///< Mpps of first packets: parse, and insert one key into `race`
  Pages pages = Pages::huge;     ///< the worst kind of pages that the line's IPv4 table got
};

struct NatReport {
  std::vector<NatResult> results;
  bool complete = false;  ///< false: `progress` ended the measurement
};

/// Returns the configuration with which a case is measured.
std::string nat_configuration(const NatCase& of);

/// Checks a case. Errors (usage): too many connections for its users.
Result<void> check(const NatCase& of);

/// Measures every case with every table, in turn. Errors (failed): no memory; or a packet that did
/// not leave as it must.
Result<NatReport> run_nat(const NatOptions& options, const Progress& progress);

}  // namespace millrace::bench
