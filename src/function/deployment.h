// A function at work: its instances in all workers, and what they have in common.
//
// One thread at a time calls: that which starts the run, and then whoever holds `Control`'s lock.
// `make` alone is called by several at once. The workers call their `Function`s themselves; what
// changes there while they run is done by `OnEachWorker`. Numbered, what must hold:
//
// 1. `make` is called once for each worker, before anything else but `view`.
// 2. A worker's function lives as long as the deployment.
// 3. After an error nothing has changed.
//
// All but `make` and `update` has a default, which suits a function whose workers have nothing in
// common.
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

/// Why something was not done.
struct Refusal {
  enum class Kind : std::uint8_t {
    wrong,          ///< the request
    absent,         ///< there is no such thing
    not_now,        ///< it cannot be at present
    configuration,  ///< the file is wrong, or changes what cannot change
  };
  Kind kind = Kind::wrong;
  std::string message;  ///< a line a problem
};
template <class T>
using Answer = std::expected<T, Refusal>;

/// Calls what it is given with each worker's number, on that worker's thread between two of its
/// bursts where it runs; returns when all have been called. False: some worker serves no more.
using OnEachWorker = std::function<bool(const std::function<void(unsigned)>&)>;

/// What a function says about a packet with some key.
struct Explained {
  std::optional<Side> side;  ///< of its connection that it meets; none: it concerns no function
  /// "service" and "backend", say; an empty one is not known. All keys of the kind, in its order.
  std::vector<std::pair<std::string_view, std::string>> names;
  std::optional<AnyAddress> sent_to;
  Verdict verdict = Verdict::no_service;
  std::string why;  ///< a sentence that has not ended
  /// The function says no more than that packets go on as they come: in a chain what others say
  /// stands alone.
  bool changes_nothing = false;
};

/// What holds at one moment, for any thread and as long as it likes. By default that of a function
/// that every packet concerns, and that has no names for connections.
class FunctionView {
 public:
  virtual ~FunctionView() = default;

  /// A connection: the originator's key, and the one with which its packets leave.
  struct Flow {
    const AnyKey& key;
    const AnyKey& translated;
    const std::byte* image;  ///< what `FunctionFor::write` of the function says
  };
  /// Says what becomes of a packet with this key: of a connection, or of none (null). The sentence
  /// about a connection says what it is to.
  virtual Explained explain(const AnyKey& key, const Flow* connection) const;
  /// Appends members of a JSON object, a comma before each: what the function knows of that
  /// connection.
  virtual void append_names(std::string& /*text*/, const Flow&) const {}
};

struct CommandDone;  // command_done.h

class FunctionDeployment {
 public:
  virtual ~FunctionDeployment() = default;

  /// Makes that worker's function, with memory that is near the calling thread.
  virtual Function& make(unsigned worker) = 0;

  /// Goes by other settings of the same kind from now on; what `FunctionSettings::unchangeable`
  /// names is as before. Returns for which connections the `fate` is to be asked for then. Errors
  /// say what is wrong.
  virtual Result<Review> update(std::shared_ptr<const FunctionSettings> settings,
                                const FunctionRun& run, const OnEachWorker& on_each) = 0;

  virtual std::shared_ptr<const FunctionView> view() const;
  /// Returns members of the statistics' object: sums so far, of all workers.
  virtual Json statistics() const;
  /// Returns the same for people, as lines that end the table of a run.
  virtual std::string table() const { return {}; }

  /// Does a command of the kind (`FunctionKind::commands`), by its path.
  virtual Answer<CommandDone> command(std::string_view path, Parameters given,
                                      const OnEachWorker& on_each);

  /// @name Another process takes over
  /// @{
  /// Adds what it must know before connections come: members of an object, which it gets as
  /// `FunctionRun::offered`. All functions of a chain tell into one object: their names are
  /// those that no other function uses. False: some worker serves no more.
  virtual bool tell_first(Json& /*to*/, const OnEachWorker&) const { return true; }
  /// Adds what it must know when it has all connections. It may come without: where this process
  /// dies before it is asked, for one.
  virtual void tell_last(Json& /*to*/, const OnEachWorker&) const {}
  /// The process before has ended, and said this last (null: nothing). Until then, what it served
  /// has a place here, too; after it the first `update` may take that away. Before workers run.
  virtual void take_last(const Json* /*said*/) {}
  /// @}

  /// At rest.
  virtual Result<void> check_invariants() const { return {}; }
};

}  // namespace millrace
