// The contract of a scheduler: chooses the backend of a new connection.
//
// A scheduler belongs to one service of one worker. The worker's thread calls it for new
// connections, except those for which `BalanceFor` uses Maglev (`by_maglev`) or tries another
// backend after a collision (`next_choice`). To add a scheduler, write a header in scheduler/, and
// add a line to the list in scheduler.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/counter.h"
#include "function/balance/maglev_tables.h"

namespace millrace {

/// A backend's connections, counted by one worker or by all.
struct Activity {
  /// Connections that are proved, and that the two sides have not ended.
  Counter active;
  /// Connections proved so far.
  Counter proved;
};

/// A backend as schedulers see it. A scheduler names a backend by its place in `Pool::candidates`.
struct Candidate {
  std::uint32_t weight = 1;
  const Activity* activity = nullptr;
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;
  /// Returns the place of the backend for a new connection. `hash` is that of the five-tuple under
  /// the configured key. A backend of weight 0 is never picked; at least one backend has a weight
  /// above 0.
  virtual std::uint16_t pick(Hash hash) = 0;
};

/// The inputs of a scheduler. `candidates` and `tables` must outlive the scheduler.
struct Pool {
  std::span<const Candidate> candidates;
  std::shared_ptr<MaglevTable> maglev;  ///< the table of the candidates
  MaglevTables& tables;
};

struct SchedulerKind {
  std::string_view name;
  std::string_view what;  ///< description in one line, for `millrace schemes`
  std::unique_ptr<Scheduler> (*create)(const Pool& pool);
};

std::span<const SchedulerKind> schedulers();
/// Returns the kind of that name, or null.
const SchedulerKind* scheduler_named(std::string_view name);

}  // namespace millrace
