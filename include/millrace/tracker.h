// A connection tracker to embed: `race` tables, a timer wheel, one address family.
//
// The library contains the tracker compiled for IPv4 (KeyV4) and IPv6 (KeyV6). Each call handles a
// burst, which hides memory latency and spreads the cost of the call. Only one thread at a time may
// use a tracker: give every worker thread its own tracker, and make both directions of a connection
// reach the same worker. After `create` nothing is allocated, nothing throws, and nothing is
// printed but broken rules (below).
//
//   auto tracker = millrace::ConnectionTracker<millrace::KeyV4>::create({.capacity = 1'000'000});
//   std::uint64_t fresh = tracker->track(keys, now, ids);   // bit i: keys[i] opened a connection
//   ... tracker->state(ids[i]) ...
//   tracker->sweep(now);                                    // between bursts
//
// Rules that callers must keep; debug builds check them (detail/check.h), other builds do not:
//
//  1. A burst has `kBurstMax` keys at most, and `ids` is at least as long as `keys`.
//  2. An id that is passed to a function is that of a live connection, or of a live reply entry if
//     the function takes one: not `none`, and not the id of a connection that has ended. Such a
//     connection must therefore not be closed again.
//  3. The callback `closed` of `sweep` does not call `track`, `link`, `close` or `sweep`.
//  4. A tracker that was moved from is only destroyed or assigned to.
//  5. The callback `visit` of `walk` is not empty.
//
// For a broken rule, a debug build prints one line that names the rule, and aborts; in other builds
// a broken rule may corrupt memory. An id that has been given out again looks live to the checks:
// compare the key of its connection.
//
// The caller passes the time, in ticks that do not go back: use a monotonic clock, not one that is
// set (CLOCK_REALTIME). Ticks wrap and compare signed (types.h). If ticks go back all the same, by
// up to 24.8 days, nothing breaks, but connections end at other times:
//
//  - `sweep` uses the latest tick that was passed to a `sweep`, or to a `track` that opened a
//    connection. Earlier ticks make nothing due, so connections that are idle meanwhile end late,
//    by as much as time went back.
//  - `track` and `find` mark the entries that they find, and `link` the entry that it makes, as
//    seen at the tick that is passed to them. An entry that is marked with an earlier tick counts
//    as idle since then, and its connection may end early, by as much as time went back.
//  - A tick that is more than 24.8 days (2^31 - 1 ms) before the latest one counts as later: time
//    leaps, and the next `sweep` ends the connections that were idle for their timeout at that
//    later tick.
//
// A single tick that is far too late therefore does harm: `sweep` ends the connections that would
// be idle for their timeout at that tick, and then ends nothing until the clock has caught up with
// that tick.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "millrace/key.h"
#include "millrace/memory.h"
#include "millrace/types.h"

namespace millrace {

/// Settings of a tracker. `create` checks all of them and reports every problem in one error; a
/// capacity that is too large, only if nothing else is wrong.
struct TrackerOptions {
  /// Connections that the tracker has room for, 1 or more. `create` takes the memory for all of
  /// them: some 50 bytes each for IPv4 with up to 8 bytes of state, 87 with up to 40; reply entries
  /// take about as much again.
  std::size_t capacity = 1'000'000;
  /// Bytes of the caller's state for each connection, 0 to 200; the state is 8-byte aligned.
  std::size_t state_bytes = 8;
  /// Bytes of the caller's state in each reply entry, 0 to 200. Without a value, connections have
  /// no reply entries.
  std::optional<std::size_t> reply_state_bytes = std::nullopt;
  /// Idle time in ms after which `sweep` ends a connection, 1 to 2^31 - 1. An established TCP
  /// connection should be kept for 2 h 4 min (RFC 5382), a UDP one for 2 min (RFC 4787).
  std::uint32_t timeout_ms = 120'000;
  /// Resolution of timeouts in ms, 1 to 1000: a connection ends up to an interval late.
  std::uint32_t interval_ms = 10;
  /// The best kind of pages to try. The tracker may get a worse kind: `ConnectionTracker::pages`.
  Pages pages = Pages::huge;
  /// Fixes the hash's secret, for reproducible runs only. Without a value the secret is random, so
  /// that hostile traffic cannot aim keys at one bucket.
  std::optional<std::uint64_t> seed = std::nullopt;
};

/// A table of connections for keys of type `K`, with a timer for each connection.
template <class K>
class ConnectionTracker {
 public:
  /// The largest number of keys in one call.
  static constexpr std::size_t kBurstMax = 64;
  /// The largest number of connections that one `sweep` checks.
  static constexpr unsigned kSweepMax = 1024;

  /// Makes an empty tracker. Errors: an option out of its range (usage); no memory (failed).
  static Result<ConnectionTracker> create(const TrackerOptions& options);

  ConnectionTracker(ConnectionTracker&&) noexcept;
  ConnectionTracker& operator=(ConnectionTracker&&) noexcept;
  ~ConnectionTracker();

  /// Finds the connection of each key, or opens one: `ids[i]` is the connection's id, or `none` if
  /// the table is full. Bit i of the result is set if `keys[i]` opened its connection; the
  /// connection's state is then zeroed. `keys` has at most `kBurstMax` elements, `ids` at least as
  /// many as `keys`. An id is valid until its connection ends.
  std::uint64_t track(std::span<const K> keys, Tick now, std::span<ConnId> ids);

  /// Finds the connection of each key; `ids[i]` is `none` if there is none. With `Side::reply`,
  /// `ids[i]` is a reply entry, for `reply_state` and `originator`.
  void find(Side side, std::span<const K> keys, Tick now, std::span<ConnId> ids);

  /// Gives connection `id` a reply entry. Returns false, and changes nothing, if `reply_key` has a
  /// reply entry already, the table is full, `id` has a reply entry, or the tracker was made
  /// without reply entries.
  bool link(ConnId id, const K& reply_key, Tick now);

  /// Ends a live connection and its reply entry. Their ids may be given out again at once.
  void close(ConnId id);

  /// Ends connections that were idle for their timeout. Calls `closed` with each id while the
  /// connection's key and states can still be read. Checks `budget` connections at most, and no
  /// more than `kSweepMax`. Returns true if no work is left at tick `now`. Call `sweep` between
  /// bursts, when no id of a burst is in use, and at least once in 24 days: ticks that are farther
  /// apart do not compare correctly.
  bool sweep(Tick now, unsigned budget = 64, const std::function<void(ConnId)>& closed = {});

  /// Visits live connections in the order of their ids, a bounded piece at a time: checks `budget`
  /// ids from `from` on and calls `visit` with each id that is live. Returns the first id of the
  /// next piece, `none` when no id is left. A walk begins at ConnId{0}. There are some 1.2 times as
  /// many ids as `capacity`, and free ids count against the budget, too.
  ///
  /// Between pieces, and in `visit`, the tracker's thread may call every function. A connection
  /// that lives through the whole walk is visited exactly once; a connection that begins or ends
  /// meanwhile is visited once or not at all. The tracker keeps no state of a walk: several walks
  /// may be under way, and a walk need not be finished.
  ConnId walk(ConnId from, std::size_t budget, const std::function<void(ConnId)>& visit) const;

  /// Returns the key of the connection, valid until it ends.
  const K& key(ConnId id) const;
  /// Returns the caller's state of the connection, valid until it ends.
  std::byte* state(ConnId id) const;
  /// Returns the tick of the connection's latest packet, of either direction.
  Tick last_seen(ConnId id) const;
  /// Returns the connection's reply entry, or `none`.
  ConnId reply(ConnId id) const;
  /// Returns the caller's state of a reply entry, valid until its connection ends.
  std::byte* reply_state(ConnId reply) const;
  /// Returns the connection of a reply entry.
  ConnId originator(ConnId reply) const;

  /// Returns the number of live connections.
  std::size_t size() const;
  /// Returns the bytes of memory that the tracker's tables and timers take.
  std::size_t memory_bytes() const;
  /// Returns the worst kind of pages among the tracker's tables.
  Pages pages() const;

 private:
  struct Impl;
  explicit ConnectionTracker(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

extern template class ConnectionTracker<KeyV4>;
extern template class ConnectionTracker<KeyV6>;

}  // namespace millrace
