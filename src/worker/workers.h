// All workers of a run: each has a thread, a line, a function and a port of its own.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "function/kind.h"
#include "line/line.h"
#include "shard/indirection.h"

namespace millrace {

struct WorkersConnection {
  unsigned worker = 0;  ///< that opened it
  ListedConnection connection;
};

/// Made, run and asked by one thread. While it runs, other threads may read counters.
class Workers {
 public:
  /// As many as the smallest indirection table has entries.
  static constexpr unsigned kMost = Indirection::kLeast;
  /// Where shards move, no worker is given more than so many times its share of the connections.
  static constexpr unsigned kMostShares = 2;

  /// `config.capacity` is what all promise together, where connections are spread by `entries` of
  /// an indirection table. Where shards move, each worker has room for `kMostShares`. Where tables
  /// are not shared, several workers' parts are made each on its own processor, so that their
  /// memory is near. Limits hold for all together. Of `run` counts what this does not know itself.
  /// Errors: as `make_line` and `FunctionKind::deploy`, or no memory was left.
  static Result<Workers> create(unsigned count, const LineConfig& config,
                                std::shared_ptr<const FunctionSettings> function,
                                FunctionRun run = {}, unsigned entries = Indirection::kMost);

  unsigned count() const { return static_cast<unsigned>(all_.size()); }
  const Line& line(unsigned worker) const { return *all_[worker].line; }
  Line& line(unsigned worker) { return *all_[worker].line; }
  /// The functions steer alike. At rest, or as `ask`.
  const Steering& steering() const { return *all_.front().function; }
  /// Sums so far; any thread may ask. `peak` is a bound.
  WorkerCounters counters() const;
  /// At rest, or as `ask`: all instances of tables together, and all functions.
  TableReport report_v4() const { return report(&Line::report_v4, capacity_); }
  TableReport report_v6() const { return report(&Line::report_v6, capacity_v6_); }
  /// Where sources have a limit: what counts them; else null.
  SourceCounts* sources() const { return sources_.get(); }
  /// What all workers' functions have in common.
  const FunctionDeployment& function() const { return *deployment_; }
  FunctionDeployment& function() { return *deployment_; }
  /// At rest.
  void list(const std::function<void(const WorkersConnection&)>& each) const;

  /// @name While they run: from one other thread at a time
  /// @{
  /// Does it on that worker's thread, between two of its bursts. False: it does not run, not yet or
  /// no more.
  bool ask(unsigned worker, const Mailbox::Task& task) const;
  /// False: some have not begun by then.
  bool wait_until_they_serve(std::chrono::milliseconds most) const;
  /// The same on each that runs, in no order, given which one it is. False: some do not run.
  bool ask_all(const std::function<void(unsigned)>& task);
  /// Gives the function other settings. Connections stay where they are, except that the function
  /// decides about those that it can serve no more (`Fate`). Errors: as
  /// `FunctionDeployment::update`.
  Result<void> update(std::shared_ptr<const FunctionSettings> settings, const FunctionRun& run);
  /// Does the same before they run. Nobody is sent a RST.
  Result<void> prepare(std::shared_ptr<const FunctionSettings> settings, const FunctionRun& run);
  /// Does a command of the function, by its path.
  Answer<Json> command(std::string_view path, Parameters given);
  /// As `ask_all`, for a function.
  OnEachWorker on_each() {
    return [this](const auto& step) { return ask_all(step); };
  }
  bool is_shared() const { return shared_; }
  /// @}

  /// Each worker serves its port, the n-th of `ports`, until all are at their ends. Errors
  /// (failed): a thread could not be started, or no memory was left.
  Result<void> run(std::span<Port* const> ports);
  /// Serves a port with that worker on the calling thread, for a caller that starts threads itself.
  /// Throws std::bad_alloc.
  void serve(unsigned worker, Port& port);

  struct Time {
    std::uint64_t elapsed_ns = 0;
    std::uint64_t waited_ns = 0;  ///< of that, for other threads
  };
  /// What the last run took a worker, from its first burst to its last; while it runs, so far (as
  /// `ask`).
  Time time(unsigned worker) const;

 private:
  /// Of the thread that starts it.
  struct Timer {
    std::chrono::steady_clock::time_point start;
    std::uint64_t waited_before = 0;
    Time time;

    void begin();
    void end() { time = so_far(); }
    Time so_far() const;
  };
  struct Worker {
    Function* function = nullptr;
    std::unique_ptr<Line> line;
    Timer timer;
  };

  /// Asks the function about all connections of all workers. `do_it(n, task)` does a task for that
  /// worker; false: it serves no more, and is passed over.
  template <class Do>
  void review(Do&& do_it);
  TableReport report(TableReport (Line::*of)() const, std::size_t capacity) const;
  void review_while_serving();
  Workers(std::unique_ptr<FunctionDeployment> deployment, std::vector<Worker> all,
          const LineConfig& line, bool shared)
      : deployment_(std::move(deployment)),
        all_(std::move(all)),
        capacity_(line.capacity),
        capacity_v6_(line.capacity_v6),
        sources_(line.sources),
        shared_(shared) {}

  std::unique_ptr<FunctionDeployment> deployment_;  // of `all_`
  std::vector<Worker> all_;
  std::size_t capacity_;  // that all promise together
  std::size_t capacity_v6_;
  std::shared_ptr<SourceCounts> sources_;
  bool shared_;
};

/// Connections that one of `workers` promises, so that together they keep the promise of `capacity`
/// although they get unequal shares: the largest share of the `entries`, and six standard
/// deviations more.
std::size_t capacity_of_one(std::size_t capacity, unsigned workers, unsigned entries);

}  // namespace millrace
