// What may be asked of a running dataplane, by whatever protocol: what it does, and to do
// otherwise.
//
// Any thread may call; calls wait for one another, packets for none of them: each worker does its
// part between two of its bursts, a bounded piece at a time.
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
  /// `workers` and `live` run with what the file of that name says, `config`, and outlive this.
  /// `end` ends them, when another process has taken over.
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

  /// Whether workers have begun to serve; waits for that, not for long.
  bool wait_until_ready() const { return workers_->wait_until_they_serve(std::chrono::seconds(5)); }
  /// Calls `work` while nobody else asks for anything: for statistics.
  void alone(const std::function<void()>& work);

  /// Shows connections in pieces, until `take` says false. False: these were not all.
  bool connections(
      const ConnectionFilter& filter,
      const std::function<bool(std::span<const WorkersConnection>, const FunctionView&)>& take);
  /// Ends the connections that `filter` takes, and returns how many. `tells`: sends a RST to both
  /// ends of TCP, as far as packets have told which number each expects.
  Answer<std::uint64_t> kill(const ConnectionFilter& filter, bool tells);

  /// The right to trace, which one at a time has, until it ends it or is gone.
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
  Answer<std::shared_ptr<TraceRight>> right_to_trace();
  /// Shows packets as they come and leave, until `take` says false; it is asked first, and now and
  /// again where there is none, with null. A filter's state does not count. How many were lost, as
  /// they came faster than they were taken.
  Answer<std::uint64_t> trace(const TraceRight& right, const ConnectionFilter& filter,
                              const std::function<bool(const TracedPacket*)>& take);
  /// Names of the ports, by link.
  std::vector<std::string> ports();

  /// What would become of a packet with that key.
  struct Explanation {
    std::optional<unsigned> worker;
    Explained is;  ///< the sentence whole
    std::optional<WorkersConnection> connection;
    std::shared_ptr<const FunctionView> view;  ///< by which this is
  };
  Answer<Explanation> explain(const AnyKey& key);

  struct Reloaded {
    std::vector<FunctionFacts::Count> counts;  ///< of what the function has
    double took_ms = 0;  ///< from the file being read to the last worker having it
    std::vector<std::string> warnings;
  };
  /// Reads the file again. All of it takes effect, or nothing where it is wrong or changes what
  /// cannot change. Connections stay where they are.
  Answer<Reloaded> reload();

  /// The function that runs.
  const FunctionKind& kind() const { return kind_; }
  /// Does one of them. Where it changes something, nothing else does meanwhile.
  Answer<Json> command(const FunctionCommand& command, Parameters given);

  /// @name Shards
  /// @{
  struct Shard {
    unsigned worker = 0;        ///< that has it
    std::uint64_t packets = 0;  ///< served so far
    std::uint64_t moves = 0;
  };
  struct Shards {
    unsigned workers = 0;
    unsigned in_use = 0;       ///< the first so many are meant to have shards
    std::vector<Shard> all;    ///< none where whoever receives a packet serves it
    bool is_levelled = false;  ///< they may move, and do so by themselves
  };
  Shards shards();
  /// Moves a shard to that worker, and returns how long that took, in milliseconds.
  Answer<double> move_shard(unsigned shard, unsigned to);
  /// From now on shards move from busy workers to idle ones, until the end.
  void level();
  void end_levelling() { levelling_ = {}; }
  /// @}

  /// @name Another process takes over
  /// In this order: `offer`; `tell` as often as it wants, while packets are served; `tell_last`,
  /// from which on none are received; `let_go`. Meanwhile nothing else may be changed. Who says
  /// nothing for `kPatience`, or once packets wait for `kShortPatience`, has given up, and all goes
  /// on as before.
  /// @{
  static constexpr std::chrono::seconds kPatience{60};
  static constexpr std::chrono::seconds kShortPatience{2};
  Answer<Offer> offer();
  /// Gives connections away as bytes, a piece at a time (carried.h): what has changed since they
  /// were last told. Where `take` says false, it has given up.
  Answer<void> tell(unsigned number, const TakeBytes& take);
  Answer<void> tell_last(unsigned number, const TakeBytes& take);
  /// The other one is about to forward: this one ends. What the function tells last.
  Answer<Json> let_go(unsigned number);
  /// The other one does not take over.
  void give_up(unsigned number);
  /// Whether another one has asked, and not given up.
  bool is_handing_over();
  /// Whether it has all, so that settings of interfaces are its to restore.
  bool is_replaced();
  /// @}
  /// The function goes by the configuration, once it has what another process had; before workers
  /// run.
  Result<void> resume();

 private:
  void explain_unmatched(const WayTo& way, const AnyAddress& to, Explained& out) const;
  std::string trouble_on(const WayTo& way, const AnyAddress& to) const;
  struct HandingOver {
    unsigned number = 0;
    std::vector<Carrying> carrying;  // by worker
    bool is_busy = false;            // telling
    bool is_paused = false;
    bool is_given_up = false;  // while it was busy
    bool has_let_go = false;
    std::chrono::steady_clock::time_point until;  // that long it is waited for
  };
  std::optional<Refusal> refusal_while_handing_over() const;
  Answer<HandingOver*> busy_with(unsigned number);
  Answer<void> rest(HandingOver& handing_over, bool goes_on);
  bool drain(std::chrono::steady_clock::time_point until);
  bool pause();
  void go_on_alone();
  void watch(const std::stop_token& stop);
  std::optional<Refusal> refusal_to_move(unsigned shard, unsigned to);
  /// How busy workers have been.
  class BusyTimes {
   public:
    BusyTimes(const Live& live, unsigned workers) : live_(&live), idle_ns_(workers) { since(); }
    std::vector<double> since();

   private:
    const Live* live_;
    std::vector<std::uint64_t> idle_ns_;  // by worker, so far
    std::chrono::steady_clock::time_point at_;
  };
  template <class IsDone>
  bool wait_for(const IsDone& is_done);
  std::optional<Refusal> refusal_to_change() const;
  unsigned use(unsigned workers);
  void level_once(Leveller& leveller, const std::stop_token& stop);

  Result<void> take_on(Config config);

  std::mutex mutex_;
  std::atomic<bool> is_tracing_ = false;
  /// A file that is read may take long: who asks meanwhile is told so.
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
  std::condition_variable_any changed_;  // `handing_over_`
  std::jthread watch_;
  std::vector<std::uint64_t> moves_of_;  // by shard
  bool queues_have_settled_ = true;      // each is with the worker that is to receive by it
  std::jthread levelling_;
};

/// What differs that a running dataplane cannot change, by key; empty where nothing does.
std::vector<std::string> unchangeable(const Config& was, const Config& is);

}  // namespace millrace
