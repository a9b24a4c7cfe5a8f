// Which backend gets a new connection.
//
// A scheduler serves one service of one worker, and is called once a new connection, not once a
// packet. To add one: a header in scheduler/, and a line in the list of scheduler.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/counter.h"
#include "function/balance/maglev_tables.h"

namespace millrace {

/// How much a backend has to do, by the count of one worker or of all.
struct Activity {
  /// Connections that something has proved, and that the two sides have not ended.
  Counter active;
  /// Connections that something has proved, so far.
  Counter proved;
};

/// A backend as schedulers see it. Its place in the list is its name here.
struct Candidate {
  std::uint32_t weight = 1;
  const Activity* activity = nullptr;
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;
  /// The place of the backend for a new connection whose five-tuple hashes to `hash` under the
  /// configured key. A backend of weight 0 is never picked; at least one has more.
  virtual std::uint16_t pick(Hash hash) = 0;
};

/// The inputs of a scheduler. `candidates` and `tables` outlive it.
struct Pool {
  std::span<const Candidate> candidates;
  std::shared_ptr<MaglevTable> maglev;  ///< of the candidates
  MaglevTables& tables;
};

struct SchedulerKind {
  std::string_view name;
  std::string_view what;  ///< in one line, for `millrace schemes`
  std::unique_ptr<Scheduler> (*create)(const Pool& pool);
};

std::span<const SchedulerKind> schedulers();
/// The one of that name, or null.
const SchedulerKind* scheduler_named(std::string_view name);

}  // namespace millrace
