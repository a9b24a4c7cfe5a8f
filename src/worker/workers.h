// All workers of a run: each has a thread, a line, a function and a port of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "function/balance/balance.h"
#include "worker/line.h"

namespace millrace {

/// Made, run and asked by one thread. While it runs, other threads may read counters.
class Workers {
 public:
  static constexpr unsigned kMost = 128;

  /// Each worker's parts are made by a thread on its own processor, so that its memory is near.
  /// `line.capacity` is what all promise together. Errors: as `make_line` and `Balance::create`.
  static Result<Workers> create(unsigned count, const LineConfig& line,
                                const BalanceConfig& balance);

  unsigned count() const { return static_cast<unsigned>(all_.size()); }
  const Line& line(unsigned worker) const { return *all_[worker].line; }
  Balance& balance(unsigned worker) { return *all_[worker].balance; }
  /// Sums so far; any thread may ask. `peak` is a bound where each has tables of its own.
  WorkerCounters counters() const;
  /// At rest: all instances of tables together, and all functions.
  TableReport report_v4() const { return report(&Line::report_v4); }
  TableReport report_v6() const { return report(&Line::report_v6); }
  std::vector<ServiceStatistics> services() const;

  /// Each worker serves its port, until all ports are at their ends. Error (failed): a thread could
  /// not be started.
  Result<void> run(std::span<Port* const> ports);
  /// What the last run took a worker, from its first burst to its last.
  std::uint64_t elapsed_ns(unsigned worker) const { return all_[worker].elapsed_ns; }

 private:
  struct Worker {
    std::unique_ptr<Balance> balance;
    std::unique_ptr<Line> line;
    std::uint64_t elapsed_ns = 0;
  };

  TableReport report(TableReport (Line::*of)() const) const;
  Workers(std::vector<Worker> all, bool shared) : all_(std::move(all)), shared_(shared) {}

  std::vector<Worker> all_;
  bool shared_;
};

/// Connections that one of `workers` promises, so that together they keep the promise of `capacity`
/// although they get unequal shares: as many more as six standard deviations.
std::size_t capacity_of_one(std::size_t capacity, unsigned workers);

}  // namespace millrace
