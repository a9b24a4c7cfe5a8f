// The requests to a running dataplane, independent of the protocol: to show its state and to change
// it.
//
// Any thread may call. Calls wait for one another, in the order in which they arrived; lists,
// traces and hand-overs let other calls pass between their pieces. Packets hardly wait: each worker
// does its part of a call between two of its bursts, in bounded pieces. Only `tell_last` makes the
// workers stop receiving.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "config/config.h"
#include "control/offer.h"
#include "core/fair_mutex.h"
#include "function/event_log.h"
#include "function/kind.h"
#include "line/carried.h"
#include "live/filter.h"
#include "live/live.h"
#include "live/tracer.h"
#include "shard/level.h"
#include "worker/workers.h"

namespace millrace {

class Control {
 public:
  /// `workers` and `live` must have been made from `config`, which was read from the file `path`,
  /// and must outlive this object. `end` must end the run of the workers; it is called when another
  /// process takes over.
  Control(Workers& workers, Live& live, Config config, std::string path, SchemeNames schemes,
          std::function<void()> end)
      : workers_(&workers),
        live_(&live),
        kind_(config.function->kind()),
        config_(std::move(config)),
        path_(std::move(path)),
        schemes_(std::move(schemes)),
        end_(std::move(end)),
        moves_of_(live.owners().moves().shards()) {}

  /// Waits until the workers serve packets, for 5 s at most. False: they do not serve yet.
  bool wait_until_ready() const { return workers_->wait_until_they_serve(std::chrono::seconds(5)); }
  /// Calls `work` while no other request asks or changes anything: for statistics.
  void alone(const std::function<void()>& work);

  /// Passes the connections that match `filter` to `take` in pieces, until `take` returns false.
  /// False: `take` returned false, or the run is ending.
  bool connections(
      const ConnectionFilter& filter,
      const std::function<bool(std::span<const WorkersConnection>, const FunctionView&)>& take);
  /// Ends the connections that match `filter`, and returns their number. `tells`: also sends RSTs,
  /// as `Visit::reset` does. Refused while another process takes over.
  CommandResult<std::uint64_t> kill(const ConnectionFilter& filter, bool tells);

  /// @name The other server of a pair
  /// Refused without `[pair]`. They return what is known of both servers.
  /// @{
  CommandResult<Json> pair_status();
  /// Packets come to this server from now on, or to the other one.
  CommandResult<Json> set_active(bool is_active);
  /// The operator says that the other server's process is gone for good; refused while it is heard.
  CommandResult<Json> set_gone();
  /// @}
  /// @name The servers of a cluster
  /// Refused without `[cluster]`. docs/control.md has the JSON.
  /// @{
  CommandResult<Json> cluster_status();
  /// Takes an agent's orders, and waits until the workers follow them, for half a second at most.
  CommandResult<Json> follow(const std::string& orders);
  /// @}

  /// The right to trace. One request at a time has it, until `end` is called or the object is
  /// destroyed.
  class TraceRight {
   public:
    explicit TraceRight(std::atomic<bool>& is_taken) : is_taken_(&is_taken) {}
    ~TraceRight() { end(); }
    TraceRight(const TraceRight&) = delete;
    TraceRight& operator=(const TraceRight&) = delete;
    void end() {
      if (auto* const taken = std::exchange(is_taken_, nullptr)) taken->store(false);
    }

   private:
    std::atomic<bool>* is_taken_;
  };
  CommandResult<std::shared_ptr<TraceRight>> right_to_trace();
  /// Passes copies of packets that match `filter` to `take`, as they arrived and as they left,
  /// until `take` returns false. `take` is also called with null: once at first, and then again and
  /// again, whether or not packets come. `filter` must name no state. Returns how many copies were
  /// lost because packets came faster than `take` received them.
  CommandResult<std::uint64_t> trace(const TraceRight& right, const ConnectionFilter& filter,
                                     const std::function<bool(const TracedPacket*)>& take);
  /// Returns the names of the ports, by link.
  std::vector<std::string> ports();

  /// The treatment of a packet with a given key.
  struct Explanation {
    std::optional<unsigned> worker;
    /// The function's explanation. `why` also says the state of the connection, if there is one.
    /// For a packet that no function handles, `why` says where the packet goes; for an originator's
    /// packet to a backend, what keeps it from arriving.
    Explained is;
    std::optional<WorkersConnection> connection;
    std::shared_ptr<const FunctionView> view;  ///< the view that explained the packet
  };
  CommandResult<Explanation> explain(const AnyKey& key);
  /// Returns the function's alarms (`FunctionDeployment::alarms`). Any thread.
  std::vector<std::string> alarms();
  /// Returns the customers behind tunnels. Any thread.
  std::shared_ptr<const Customers> customers();

  struct Reloaded {
    std::vector<FunctionFacts::Count> counts;  ///< numbers of services, backends, ...
    std::size_t ended = 0;                     ///< connections that could not go on
    double took_ms = 0;  ///< time until the last worker had the new configuration
    std::vector<std::string> warnings;
  };
  /// Reads the file again. All of it takes effect; or none of it, if the file is wrong, changes a
  /// key that cannot change while millrace runs or cannot be applied, or if another process takes
  /// over, a shard moves or another reload is under way. Connections stay, except those that the
  /// function can no longer serve (`Fate`).
  CommandResult<Reloaded> reload();

  /// Returns the kind of the running function.
  const FunctionKind& kind() const { return kind_; }
  /// Runs one of the function's commands. A command that changes something is refused while another
  /// process takes over or a shard moves.
  CommandResult<Json> command(const FunctionCommand& command, Parameters given);
  /// Returns a new reader of one of the function's logs. `only_new`: the reader skips the events
  /// that are there already. The reader needs no lock, and delays no other request.
  std::unique_ptr<LogReader> log(const FunctionCommand& command, bool only_new);

  /// @name Shards
  /// @{
  struct Shard {
    unsigned worker = 0;        ///< worker that has the shard
    std::uint64_t packets = 0;  ///< packets of the shard, served so far
    std::uint64_t moves = 0;
  };
  struct Shards {
    unsigned workers = 0;
    unsigned in_use = 0;       ///< only the first `in_use` workers are meant to have shards
    std::vector<Shard> all;    ///< empty if each worker serves the packets that it receives
    bool is_levelled = false;  ///< true: millrace moves shards by itself
  };
  Shards shards();
  /// Moves a shard to that worker, and returns the milliseconds that the move took.
  CommandResult<double> move_shard(unsigned shard, unsigned to);
  /// Moves shards from busy workers to idle ones from now on, until `end_levelling`.
  void level();
  void end_levelling() { levelling_ = {}; }
  /// @}

  /// @name Another process takes over
  /// The new process makes these requests in this order: `offer`; `tell`, any number of times,
  /// while packets are still served; `tell_last`, which first makes the workers stop receiving;
  /// `let_go`. Meanwhile all other changes are refused. If the new process asks nothing for
  /// `kPatience`, or neither asks nor has read everything for `kShortPatience` once the workers
  /// have stopped, that process counts as having given up, and this process goes on as before.
  /// @{
  static constexpr std::chrono::seconds kPatience{60};
  static constexpr std::chrono::seconds kShortPatience{2};
  CommandResult<Offer> offer();
  /// Passes `take` the records of the connections that have changed since they were last sent, in
  /// pieces of bytes (carried.h). If `take` returns false, the new process has given up.
  CommandResult<void> tell(unsigned number, const TakeBytes& take);
  CommandResult<void> tell_last(unsigned number, const TakeBytes& take);
  /// Ends this process's run, since the new process is about to forward. Returns the function's
  /// last state.
  CommandResult<Json> let_go(unsigned number);
  /// Cancels the hand-over with that number, so that this process goes on. Does nothing once
  /// `let_go` has ended this process's run.
  void give_up(unsigned number);
  /// True if a new process has asked to take over, and has not given up.
  bool is_handing_over();
  /// True if the new process has received all connections: that process, not this one, then
  /// restores the interfaces' settings.
  bool is_replaced();
  /// @}
  /// Applies the configuration to the function, after the function has received another process's
  /// state. To be called before workers run. Errors: those of `Workers::prepare`.
  Result<void> resume();

 private:
  void explain_unmatched(const WayTo& way, const AnyAddress& to, Explained& out) const;
  std::string trouble_on(const WayTo& way, const AnyAddress& to) const;
  struct HandingOver {
    unsigned number = 0;
    std::vector<Carrying> carrying;  // by worker
    bool is_busy = false;            // true while connections are sent
    bool is_paused = false;
    bool is_given_up = false;  // true: the new process gave up, or was too slow
    bool has_let_go = false;
    // Time at which this process goes on alone, unless the new process has asked for more before.
    std::chrono::steady_clock::time_point until;
  };
  std::optional<Refusal> refusal_while_handing_over() const;
  CommandResult<HandingOver*> busy_with(unsigned number);
  CommandResult<void> rest(HandingOver& handing_over, bool goes_on);
  bool drain(std::chrono::steady_clock::time_point until);
  bool pause();
  void go_on_alone();
  void watch(const std::stop_token& stop);
  std::optional<Refusal> refusal_to_move(unsigned shard, unsigned to);
  /// Measures how busy workers are.
  class BusyTimes {
   public:
    BusyTimes(const Live& live, unsigned workers) : live_(&live), idle_ns_(workers) { since(); }
    std::vector<double> since();

   private:
    const Live* live_;
    std::vector<std::uint64_t> idle_ns_;  // by worker: idle time until the last call of `since`
    std::chrono::steady_clock::time_point at_;
  };
  template <class IsDone>
  bool wait_for(const IsDone& is_done, std::chrono::milliseconds most);
  std::optional<Refusal> refusal_to_change() const;
  void wait_for_interval(const std::stop_token& stop);
  unsigned use(unsigned workers);
  double taken();
  void level_once(Leveller& leveller, double taken, const std::stop_token& stop);

  Result<std::size_t> take_on(Config config);

  FairMutex mutex_;  // fair: levelling may lock it again and again for seconds
  std::atomic<bool> is_tracing_ = false;
  /// Time for which a reload or an offer waits until another reload is done, before it is refused:
  /// reading a file may take long.
  static constexpr std::chrono::seconds kReloadPatience{5};
  std::timed_mutex reloading_;
  Workers* workers_;
  Live* live_;
  const FunctionKind& kind_;
  Config config_;
  std::string path_;
  SchemeNames schemes_;
  std::function<void()> end_;
  std::optional<HandingOver> handing_over_;
  unsigned offers_ = 0;
  std::condition_variable_any changed_;  // signals changes of `handing_over_` and `config_`
  std::jthread watch_;
  std::vector<std::uint64_t> moves_of_;  // by shard
  bool queues_are_in_place_ = true;      // each device queue is at the worker that it is meant for
  std::jthread levelling_;
};

/// Returns the keys that differ between the configurations and that a running dataplane cannot
/// change.
std::vector<std::string> unchangeable(const Config& was, const Config& is);

}  // namespace millrace
