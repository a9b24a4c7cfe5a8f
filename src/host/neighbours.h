// The neighbour cache of one worker, for ARP (RFC 826, RFC 1122 2.3.2) and IPv6 neighbour discovery
// (RFC 4861, 7.3) alike.
//
// The cache has no clock and no socket: its owner passes the time and what was heard, and a
// `Listener` that sends questions. One worker owns a cache.
//
//   incomplete ─ answer ─► reachable ─ 30 s ─► stale ─ used ─► delay ─ 5 s ─► probe ─┐
//    │    ▲                    ▲                                 └──── answer ───────┤
//    3 s, no answer            └──────────────────────────── answer ─────────────────┤
//    ▼    │                                                                          │
//   failed┴ 1 s, if kept ◄────────────────────────────────────────── 3 s, no answer ─┘
//
// `answer`: a solicited ARP reply or advertisement, which leads to `reachable` from every state. An
// unsolicited one, or a question by the neighbour, leads to `stale` if the MAC was unknown or
// changes. An advertisement of another MAC that must not override leads from `reachable` to
// `stale`. A failed neighbour that is not kept is removed after 1 s. The 30 s vary by half.
//
// A permanent neighbour was configured: nothing that is heard changes it.
//
// A customer in a VLAN of his own has a part of the cache: he can neither fill it nor evict others.
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

/// A neighbour advertisement (RFC 4861, 4.4) or ARP reply.
struct Heard {
  Mac mac;
  bool is_solicited = false;  ///< the advertisement answers a question
  bool overrides = true;      ///< the advertised MAC replaces a known one
};

/// The stations that hear each other: those on a link, or those in a customer's VLAN there.
struct Neighbourhood {
  unsigned link = 0;
  Zone customer = 0;  ///< 0: the link itself
};

template <class A>
class Neighbours {
 public:
  /// Largest number of neighbours. Beyond it, a new neighbour evicts one that has answered and was
  /// used long ago.
  static constexpr std::size_t kMax = 65536;
  /// Largest number of neighbours without an answer so far: beyond it packets add no new neighbour,
  /// so that a network scan does not fill the cache. Kept neighbours do not count.
  static constexpr std::size_t kMaxUnanswered = 256;
  /// The same two numbers for the neighbours of one customer, which do not count for others. A new
  /// neighbour of a customer evicts one of his.
  static constexpr std::size_t kMaxOfCustomer = 256;
  static constexpr std::size_t kMaxUnansweredOfCustomer = 32;
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

  /// Names a neighbour until it is removed.
  using Id = std::uint32_t;
  static constexpr Id kNone = 0xffffffff;

  /// Callbacks of the cache. A callback may call `use`, but no other function of the cache. `ask`
  /// sends an ARP request or neighbour solicitation for `target`: to `one`, or to all stations that
  /// may have it if `one` is null.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void ask(const Neighbourhood& on, const A& target, const Mac* one) = 0;
    /// Sends the frames that wait for the neighbour, whose MAC is known now.
    virtual void resolved(Id id, const Mac& mac) = 0;
    /// Drops the frames that wait for the neighbour, which does not answer.
    virtual void failed(Id id) = 0;
  };

  /// Number of neighbours, drawn at random, of which the least recently used is evicted.
  static constexpr unsigned kTries = 16;

  /// `seed` seeds the reachable times, which differ from `kReachableMs` by up to half, so that not
  /// all neighbours are asked at once.
  explicit Neighbours(std::uint32_t seed) : random_(seed) {}

  /// Undoes all calls of `keep` and `make_permanent`.
  void keep_none();
  /// Keeps a neighbour: asks for its MAC while that is not known, and again after each failure,
  /// whether or not packets go there.
  void keep(const Neighbourhood& on, const A& address, Tick now, Listener& listener);
  /// Gives a neighbour that MAC until `keep_none`.
  void make_permanent(const Neighbourhood& on, const A& address, const Mac& mac, Tick now,
                      Listener& listener);

  /// The result of `use`, which is called for each packet that goes to a neighbour.
  struct Way {
    Id id = kNone;             ///< none: a new neighbour for which there is no room
    const Mac* mac = nullptr;  ///< null: unknown; valid until the next call
    bool failed = false;       ///< the neighbour has not answered lately

    /// True if the packet may wait until the MAC is known.
    bool may_wait() const { return id != kNone && !failed; }
  };
  Way use(const Neighbourhood& on, const A& address, Tick now, Listener& listener);

  /// Processes an ARP reply or a neighbour advertisement.
  void advertised(const Neighbourhood& on, const A& address, const Heard& heard, Tick now,
                  Listener& listener);
  /// Learns the MAC of a neighbour that asks for one of the host's addresses (RFC 4861, 7.2.3).
  void asked_by(const Neighbourhood& on, const A& address, const Mac& mac, Tick now,
                Listener& listener);

  /// Advances time. To be called every `kTickMs` or more often.
  static constexpr std::uint32_t kTickMs = 50;
  void tick(Tick now, Listener& listener);

  std::size_t size() const { return ids_.size(); }

  /// Calls `each(neighbourhood, address, mac)` for all neighbours with a known MAC.
  template <class Each>
  void for_each_known(Each&& each) const {
    for (const Neighbour& one : all_) {
      if (one.is_there && !is_unanswered(one.state))
        each(one.where.neighbourhood(), one.where.address, one.mac);
    }
  }
  /// Calls `each(neighbourhood, address)` for all kept neighbours that did not answer when last
  /// asked.
  template <class Each>
  void for_each_silent(Each&& each) const {
    for (const Neighbour& one : all_) {
      if (one.is_there && one.is_kept && one.is_silent)
        each(one.where.neighbourhood(), one.where.address);
    }
  }
  /// True if that neighbour did not answer when last asked.
  bool is_silent(const Neighbourhood& on, const A& address) const {
    const auto known = ids_.find(Where(on, address));
    return known != ids_.end() && all_[known->second].is_silent;
  }

 private:
  struct Where {
    Where() = default;
    Where(const Neighbourhood& on, const A& its)
        : link_and_customer(on.link << 24 | on.customer), address(its) {}

    std::uint32_t link_and_customer = 0;  ///< in one word, which is hashed at once
    A address;
    Zone customer() const { return link_and_customer & 0xffffff; }
    Neighbourhood neighbourhood() const { return {link_and_customer >> 24, customer()}; }
    friend bool operator==(const Where&, const Where&) = default;
    template <class H>
    friend H AbslHashValue(H hash, const Where& where) {
      const auto* bytes = reinterpret_cast<const unsigned char*>(where.address.bytes.data());
      return H::combine_contiguous(H::combine(std::move(hash), where.link_and_customer), bytes,
                                   A::kBytes);
    }
  };
  struct Neighbour {
    Where where;
    Mac mac;
    State state = State::failed;
    bool is_kept = false;
    bool is_there = false;
    bool is_busy = false;    ///< listed in `busy_`
    bool is_silent = false;  ///< the neighbour did not answer when last asked
    unsigned asked = 0;
    Tick until;      ///< time at which the state ends
    Tick last_used;  ///< time of the last packet to the neighbour

    bool ends_by_itself() const { return is_there && state != State::reachable && !lasts(state); }
  };

  /// The neighbours of one customer.
  struct OfCustomer {
    std::vector<Id> ids;
    std::size_t unanswered = 0;  ///< number of those for which `counts` is true
  };

  /// Returns a neighbour's id, and adds the neighbour if it is new; none if it is new and `most`
  /// neighbours have not answered, or no id is free.
  Id find_or_add(const Neighbourhood& on, const A& address, Tick now, std::size_t most = kMax);
  Id place(Zone customer);
  template <class IdAt>
  bool evict_one(std::size_t count, IdAt&& id_at);
  std::size_t& unanswered(Zone customer) {
    return customer == 0 ? unanswered_ : of_customers_[customer].unanswered;
  }
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
  std::vector<Id> busy_;  // all neighbours for which `ends_by_itself` is true, and others
  absl::flat_hash_map<Where, Id> ids_;
  std::size_t unanswered_ = 0;  // neighbours of no customer for which `counts` is true
  absl::flat_hash_map<Zone, OfCustomer> of_customers_;  // those with neighbours
  Tick ticked_;
  std::minstd_rand random_;
};

}  // namespace millrace
