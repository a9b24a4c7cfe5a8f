// The contract of an ageing scheme: how idle connections are found. Each worker uses an instance of
// its own.
//
// The tracker writes `last_seen` into the record of every entry that a packet meets; a scheme reads
// it, through `Connections`, when it wants to know whether a connection is still in use. It is
// called once a burst and once or twice a connection, never for a packet: so a line does not know
// which scheme it has, and is compiled once for all.
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

struct AgeingConfig {
  std::size_t ids = 0;             ///< ids are below this
  std::size_t connections = 0;     ///< there are no more at a time
  std::uint32_t interval_ms = 10;  ///< how finely deadlines are told apart, 1 to 1000
  Pages pages = Pages::huge;
};

/// Connections that are looked at together, so that memory brings their records together.
inline constexpr unsigned kLookMost = 64;

/// What a scheme may ask about connections, and how it ends them.
class Connections {
 public:
  /// When each ends if no packet comes. `kLookMost` ids at most.
  virtual void deadlines(std::span<const ConnId> ids, std::span<Tick> at) const = 0;
  /// Removes them.
  virtual void expire(std::span<const ConnId> ids) = 0;

 protected:
  ~Connections() = default;
};

class Ageing {
 public:
  virtual ~Ageing() = default;
  /// A connection is being opened: `born` may follow soon.
  virtual void approach(ConnId) const {}
  /// A connection was opened now; its first deadline.
  virtual void born(ConnId id, Tick now, Tick deadline) = 0;
  /// Its deadline has come nearer. What expires early for other reasons, the scheme finds itself.
  virtual void sooner(ConnId, Tick /*now*/, Tick /*deadline*/) {}
  /// It was removed by someone else than `sweep`.
  virtual void gone(ConnId id) = 0;
  /// Lets connections expire whose deadline is at or before now, without a call of `gone`. Looks at
  /// `budget` connections at most. True when nothing is left to do at that time.
  virtual bool sweep(Tick now, unsigned budget, Connections& connections) = 0;
  /// Whether what has expired may stay for long. Then a packet that meets it begins a connection
  /// anew, and an insertion that finds no place takes its.
  virtual bool leaves_expired() const { return false; }
  virtual std::size_t memory_bytes() const = 0;
  virtual Result<void> check_invariants() const = 0;
};

/// Time that ticks tell: it does not wrap, and stands still where they go back.
class Elapsed {
 public:
  /// The first tick is where it starts.
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
  /// The latest tick.
  Tick now() const { return now_; }

 private:
  bool started_ = false;
  Tick now_;
  std::uint64_t ms_ = 0;
};

/// Lets those expire whose deadlines have come; `stays(id, deadline)` is told the others.
template <class Stays>
void expire_due(std::span<const ConnId> ids, Tick now, Connections& connections, Stays&& stays) {
  std::array<Tick, kLookMost> deadlines;
  connections.deadlines(ids, std::span(deadlines).first(ids.size()));
  std::array<ConnId, kLookMost> due;
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

/// One instance for each worker. Workers that share tables share the ids, too; an id is one
/// worker's, from `born` to `gone` or `expire`.
using AgeingOfWorkers = std::vector<std::unique_ptr<Ageing>>;
/// How a scheme is made. Errors (failed): no memory.
using MakeAgeing = Result<AgeingOfWorkers>(const AgeingConfig& config, unsigned workers);

}  // namespace millrace
