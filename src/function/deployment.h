// The contract of a deployment: a function's instances in all workers, and what they have in
// common.
//
// Threads: one thread at a time calls a deployment, first the thread that starts the run, then the
// thread that holds `Control`'s lock. Only `make` is called by several threads at once. The workers
// call their `Function`s themselves; changes to these while workers run are made by `OnEachWorker`.
//
// Invariants:
//
// 1. `make` is called once for each worker, before every other call but `view`.
// 2. A worker's function lives as long as the deployment.
// 3. After an error nothing has changed, unless some worker no longer serves: then other workers
//    may have changed, and the run is about to end.
//
// All calls but `make` and `update` have defaults, which suit a function without data common to all
// workers.
#pragma once

#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/address.h"
#include "core/parameters.h"
#include "core/verdict.h"
#include "function/function.h"
#include "function/settings.h"

namespace millrace {

/// The reason why a request was not done.
struct Refusal {
  enum class Kind : std::uint8_t {
    wrong,          ///< the request is wrong
    absent,         ///< the request names something that does not exist
    not_now,        ///< the request cannot be done at present
    configuration,  ///< the file is wrong, or changes a setting that cannot change in a run
  };
  Kind kind = Kind::wrong;
  std::string message;  ///< a line for each problem
};
template <class T>
using CommandResult = std::expected<T, Refusal>;

/// Calls the given function with each worker's number: on that worker's thread between two of its
/// bursts, or on the calling thread before workers run. Returns when all calls are done. False:
/// some worker no longer serves, and the function was not called for that worker.
using OnEachWorker = std::function<bool(const std::function<void(unsigned)>&)>;

/// A function's explanation of what becomes of a packet.
struct Explained {
  /// The side of the connection from which the packet comes; none: the function does not handle the
  /// packet.
  std::optional<Side> side;
  /// Names with values, such as "service" and "backend". Always all names of the kind, in the same
  /// order; a value that is not known is empty.
  std::vector<std::pair<std::string_view, std::string>> names;
  /// The address that the originator's packets are sent to (the next hop, if the function chooses
  /// one), if known: also for a reply.
  std::optional<AnyAddress> sent_to;
  Verdict verdict = Verdict::no_service;
  /// A sentence without its full stop; without `side`, it may be empty.
  std::string why;
  /// True: the function only says that packets are forwarded unchanged. In a chain, the
  /// explanations of other functions that handle the packet replace this one.
  bool changes_nothing = false;
  /// True: the function handles the packet, and leaves its destination as it is.
  bool keeps_destination = false;
};

/// A snapshot of a deployment. Any thread may use the snapshot, also after the deployment has
/// changed. The default members suit a function that forwards every packet unchanged, and has no
/// names for connections.
class FunctionView {
 public:
  virtual ~FunctionView() = default;

  /// A connection: the originator's key, and the key with which the originator's packets leave.
  struct Flow {
    const AnyKey& key;
    const AnyKey& translated;
    const std::byte* image;  ///< written by the function (`FunctionFor::write`)
  };
  /// Explains what becomes of a packet with this key; `connection` null: the packet has no
  /// connection. `is_rewritten`: another function of the chain would change the destination of a
  /// packet without a connection.
  virtual Explained explain(const AnyKey& key, const Flow* connection, bool is_rewritten) const;
  /// Appends what the function knows of the connection: members of a JSON object, each with a comma
  /// before it.
  virtual void append_names(std::string& /*text*/, const Flow&) const {}
};

struct CommandDone;  // command_done.h
class LogReader;     // event_log.h

class FunctionDeployment {
 public:
  virtual ~FunctionDeployment() = default;

  /// Makes that worker's function, in memory near the processor of the calling thread.
  virtual Function& make(unsigned worker) = 0;

  /// Changes to other settings of the same kind, which must not differ in what
  /// `FunctionSettings::unchangeable` names. Returns which connections are to be reviewed
  /// afterwards (`FunctionFor::fate`). Errors: a setting is wrong (usage), or some worker no longer
  /// serves (failed).
  virtual Result<Review> update(std::shared_ptr<const FunctionSettings> settings,
                                const FunctionRun& run, const OnEachWorker& on_each) = 0;

  /// False: an update back to the settings of before may end connections. One function of a chain
  /// at most is such a one; the chain updates it last.
  virtual bool can_undo_update() const { return true; }

  /// Returns the present snapshot.
  virtual std::shared_ptr<const FunctionView> view() const;
  /// Returns the function's members of the statistics' object: sums over all workers so far.
  virtual Json statistics() const;
  /// True if customers get what the function gives them, such as ports: false while another server
  /// may still have what this one gave before (copies.h).
  virtual bool may_give() const { return true; }
  /// Returns what should be looked after at present, a sentence without its full stop each. Asked
  /// once a second.
  virtual std::vector<std::string> alarms() const { return {}; }
  /// Returns the statistics as lines of text, for the end of a run's table.
  virtual std::string table() const { return {}; }

  /// Does the command of that path (`FunctionKind::commands`). Errors: the kind of refusal, with a
  /// message.
  virtual CommandResult<CommandDone> command(std::string_view path, Parameters given,
                                             const OnEachWorker& on_each);

  /// Returns a new reader of the log of that path (`FunctionKind::commands`). The reader may
  /// outlive the deployment. `only_new`: the reader skips the events that are there already.
  virtual std::unique_ptr<LogReader> log(std::string_view path, bool only_new) const;

  /// @name Another process takes over
  /// @{
  /// Adds members to an object that the new process receives before any connection, as
  /// `FunctionRun::offered`. All functions of a chain write to one object, so their members must
  /// have different names. False: some worker no longer serves.
  virtual bool tell_first(Json& /*to*/, const OnEachWorker&) const { return true; }
  /// Adds members to an object that the new process receives after all connections (`take_last`).
  /// If this process dies before that, the new process receives no such object.
  virtual void tell_last(Json& /*to*/, const OnEachWorker&) const {}
  /// Reads the object that the previous process has sent last; null: that process has ended without
  /// sending it. Until this call the deployment keeps what the previous process served, even if it
  /// is not configured here; the first `update` after the call may remove what is not configured.
  /// Called before workers run.
  virtual void take_last(const Json* /*said*/) {}
  /// @}

  /// Checks the whole deployment. To be called at rest. Errors: the first rule that is broken.
  virtual Result<void> check_invariants() const { return {}; }
};

}  // namespace millrace
