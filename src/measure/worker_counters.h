// What one worker counts about packets and connections.
//
// At rest, in = sum over all verdicts, and each verdict's packets were either sent or dropped.
#pragma once

#include <array>

#include "core/counter.h"
#include "core/verdict.h"

namespace millrace {

struct alignas(64) WorkerCounters {
  Counter in;
  Counter out;
  std::array<Counter, kVerdicts> verdict;
  Counter opened;      ///< connections that got their entries
  Counter timed_out;   ///< connections that were idle too long
  Counter refused;     ///< attempts to open a connection that got no entry; each packet is one
  Counter collisions;  ///< reply keys that belonged to another connection
  Counter peak;        ///< most connections live at once
};

}  // namespace millrace
