// A connection tracker to embed: `race` tables, a timer wheel, one address family.
//
// It is compiled into the library for IPv4 (KeyV4) and IPv6 (KeyV6); each call handles a burst, so
// that memory latency is hidden and the call costs little. One thread at a time uses a tracker:
// give every worker its own, and let both directions of a connection reach the same worker. Nothing
// is allocated after `create`, nothing throws, nothing is printed but broken rules (below).
//
//   auto tracker = millrace::ConnectionTracker<millrace::KeyV4>::create({.capacity = 1'000'000});
//   std::uint64_t fresh = tracker->track(keys, now, ids);   // bit i: keys[i] opened a connection
//   ... tracker->state(ids[i]) ...
//   tracker->sweep(now);                                    // between bursts
//
// Rules that callers must keep; debug builds check them (detail/check.h), others do not:
//
//  1. A burst has `kBurstMax` keys at most, and `ids` is as long as `keys` or longer.
//  2. An id that is given to a function is that of a live connection, or of a live reply entry
//     where one is asked for: not `none`, and not that of a connection that has ended. So a
//     connection is closed once.
//  3. `closed`, which `sweep` calls, does not call `track`, `link`, `close` or `sweep`.
//  4. A tracker that was moved from is only destroyed or assigned to.
//
// A broken rule prints one line that names it and aborts; where it is not checked, it may corrupt
// memory. An id that was given out again in the meantime looks live: its key tells.
//
// Time is the caller's, in ticks that do not go back: a clock that is set (CLOCK_REALTIME) is not
// fit, a monotonic one is. Ticks wrap and compare signed (types.h). If they go back all the same,
// by up to 24.8 days, nothing breaks, and connections end at other times:
//
//  - `sweep` stands still: it goes by the latest tick that a `sweep`, or a `track` that opened a
//    connection, was given. Ticks before that one make nothing due, so what is idle meanwhile ends
//    late, by as much as time went back.
//  - `track`, `find` and `link` mark what they meet as seen at the tick that they are given. What
//    was last seen at an earlier tick counts as idle since then, and may end early, by as much as
//    time went back.
//  - A tick that is more than 24.8 days (2^31 - 1 ms) before the latest one counts as later than
//    it: time leaps, and the next `sweep` ends what was idle for its timeout at that later tick.
//
// A tick that was far too late, once, is therefore harmful: time stands still until the clock has
// caught up with it.
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

struct TrackerOptions {
  /// Connections promised. Memory for all of them is taken at once: some 50 bytes each for IPv4
  /// with up to 8 bytes of state, 87 with up to 40; reply entries take as much again.
  std::size_t capacity = 1'000'000;
  /// Bytes of your state in each connection's record, 8-byte aligned, at most 200.
  std::size_t state_bytes = 8;
  /// Bytes of state in a reply's record; none: connections have no reply entry of their own.
  std::optional<std::size_t> reply_state_bytes = std::nullopt;
  /// Idle milliseconds after which `sweep` ends a connection, 1 to 2^31 - 1. An established TCP
  /// connection should be kept 2 h 4 min (RFC 5382), a UDP one 2 min (RFC 4787).
  std::uint32_t timeout_ms = 120'000;
  /// How finely timeouts are told apart, 1 to 1000 ms.
  std::uint32_t interval_ms = 10;
  /// The best kind of memory to try; worse is taken where there is none, see `pages`.
  Pages pages = Pages::huge;
  /// Fixes the hash, for reproducible runs; none: a secret is drawn, as hostile traffic demands.
  std::optional<std::uint64_t> seed = std::nullopt;
};

template <class K>
class ConnectionTracker {
 public:
  /// Keys per call at most.
  static constexpr std::size_t kBurstMax = 64;
  /// Connections that one sweep looks at, at most.
  static constexpr unsigned kSweepMax = 1024;

  /// Errors: an option out of its range (usage), or no memory (failed).
  static Result<ConnectionTracker> create(const TrackerOptions& options);

  ConnectionTracker(ConnectionTracker&&) noexcept;
  ConnectionTracker& operator=(ConnectionTracker&&) noexcept;
  ~ConnectionTracker();

  /// Finds the connection of each key, or opens one: `ids[i]` is its id, or `none` where the table
  /// is full. Bit i of the result is set where keys[i] opened it; its state is zeroed. At most
  /// `kBurstMax` keys; `ids` is as long or longer. Ids stay valid until their connection ends.
  std::uint64_t track(std::span<const K> keys, Tick now, std::span<ConnId> ids);

  /// Finds without opening. On the reply's side `ids[i]` is the *reply's* entry, for `reply_state`
  /// and `originator`.
  void find(Side side, std::span<const K> keys, Tick now, std::span<ConnId> ids);

  /// Gives connection `id` a reply entry. False, and nothing changes, where `reply_key` belongs to
  /// another connection, the table is full, `id` has a reply, or there are no reply entries.
  bool link(ConnId id, const K& reply_key, Tick now);

  /// Ends a live connection with its reply entry; its ids may be given out again at once.
  void close(ConnId id);

  /// Ends connections that were idle too long; `closed` is told each one's id while its records are
  /// still readable. Looks at `budget` connections at most, and no more than `kSweepMax`; true when
  /// nothing is left to do. Not to be called while ids of an unfinished burst are held, but at
  /// least once in 24 days, or ticks cannot be told apart.
  bool sweep(Tick now, unsigned budget = 64, const std::function<void(ConnId)>& closed = {});

  /// Visits live connections in the order of their ids, a bounded piece at a time: looks at
  /// `budget` ids from `from` on, calls `visit` with each that is live, and returns where the next
  /// piece begins, `none` when no id is left. A walk begins at ConnId{0}. There are some 1.2 times
  /// as many ids as connections promised, and those in no use take of the budget, too.
  ///
  /// Between pieces, and in `visit`, every other function may be called. A connection that lives
  /// through the whole walk is visited exactly once; one that begins or ends meanwhile once or not
  /// at all. The walk keeps nothing: several may be under way, and one need not be finished. The
  /// thread rule holds: only the tracker's thread walks, as it has time between bursts.
  ConnId walk(ConnId from, std::size_t budget, const std::function<void(ConnId)>& visit) const;

  const K& key(ConnId id) const;
  std::byte* state(ConnId id) const;
  /// When a packet last met the connection: of both directions' ticks the later one.
  Tick last_seen(ConnId id) const;
  /// The connection's reply entry, or `none`.
  ConnId reply(ConnId id) const;
  std::byte* reply_state(ConnId reply) const;
  ConnId originator(ConnId reply) const;

  /// Live connections.
  std::size_t size() const;
  std::size_t memory_bytes() const;
  /// The worst kind of pages that its tables lie on.
  Pages pages() const;

 private:
  struct Impl;
  explicit ConnectionTracker(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

extern template class ConnectionTracker<KeyV4>;
extern template class ConnectionTracker<KeyV6>;

}  // namespace millrace
