// The contract of an ageing scheme, which finds expired connections. Each worker uses an instance
// of its own.
//
// The tracker writes `last_seen` into the record of every entry that a packet matches; a scheme
// reads it, as a deadline, through `Connections`. A scheme is called once a burst and a few times
// in the life of a connection, but not for every packet. A virtual call is therefore cheap enough,
// and the line is compiled once for all schemes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "millrace/memory.h"
#include "millrace/types.h"

namespace millrace {

/// Settings of an ageing scheme, for all workers together.
struct AgeingConfig {
  std::size_t ids = 0;             ///< every id is below this number
  std::size_t connections = 0;     ///< the largest number of live connections
  std::uint32_t interval_ms = 10;  ///< resolution of deadlines, 1 to 1000
  Pages pages = Pages::huge;
};

/// The largest number of connections checked together, so that the fetches of records overlap.
inline constexpr unsigned kMostAtOnce = 64;

/// The connections of a tracker, as its ageing scheme reads and ends them.
class Connections {
 public:
  /// Sets `at[i]` to the tick at which `ids[i]` expires if no packet comes, or to an earlier tick
  /// in the future, at which the scheme must call this function again. `kMostAtOnce` ids at most.
  virtual void deadlines(std::span<const ConnId> ids, std::span<Tick> at) const = 0;
  /// Removes the connections. `kMostAtOnce` ids at most.
  virtual void expire(std::span<const ConnId> ids) = 0;

 protected:
  ~Connections() = default;
};

/// An ageing scheme of one worker. Ids are those of originators' entries.
class Ageing {
 public:
  virtual ~Ageing() = default;
  /// Prefetches for `born`, which may follow soon: a connection is being opened.
  virtual void approach(ConnId) const {}
  /// Adds a connection that was last seen at `now`, with its first deadline.
  virtual void born(ConnId id, Tick now, Tick deadline) = 0;
  /// Brings a deadline forward. A scheme that reads all deadlines often enough ignores the call.
  virtual void sooner(ConnId, Tick /*now*/, Tick /*deadline*/) {}
  /// Takes out a connection that was not removed by `sweep`.
  virtual void gone(ConnId id) = 0;
  /// Calls `expire` for connections with a deadline at or before `now`, and takes them out without
  /// a call of `gone`. Checks at most `budget` connections. Returns true if no work is left.
  virtual bool sweep(Tick now, unsigned budget, Connections& connections) = 0;
  /// True if expired connections may stay for long. The tracker then does not find them any more,
  /// and an insertion may evict them.
  virtual bool leaves_expired() const { return false; }
  virtual std::size_t memory_bytes() const = 0;
  virtual Result<void> check_invariants() const = 0;
};

/// Time in ms from ticks, in 64 bits. It does not wrap, and stands still while ticks are before the
/// latest one.
class Elapsed {
 public:
  /// Advances to `now`. The first call sets the start.
  void advance(Tick now) {
    if (!started_) {
      started_ = true;
      now_ = now;
      ms_ = now.ms;
    }
    if (now - now_ <= 0) return;
    ms_ += now.ms - now_.ms;
    now_ = now;
  }
  bool has_started() const { return started_; }
  std::uint64_t ms() const { return ms_; }
  /// Returns the latest tick.
  Tick now() const { return now_; }

 private:
  bool started_ = false;
  Tick now_;
  std::uint64_t ms_ = 0;
};

/// Expires the connections that are past their deadlines; calls `stays(id, deadline)` for the rest.
template <class Stays>
void expire_due(std::span<const ConnId> ids, Tick now, Connections& connections, Stays&& stays) {
  std::array<Tick, kMostAtOnce> deadlines;
  connections.deadlines(ids, std::span(deadlines).first(ids.size()));
  std::array<ConnId, kMostAtOnce> due;
  unsigned count = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (deadlines[i] - now > 0) {
      stays(ids[i], deadlines[i]);
    } else {
      due[count++] = ids[i];
    }
  }
  connections.expire(std::span(due).first(count));
}

/// One instance for each worker. Workers that share tables share the ids, too; from `born` to
/// `gone` or `expire` an id belongs to one worker.
using AgeingOfWorkers = std::vector<std::unique_ptr<Ageing>>;
/// A function that makes a scheme for all workers. Errors (failed): no memory.
using MakeAgeing = Result<AgeingOfWorkers>(const AgeingConfig& config, unsigned workers);

}  // namespace millrace
