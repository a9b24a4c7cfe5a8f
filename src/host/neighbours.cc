#include "host/neighbours.h"

#include <utility>

namespace millrace {

template <class A>
void Neighbours<A>::keep(const Neighbourhood& on, const A& address, Tick now, Listener& listener) {
  const Id id = find_or_add(on, address, now);
  if (id == kNone) return;
  set_kept(all_[id], true);
  if (all_[id].state == State::failed) begin(id, now, listener);
}

template <class A>
void Neighbours<A>::set_kept(Neighbour& one, bool is_kept) {
  const bool counted = counts(one);
  one.is_kept = is_kept;
  if (counted == counts(one)) return;
  std::size_t& count = unanswered(one.where.customer());
  count += counted ? -std::size_t{1} : 1;
}

template <class A>
void Neighbours<A>::keep_none() {
  for (Neighbour& one : all_) {
    set_kept(one, false);
    if (one.state == State::permanent) one.state = State::stale;
  }
}

template <class A>
void Neighbours<A>::make_permanent(const Neighbourhood& on, const A& address, const Mac& mac,
                                   Tick now, Listener& listener) {
  const Id id = find_or_add(on, address, now);
  if (id == kNone) return;
  set_kept(all_[id], true);
  confirm(id, mac, State::permanent, now, listener);
}

template <class A>
typename Neighbours<A>::Way Neighbours<A>::use(const Neighbourhood& on, const A& address, Tick now,
                                               Listener& listener) {
  const Id id =
      find_or_add(on, address, now, on.customer == 0 ? kMaxUnanswered : kMaxUnansweredOfCustomer);
  if (id == kNone) return {};
  Neighbour& one = all_[id];
  one.last_used = now;
  if (one.state == State::failed) {
    if (now - one.until < 0) return {id, nullptr, true};
    begin(id, now, listener);
  }
  if (one.state == State::incomplete) return {id, nullptr, false};
  if (one.state == State::reachable && now - one.until >= 0) one.state = State::stale;
  if (one.state == State::stale) enter(id, State::delay, now);
  return {id, &one.mac, false};
}

template <class A>
void Neighbours<A>::advertised(const Neighbourhood& on, const A& address, const Heard& heard,
                               Tick now, Listener& listener) {
  const auto known = ids_.find(Where(on, address));
  if (known == ids_.end()) return;  // an advertisement adds no neighbour (RFC 4861, 7.2.5)
  const Id id = known->second;
  Neighbour& one = all_[id];
  if (one.state == State::permanent) return;
  if (is_unanswered(one.state)) {
    confirm(id, heard.mac, heard.is_solicited ? State::reachable : State::stale, now, listener);
    return;
  }
  const bool is_same = one.mac == heard.mac;
  if (!is_same && !heard.overrides) {
    if (one.state == State::reachable) one.state = State::stale;
    return;
  }
  if (heard.is_solicited) {
    confirm(id, heard.mac, State::reachable, now, listener);
  } else if (!is_same) {
    confirm(id, heard.mac, State::stale, now, listener);
  }
}

template <class A>
void Neighbours<A>::asked_by(const Neighbourhood& on, const A& address, const Mac& mac, Tick now,
                             Listener& listener) {
  const Id id = find_or_add(on, address, now);
  if (id == kNone || all_[id].state == State::permanent) return;
  if (is_unanswered(all_[id].state) || all_[id].mac != mac)
    confirm(id, mac, State::stale, now, listener);
}

template <class A>
void Neighbours<A>::tick(Tick now, Listener& listener) {
  if (busy_.empty() || now - ticked_ < static_cast<std::int32_t>(kTickMs)) return;
  ticked_ = now;
  const std::vector<Id> due = std::exchange(busy_, {});
  for (const Id id : due) {
    all_[id].is_busy = false;
    if (!all_[id].ends_by_itself()) continue;
    if (now - all_[id].until >= 0) {
      expire(id, now, listener);
    } else {
      watch(id);
    }
  }
}

template <class A>
void Neighbours<A>::watch(Id id) {
  if (all_[id].is_busy) return;
  all_[id].is_busy = true;
  busy_.push_back(id);
}

/// Called when the time of a neighbour's state is up. Asks again, or lets the neighbour fail after
/// `kAsks` questions. A failed neighbour is asked anew if it is kept, else removed.
template <class A>
void Neighbours<A>::expire(Id id, Tick now, Listener& listener) {
  Neighbour& one = all_[id];
  if (one.state == State::delay) {
    one.asked = 0;
    one.state = State::probe;
  }
  if (one.state == State::failed) {
    if (one.is_kept) {
      begin(id, now, listener);
    } else {
      remove(id);
    }
  } else if (one.asked < kAsks) {
    ask(id, now, listener);
  } else {
    const bool counted = counts(one);
    enter(id, State::failed, now);
    one.is_silent = true;
    if (!counted && counts(one)) ++unanswered(one.where.customer());
    listener.failed(id);
  }
}

template <class A>
void Neighbours<A>::begin(Id id, Tick now, Listener& listener) {
  all_[id].state = State::incomplete;
  all_[id].asked = 0;
  ask(id, now, listener);
}

template <class A>
void Neighbours<A>::ask(Id id, Tick now, Listener& listener) {
  Neighbour& one = all_[id];
  ++one.asked;
  enter(id, one.state, now);
  listener.ask(one.where.neighbourhood(), one.where.address,
               one.state == State::incomplete ? nullptr : &one.mac);
}

template <class A>
void Neighbours<A>::confirm(Id id, const Mac& mac, State state, Tick now, Listener& listener) {
  Neighbour& one = all_[id];
  const bool waited = is_unanswered(one.state);
  if (counts(one)) --unanswered(one.where.customer());
  one.mac = mac;
  one.is_silent = false;
  enter(id, state, now);
  if (waited) listener.resolved(id, mac);
}

template <class A>
void Neighbours<A>::enter(Id id, State state, Tick now) {
  Neighbour& one = all_[id];
  one.state = state;
  if (state == State::reachable) {
    one.until = now + kReachableMs / 2 + static_cast<std::uint32_t>(random_() % kReachableMs);
  } else if (!lasts(state)) {
    one.until = now + (state == State::delay ? kDelayMs : kRetransmitMs);
    watch(id);
  }
}

template <class A>
typename Neighbours<A>::Id Neighbours<A>::find_or_add(const Neighbourhood& on, const A& address,
                                                      Tick now, std::size_t most) {
  const Where where(on, address);
  if (const auto known = ids_.find(where); known != ids_.end()) return known->second;
  if (unanswered(on.customer) >= most) return kNone;
  const Id id = place(on.customer);
  if (id == kNone) return kNone;
  all_[id] = {.where = where,
              .is_there = true,
              .is_busy = all_[id].is_busy,
              .until = now,
              .last_used = now};
  ids_.emplace(where, id);
  ++unanswered(on.customer);
  if (on.customer != 0) of_customers_[on.customer].ids.push_back(id);
  return id;
}

/// Returns a free id, if necessary that of a neighbour that is evicted: one of the customer's, if
/// he has as many as he may have. None if no such neighbour is found.
template <class A>
typename Neighbours<A>::Id Neighbours<A>::place(Zone customer) {
  if (customer != 0) {
    const std::vector<Id>& his = of_customers_[customer].ids;
    if (his.size() >= kMaxOfCustomer &&
        !evict_one(his.size(), [&his](std::size_t n) { return his[n]; }))
      return kNone;
  }
  if (free_.empty() && all_.size() < kMax) {
    all_.emplace_back();
    return static_cast<Id>(all_.size() - 1);
  }
  if (free_.empty() && !evict_one(all_.size(), [](std::size_t n) { return static_cast<Id>(n); }))
    return kNone;
  const Id id = free_.back();
  free_.pop_back();
  return id;
}

/// Evicts the least recently used of `kTries` random neighbours, of `count` with the ids
/// `id_at(n)`. False if all of these are kept or have not answered.
template <class A>
template <class IdAt>
bool Neighbours<A>::evict_one(std::size_t count, IdAt&& id_at) {
  Id oldest = kNone;
  for (unsigned tries = 0; tries < kTries; ++tries) {
    const Id id = id_at(static_cast<std::size_t>(random_() % count));
    if (all_[id].is_kept || is_unanswered(all_[id].state)) continue;
    if (oldest == kNone || all_[id].last_used - all_[oldest].last_used < 0) oldest = id;
  }
  if (oldest != kNone) remove(oldest);
  return oldest != kNone;
}

template <class A>
void Neighbours<A>::remove(Id id) {
  Neighbour& one = all_[id];
  const Zone customer = one.where.customer();
  if (counts(one)) --unanswered(customer);
  if (customer != 0) {
    const auto its = of_customers_.find(customer);
    std::erase(its->second.ids, id);
    if (its->second.ids.empty()) of_customers_.erase(its);
  }
  ids_.erase(one.where);
  one = {.is_busy = one.is_busy};
  free_.push_back(id);
}

template class Neighbours<AddressV4>;
template class Neighbours<AddressV6>;

}  // namespace millrace
