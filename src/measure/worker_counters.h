// What one worker counts about packets and connections.
//
// At rest, in = sum over all verdicts, and each verdict's packets were either sent or dropped.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/counter.h"
#include "core/verdict.h"

namespace millrace {

/// How a connection ended.
enum class Ending : std::uint8_t {
  timed_out,  ///< idle too long
  finished,   ///< both sides had sent their FINs
  reset,      ///< a RST had come
  reopened,   ///< its ends began another one
  evicted,    ///< the table was full, and it the one to be missed least
  killed,     ///< somebody asked for it
  moved,      ///< its backend was gone
};
inline constexpr std::size_t kEndings = 7;
inline constexpr std::array<std::string_view, kEndings> kEndingNames{
    "timeout", "finished", "reset", "reopened", "evicted", "killed", "moved"};

/// A table that fills to so much of its capacity is worth a warning.
inline constexpr std::size_t kWatermarks = 2;
inline constexpr std::array<unsigned, kWatermarks> kWatermarkPercent{80, 95};

struct WorkerCounts {
  Counter in;
  Counter out;
  Counter bytes_in;   ///< of those, as they were on the wire
  Counter bytes_out;  ///< of those that were sent on, as they came
  std::array<Counter, kVerdicts> verdict;
  Counter opened;      ///< connections that got their entries
  Counter taken_over;  ///< that another process had opened
  std::array<Counter, kEndings> closed;
  Counter resets_ignored;  ///< RSTs out of sequence, which closed nothing
  Counter refused;         ///< attempts to open a connection that got no entry; each packet is one
  Counter refused_early;   ///< of them, although fewer than its capacity were live
  Counter over_budget;     ///< and those that got none because too many are half open
  Counter uncounted;       ///< connections that no limit of their source counts, for want of a slot
  std::array<Counter, kWatermarks> over_watermark;  ///< how often tables filled to each
  Counter collisions;  ///< reply keys that belonged to another connection
  Counter peak;        ///< most connections live at once
};

/// A counter that is no part of an array: in which object of the statistics it stands, under which
/// name. To those of `packets` a live run adds what its host did, so their values may differ there.
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

  /// Adds another worker's.
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
