// Who is on the links: the neighbour cache of one worker, for ARP (RFC 826, RFC 1122 2.3.2) and for
// IPv6's neighbour discovery (RFC 4861, 7.3) alike.
//
// It has no clock and no socket: it is told what time it is and what was heard, and says what to
// ask. One worker owns it.
//
//   incomplete ─ answer ─► reachable ─ 30 s ─► stale ─ used ─► delay ─ 5 s ─► probe ─┐
//    │    ▲                    ▲                                 └──── answer ───────┤
//    3 s, no answer            └──────────────────────────── answer ─────────────────┤
//    ▼    │                                                                          │
//   failed┴ 1 s, if wanted ◄──────────────────────────────────────── 3 s, no answer ─┘
//
// A permanent one was configured: nothing that is heard changes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <utility>
#include <vector>

#include "core/flat_hash_map.h"
#include "core/mac.h"
#include "millrace/key.h"
#include "millrace/types.h"

namespace millrace {

/// What was heard of a neighbour (RFC 4861, 4.4).
struct Heard {
  Mac mac;
  bool is_solicited = false;  ///< it answers what was asked
  bool overrides = true;      ///< it is right where another one is known
};

template <class A>
class Neighbours {
 public:
  /// Neighbours at most; beyond, one that answered, and was used long ago, gives way.
  static constexpr std::size_t kMax = 65536;
  /// Of them, those that have not answered yet: who scans a network fills no more. Those that are
  /// kept do not count.
  static constexpr std::size_t kMaxUnanswered = 256;
  static constexpr std::uint32_t kReachableMs = 30'000;  ///< RFC 4861, 10
  static constexpr std::uint32_t kDelayMs = 5'000;
  static constexpr std::uint32_t kRetransmitMs = 1'000;
  static constexpr unsigned kAsks = 3;

  enum class State : std::uint8_t {
    incomplete,
    reachable,
    stale,
    delay,
    probe,
    failed,
    permanent,
  };

  /// Names a neighbour until it is told that it is gone.
  using Id = std::uint32_t;
  static constexpr Id kNone = 0xffffffff;

  /// Told what to do; it may call `use`, but nothing else, meanwhile. `ask` sends a solicitation
  /// for `target`: to all who may have it, or to `one`.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void ask(unsigned link, const A& target, const Mac* one) = 0;
    /// What waits for it can be sent.
    virtual void resolved(Id id, const Mac& mac) = 0;
    /// Nobody answers: what waits for it cannot be sent.
    virtual void failed(Id id) = 0;
  };

  /// Neighbours of whom one gives way where there are too many.
  static constexpr unsigned kTries = 16;

  /// `seed`: reachable times vary by half, so that not all are asked for at once.
  explicit Neighbours(std::uint32_t seed) : random_(seed) {}

  /// Asks for none of its own accord any more, and none is permanent.
  void keep_none();
  /// Asked for from now on, whether or not packets go there.
  void keep(unsigned link, const A& address, Tick now, Listener& listener);
  /// It has that MAC until `keep_none`.
  void make_permanent(unsigned link, const A& address, const Mac& mac, Tick now,
                      Listener& listener);

  /// A packet goes to that neighbour.
  struct Way {
    Id id = kNone;             ///< none: too many have not answered
    const Mac* mac = nullptr;  ///< null: not known; valid until the next call
    bool failed = false;       ///< and nobody has answered lately

    /// What goes there waits until its MAC is known.
    bool may_wait() const { return id != kNone && !failed; }
  };
  Way use(unsigned link, const A& address, Tick now, Listener& listener);

  /// An ARP reply, or a neighbour advertisement.
  void advertised(unsigned link, const A& address, const Heard& heard, Tick now,
                  Listener& listener);
  /// A neighbour has asked for one of our own addresses, and given its own.
  void asked_by(unsigned link, const A& address, const Mac& mac, Tick now, Listener& listener);

  /// Time passes. To be called every `kTickMs` or more often.
  static constexpr std::uint32_t kTickMs = 50;
  void tick(Tick now, Listener& listener);

  std::size_t size() const { return ids_.size(); }

  /// Calls `each(link, address, mac)` for all whose MAC is known.
  template <class Each>
  void for_each_known(Each&& each) const {
    for (const Neighbour& one : all_) {
      if (one.is_there && !is_unanswered(one.state))
        each(one.where.link, one.where.address, one.mac);
    }
  }
  /// Calls `each(link, address)` for all that are kept and that did not answer when they were asked
  /// last.
  template <class Each>
  void for_each_silent(Each&& each) const {
    for (const Neighbour& one : all_) {
      if (one.is_there && one.is_kept && one.is_silent) each(one.where.link, one.where.address);
    }
  }
  /// Whether that one did not answer when it was asked last.
  bool is_silent(unsigned link, const A& address) const {
    const auto known = ids_.find({link, address});
    return known != ids_.end() && all_[known->second].is_silent;
  }

 private:
  struct Where {
    unsigned link;
    A address;
    friend bool operator==(const Where&, const Where&) = default;
    template <class H>
    friend H AbslHashValue(H hash, const Where& where) {
      const auto* bytes = reinterpret_cast<const unsigned char*>(where.address.bytes.data());
      return H::combine_contiguous(H::combine(std::move(hash), where.link), bytes, A::kBytes);
    }
  };
  struct Neighbour {
    Where where{};
    Mac mac;
    State state = State::failed;
    bool is_kept = false;
    bool is_there = false;
    bool is_busy = false;    ///< among `busy_`
    bool is_silent = false;  ///< until it answers
    unsigned asked = 0;
    Tick until;      ///< the state ends
    Tick last_used;  ///< by a packet

    bool ends_by_itself() const { return is_there && state != State::reachable && !lasts(state); }
  };

  /// None where `most` have not answered.
  Id find_or_add(unsigned link, const A& address, Tick now, std::size_t most = kMaxUnanswered);
  Id place();
  void remove(Id id);
  void enter(Id id, State state, Tick now);
  void watch(Id id);
  void begin(Id id, Tick now, Listener& listener);
  void confirm(Id id, const Mac& mac, State state, Tick now, Listener& listener);
  void ask(Id id, Tick now, Listener& listener);
  void expire(Id id, Tick now, Listener& listener);
  static bool is_unanswered(State state) {
    return state == State::incomplete || state == State::failed;
  }

  static bool counts(const Neighbour& one) {
    return one.is_there && is_unanswered(one.state) && !one.is_kept;
  }
  void set_kept(Neighbour& one, bool is_kept);
  static bool lasts(State state) { return state == State::stale || state == State::permanent; }

  std::deque<Neighbour> all_;
  std::vector<Id> free_;
  std::vector<Id> busy_;  // all whose states end by themselves, and some that were
  absl::flat_hash_map<Where, Id> ids_;
  std::size_t unanswered_ = 0;
  Tick ticked_;
  std::minstd_rand random_;
};

}  // namespace millrace
