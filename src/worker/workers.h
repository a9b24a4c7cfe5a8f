// All workers of a run: each has a thread, a line, a function and, while it runs, a port of its
// own.
//
// Which thread may call what:
//
// - `create`, `prepare`, `list`, `run`: the thread that owns the object. `run` returns when all
//   workers have ended. A caller with threads of its own calls `serve` on each instead.
// - `counters`, `count`, `sources`, `is_shared`: any thread, at any time.
// - The other functions under *While they run*, `time` and the reports: one thread at a time,
//   whether `run` is under way or not. Those that ask workers do so in the mailboxes, and wait
//   until the workers have done the tasks.
//
// Invariants:
//
// 1. Each worker is served by one thread at a time, and has one task in its mailbox at a time.
// 2. A task runs on its worker's thread between two bursts. That worker serves no packet meanwhile,
//    and with shared tables the others cannot reuse ids: a task must be short.
// 3. The deployment outlives the functions and lines that it has made.
// 4. After an error of `update` or `command` the function is as before, unless some worker no
//    longer serves (function/deployment.h).
//
// Errors: `create`, `update`, `prepare`, `command` and `run` return errors. `ask` and `ask_all`
// return false for workers that do not serve. `serve` throws std::bad_alloc.
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
  unsigned worker = 0;  ///< the worker that lists the connection
  ListedConnection connection;
};

class Workers {
 public:
  /// The most workers: the smallest indirection table has an entry for each.
  static constexpr unsigned kMost = Indirection::kLeast;
  /// Multiple of `capacity_of_one` for which each worker has room where shards move, but at most
  /// for the whole capacity.
  static constexpr unsigned kMostShares = 2;

  /// Makes `count` workers, 1 to `kMost`. `config.capacity` is the capacity of all together, and
  /// limits hold for all together. `entries` is the size of the indirection table that spreads the
  /// connections. Where several workers do not share tables, each worker's tables are made on the
  /// processor that the worker will run on, so that their memory is near. `run.workers` and
  /// `run.shares_tables` are set here. Errors: as `make_lines` and `FunctionKind::deploy`; a thread
  /// could not be started, or no memory was left (failed).
  static Result<Workers> create(unsigned count, const LineConfig& config,
                                std::shared_ptr<const FunctionSettings> function,
                                FunctionRun run = {}, unsigned entries = Indirection::kMost);

  unsigned count() const { return static_cast<unsigned>(all_.size()); }
  const Line& line(unsigned worker) const { return *all_[worker].line; }
  Line& line(unsigned worker) { return *all_[worker].line; }
  /// Returns the steering of the first worker's function; all functions steer alike. At rest, or in
  /// a task on the first worker.
  const Steering& steering() const { return *all_.front().function; }
  /// Returns the sums over all workers so far. `peak` is an upper bound, as workers need not have
  /// their peaks at one time.
  WorkerCounters counters() const;
  /// Returns the sums over all workers' tables of a family. Shared tables count once.
  TableReport report_v4() const { return report(&Line::report_v4, capacity_); }
  TableReport report_v6() const { return report(&Line::report_v6, capacity_v6_); }
  /// Returns the sums over all workers' fragments. Any thread.
  FragmentReport report_fragments() const;
  /// Returns the counts of sources; null if sources have no limit.
  SourceCounts* sources() const { return sources_.get(); }
  /// Returns the deployment of the function in all workers. deployment.h says which threads may use
  /// it.
  const FunctionDeployment& function() const { return *deployment_; }
  FunctionDeployment& function() { return *deployment_; }
  /// Calls `each` for every live connection. At rest.
  void list(const std::function<void(const WorkersConnection&)>& each) const;

  /// @name While they run
  /// @{
  /// Does the task on that worker's thread between two of its bursts, and waits for it. False: the
  /// worker does not serve yet or any more, and the task is not done.
  bool ask(unsigned worker, const Mailbox::Task& task) const;
  /// Waits until every worker has begun to serve. False: some have not within that time.
  bool wait_until_they_serve(std::chrono::milliseconds most) const;
  /// Calls `task(n)` on the thread of each worker n that serves, as `ask` does, at the same time or
  /// in any order. False: some workers do not serve.
  bool ask_all(const std::function<void(unsigned)>& task);
  /// Changes the function to other settings of the same kind. Connections stay where they are,
  /// except those that the function can no longer serve (`Fate`): returns how many end. Errors: as
  /// `FunctionDeployment::update`.
  Result<std::size_t> update(std::shared_ptr<const FunctionSettings> settings,
                             const FunctionRun& run);
  /// Does what `update` does, before workers run. No RST is sent for connections that end. Errors:
  /// as `update`.
  Result<void> prepare(std::shared_ptr<const FunctionSettings> settings, const FunctionRun& run);
  /// Does the function's command of that path. If connections are reviewed, adds to the result how
  /// many end, as `ended`. Errors: as `FunctionDeployment::command`.
  CommandResult<Json> command(std::string_view path, Parameters given);
  /// Returns `ask_all` as an argument for functions of `FunctionDeployment`.
  OnEachWorker on_each() {
    return [this](const auto& step) { return ask_all(step); };
  }
  /// True if all workers use the same tables.
  bool is_shared() const { return shared_; }
  /// @}

  /// Serves the n-th of `ports` with worker n, each on a thread of its own (threads.h), until all
  /// ports are at their ends. `ports` has `count()` elements. Errors (failed): a thread could not
  /// be started, or no memory was left.
  Result<void> run(std::span<Port* const> ports);
  /// Serves a port with that worker on the calling thread, for a caller that starts threads itself.
  /// Throws std::bad_alloc.
  void serve(unsigned worker, Port& port);

  struct Time {
    std::uint64_t elapsed_ns = 0;
    std::uint64_t waited_ns = 0;  ///< part of `elapsed_ns` that the worker waited for other threads
  };
  /// Returns the time that a worker's last run took; while the worker serves, the time so far.
  Time time(unsigned worker) const;

 private:
  /// Measures a run; used by the worker's thread.
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

  /// Reviews all connections of all workers (`Line::review`), and returns how many end.
  /// `do_it(n, task)` does a task for
  /// worker n. `do_it` returns false for a worker that no longer serves; the connections of that
  /// worker are left out.
  template <class Do>
  std::size_t review(Do&& do_it);
  TableReport report(TableReport (Line::*of)() const, std::size_t capacity) const;
  std::size_t review_while_serving();
  Workers(std::unique_ptr<FunctionDeployment> deployment, std::vector<Worker> all,
          const LineConfig& line, bool shared)
      : deployment_(std::move(deployment)),
        all_(std::move(all)),
        capacity_(line.capacity),
        capacity_v6_(line.capacity_v6),
        sources_(line.sources),
        shared_(shared) {}

  std::unique_ptr<FunctionDeployment> deployment_;  // owns the functions of `all_`
  std::vector<Worker> all_;
  std::size_t capacity_;  // capacity of all workers together
  std::size_t capacity_v6_;
  std::shared_ptr<SourceCounts> sources_;
  bool shared_;
};

/// Returns the capacity that each of `workers` needs to hold `capacity` connections together,
/// although their shares are unequal: the mean number of connections of the worker that has most of
/// the `entries`, plus six standard deviations; at most `capacity`.
std::size_t capacity_of_one(std::size_t capacity, unsigned workers, unsigned entries);

}  // namespace millrace
