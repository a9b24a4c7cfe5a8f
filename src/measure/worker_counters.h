// One worker's counters of packets and connections. The worker writes them; any thread may read
// each of them at any time. While the worker is at rest, `in` is the sum over all verdicts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/counter.h"
#include "core/verdict.h"

namespace millrace {

/// The way in which a connection ended.
enum class Ending : std::uint8_t {
  timed_out,  ///< idle for its timeout, with neither a RST nor FINs of both sides
  finished,   ///< idle for its timeout after FINs of both sides, or after SCTP's SHUTDOWN ACK
  reset,      ///< idle for its timeout after a RST or ABORT
  reopened,   ///< a SYN or INIT of the same key began a new connection in its place
  /// The table was full: a connection worth more took the place, or this one moved to a worker that
  /// had no place.
  evicted,
  killed,  ///< a user or program ended it
  /// Its function could no longer serve it: say, a balancer's backend was gone; or its shard has
  /// its copies at other servers now; or another server has told it anew.
  moved,
};
inline constexpr std::size_t kEndings = 7;
inline constexpr std::array<std::string_view, kEndings> kEndingNames{
    "timeout", "finished", "reset", "reopened", "evicted", "killed", "moved"};

/// Shares of a table's capacity, in percent, at which filling is worth a warning.
inline constexpr std::size_t kWatermarks = 2;
inline constexpr std::array<unsigned, kWatermarks> kWatermarkPercent{80, 95};

struct WorkerCounts {
  Counter in;
  Counter out;
  Counter bytes_in;   ///< bytes of the packets of `in`, on the wire
  Counter bytes_out;  ///< bytes that the packets of `out` had on arrival
  std::array<Counter, kVerdicts> verdict;
  Counter opened;      ///< connections that began at this worker and got entries
  Counter taken_over;  ///< connections that another process had, and that got entries here
  std::array<Counter, kEndings> closed;
  Counter resets_ignored;  ///< RSTs out of sequence and ABORTs with a wrong tag
  /// Packets of new connections that were dropped: for lack of a place or a backend, or for another
  /// reason that is no limit.
  Counter refused;
  Counter refused_early;  ///< part of `refused`: the table had fewer connections than its capacity
  Counter over_budget;    ///< packets that got no entry because too many connections are half open
  Counter uncounted;  ///< connections not counted towards their source's limit, as no slot was free
  std::array<Counter, kWatermarks> over_watermark;  ///< how often tables filled to each watermark
  Counter collisions;  ///< reply keys that belonged to another connection
  Counter peak;        ///< most live connections at once
};

/// A counter that is not an element of an array, with its object and name in the statistics. In a
/// live run the statistics' `packets.in` and `packets.out` are these counters, corrected by what
/// happened outside of the lines (`Live::totals`).
struct CounterKind {
  std::string_view object;
  std::string_view name;
  Counter WorkerCounts::* counter;
};

inline constexpr std::array kCounterKinds{
    CounterKind{"packets", "in", &WorkerCounts::in},
    CounterKind{"packets", "out", &WorkerCounts::out},
    CounterKind{"packets", "bytes_in", &WorkerCounts::bytes_in},
    CounterKind{"packets", "bytes_out", &WorkerCounts::bytes_out},
    CounterKind{"connections", "opened", &WorkerCounts::opened},
    CounterKind{"connections", "taken_over", &WorkerCounts::taken_over},
    CounterKind{"connections", "peak", &WorkerCounts::peak},
    CounterKind{"connections", "refused", &WorkerCounts::refused},
    CounterKind{"connections", "refused_early", &WorkerCounts::refused_early},
    CounterKind{"connections", "over_budget", &WorkerCounts::over_budget},
    CounterKind{"connections", "collisions", &WorkerCounts::collisions},
    CounterKind{"connections", "resets_ignored", &WorkerCounts::resets_ignored},
    CounterKind{"limits", "uncounted", &WorkerCounts::uncounted},
};
static_assert(sizeof(WorkerCounts) ==
                  (kCounterKinds.size() + kVerdicts + kEndings + kWatermarks) * sizeof(Counter),
              "a counter is missing in the list");

struct alignas(64) WorkerCounters : WorkerCounts {
  std::uint64_t ended() const {
    std::uint64_t sum = 0;
    for (const Counter& counter : closed) sum += counter.value();
    return sum;
  }

  /// Adds another worker's counters. No worker may write this object: it holds a sum.
  void add(const WorkerCounters& other) {
    for (const CounterKind& kind : kCounterKinds)
      (this->*kind.counter).add((other.*kind.counter).value());
    const auto add_all = [](auto& to, const auto& from) {
      for (std::size_t i = 0; i < to.size(); ++i) to[i].add(from[i].value());
    };
    add_all(verdict, other.verdict);
    add_all(closed, other.closed);
    add_all(over_watermark, other.over_watermark);
  }
};

}  // namespace millrace
