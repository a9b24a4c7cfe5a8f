// The packets' side of the load balancer. What changes its services is in update.cc.
#include "function/balance/balance.h"

#include <cstring>

#include "parse/rewrite.h"

namespace millrace {
namespace {

constexpr std::uint16_t kTcpFlagsOffset = 13;
constexpr std::uint8_t kFin = 0x01;
constexpr std::uint8_t kSyn = 0x02;
constexpr std::uint8_t kRst = 0x04;
constexpr std::uint8_t kAck = 0x10;

/// A packet that can only be a TCP connection's first, or that one's retransmission.
bool is_syn(const Burst& burst, unsigned packet) {
  const Headers& headers = burst.headers[packet];
  const unsigned at = headers.l4 + kTcpFlagsOffset;
  if (at >= headers.l4_end || at >= burst.length[packet]) return false;
  const auto flags = static_cast<std::uint8_t>(burst.data[packet][at]);
  return (flags & (kFin | kSyn | kRst | kAck)) == kSyn;
}

}  // namespace

template <class K>
BalanceFor<K>::BalanceFor(const BalanceConfig& config)
    : hash_(balance_hasher(config.key)),
      maglev_size_(config.maglev_table_size),
      quiet_ms_(config.quiet_ms),
      stateful_(config.stateful),
      stateless_when_full_(config.stateless_when_full) {}

template <class K>
typename FunctionFor<K>::StateBytes BalanceFor<K>::state_bytes() const {
  static_assert(sizeof(RecordHeader<K>) + sizeof(State) <= (Address::kBytes == 4 ? 32 : 64));
  static_assert(offsetof(Backend, weight) <= 64);
  static_assert(sizeof(State) <= Opening<K>::kReplyStateMax);
  return {.originator = sizeof(State), .reply = sizeof(State), .replies = replies_};
}

// --- sides

template <class K>
std::uint32_t BalanceFor<K>::index_of(const ServiceTable<Address>& table, const K& key) {
  // What stands for a port without being one (an echo's identifier) must not match a service's.
  return table.find(key.destination, has_ports(key.protocol) ? key.destination_port : 0,
                    key.protocol);
}

template <class K>
std::optional<Side> BalanceFor<K>::side(const K& key) const {
  const std::uint32_t found = index_of(table_, key);
  if (found == table_.kNone) return two_way_ ? std::optional(Side::reply) : std::nullopt;
  if (!mixed_ || services_[found]->spec.two_way()) return Side::originator;
  // A prefix may take in the clients of a two-way service: what its backends send them are replies.
  return reply_sources_.find(key.source, 0, 0) != reply_sources_.kNone ? Side::reply
                                                                       : Side::originator;
}

template <class K>
void BalanceFor<K>::sides(Burst& burst) {
  Lane<K>& originator = burst.lanes<K>().originator;
  Lane<K>& reply = burst.lanes<K>().reply;
  reply.size = 0;
  if (table_.only_catch_all()) return;
  const auto move = [&originator](unsigned from, Lane<K>& lane, unsigned to) {
    if (&lane == &originator && from == to) return;
    lane.packet[to] = originator.packet[from];
    lane.key[to] = originator.key[from];
  };
  unsigned kept = 0;
  for (unsigned i = 0; i < originator.size; ++i) {
    const auto met = side(originator.key[i]);
    if (met == Side::originator) {
      move(i, originator, kept++);
    } else if (met == Side::reply) {
      move(i, reply, reply.size++);
    } else {
      burst.verdict[originator.packet[i]] = Verdict::no_service;
    }
  }
  originator.size = kept;
}

// --- open

/// The service that takes what is new: one that drains does not hide a less specific one.
template <class K>
typename BalanceFor<K>::Service* BalanceFor<K>::find(const K& key) {
  const std::uint32_t i = index_of(current_, key);
  return i == current_.kNone ? nullptr : services_[i].get();
}

template <class K>
void BalanceFor<K>::open(const Burst& burst, std::span<Opening<K>> openings) {
  for (Opening<K>& opening : openings) answer(burst, opening);
}

template <class K>
void BalanceFor<K>::answer(const Burst& burst, Opening<K>& opening) {
  Service* service = find(opening.key);
  if (service == nullptr) {
    refuse(opening, nullptr, Verdict::no_service);
    return;
  }
  if (service->willing == 0) {
    refuse(opening, service, Verdict::no_backend);
    return;
  }
  if (opening.attempt == 0) {
    accept(*service, service->listed[first_choice(*service, burst, opening)], opening);
    return;
  }
  service->collisions.add(1);
  if (service->overflowed) {
    // It may have been served without an entry before: it stays where Maglev sent it, without one.
    refuse(opening, nullptr, Verdict::table_full);
    return;
  }
  if (opening.attempt >= service->willing) {
    refuse(opening, service, Verdict::reply_collision);
    return;
  }
  accept(*service, service->listed[next_choice(*service, opening)], opening);
}

template <class K>
void BalanceFor<K>::refuse(Opening<K>& opening, Service* service, Verdict why) {
  opening.answer = Opening<K>::Answer::refused;
  opening.refusal = why;
  if (service != nullptr) service->refused.add(1);
}

template <class K>
std::uint16_t BalanceFor<K>::first_choice(Service& service, const Burst& burst,
                                          const Opening<K>& opening) {
  const Hash hash = hash_(opening.key);
  return by_maglev(service, burst, opening) ? service.maglev.pick(hash)
                                            : service.scheduler->pick(hash);
}

template <class K>
bool BalanceFor<K>::by_maglev(Service& service, const Burst& burst,
                              const Opening<K>& opening) const {
  if (service.overflowed) {
    service.overflowed = burst.now.ms - service.overflowed_at.ms < quiet_ms_;
    if (service.overflowed) return true;
  }
  return opening.key.protocol == kProtocolTcp && !is_syn(burst, opening.packet);
}

/// The place after the one that collided, around the list, weightless ones left out. The attempt
/// before gave its backend up.
template <class K>
std::uint16_t BalanceFor<K>::next_choice(const Service& service, const Opening<K>& opening) {
  abandoned(opening.state);
  std::uint32_t place = backends_[state_at(opening.state).backend].place;
  do {
    if (++place >= service.listed.size()) place = 0;
  } while (service.candidates[place].weight == 0);
  return static_cast<std::uint16_t>(place);
}

template <class K>
void BalanceFor<K>::accept(const Service& service, std::uint16_t id, Opening<K>& opening) {
  using Answer = typename Opening<K>::Answer;
  const K& key = opening.key;
  Backend& backend = backends_[id];
  backend.connections.add(1);
  backend.live.add(1);
  const std::uint16_t port = port_for(backend, key);
  const State state = make_state(backend.address, port, id);
  std::memcpy(opening.state, &state, sizeof(state));
  opening.answer = service.spec.two_way() ? Answer::two_way : Answer::one_way;
  if (opening.answer == Answer::one_way) return;
  K target = key;
  target.destination = backend.address;
  target.destination_port = port;
  opening.reply_key = reversed(target);
  const State reply = make_state(key.destination, key.destination_port, id);
  std::memcpy(opening.reply_state.data(), &reply, sizeof(reply));
}

template <class K>
void BalanceFor<K>::closed(const std::byte* state) {
  backends_[state_at(state).backend].live.subtract(1);
}

template <class K>
void BalanceFor<K>::abandoned(const std::byte* state) {
  backends_[state_at(state).backend].connections.subtract(1);
  closed(state);
}

template <class K>
void BalanceFor<K>::adopted(const std::byte* state) {
  backends_[state_at(state).backend].live.add(1);
}

/// A connection that began without an entry there keeps its backend here.
template <class K>
void BalanceFor<K>::follow(const FunctionFor<K>& other) {
  const auto& theirs = static_cast<const BalanceFor&>(other).services_;
  for (std::size_t i = 0; i < services_.size(); ++i) {
    if (!theirs[i]->overflowed) continue;
    Service& service = *services_[i];
    const Tick at = theirs[i]->overflowed_at;
    if (!service.overflowed || at - service.overflowed_at > 0) service.overflowed_at = at;
    service.overflowed = true;
  }
}

// --- process

template <class K>
void BalanceFor<K>::process(Burst& burst, const Records<K>& originators,
                            const Records<K>& replies) {
  serve<false>(burst, originators);
  if (burst.lanes<K>().reply.size > 0) serve<true>(burst, replies);
}

template <class K>
template <bool kReply>
void BalanceFor<K>::serve(Burst& burst, const Records<K>& records) {
  constexpr End kEnd = kReply ? End::source : End::destination;
  const Lane<K>& lane = kReply ? burst.lanes<K>().reply : burst.lanes<K>().originator;
  for (unsigned i = 0; i < lane.size; ++i) {
    const unsigned packet = lane.packet[i];
    if (lane.connection[i] == ConnId::none) [[unlikely]] {
      if constexpr (kReply) {
        burst.verdict[packet] = Verdict::no_service;
      } else {
        serve_untracked(burst, lane.key[i], packet);
      }
      continue;
    }
    const State state = state_at(records.state(lane.connection[i]));
    Backend& backend = backends_[state.backend];
    const Address* address = kReply ? &backend.virtual_address : &backend.address;
    if constexpr (kDirect) address = &state.address;
    rewrite<K>(kEnd, burst.data[packet], burst.length[packet], burst.headers[packet], *address,
               state.port);
    (kReply ? backend.replies : backend.packets).add(1);
    burst.verdict[packet] = Verdict::tracked;
  }
}

template <class K>
void BalanceFor<K>::serve_untracked(Burst& burst, const K& key, unsigned packet) {
  Verdict& verdict = burst.verdict[packet];
  if (verdict != Verdict::table_full || (stateful_ && !stateless_when_full_)) return;
  Service* service = find(key);
  if (service == nullptr) {
    verdict = Verdict::no_service;
    return;
  }
  if (service->willing == 0) {
    service->refused.add(1);
    verdict = Verdict::no_backend;
    return;
  }
  Backend& backend = backends_[service->listed[service->maglev.pick(hash_(key))]];
  rewrite<K>(End::destination, burst.data[packet], burst.length[packet], burst.headers[packet],
             backend.address, port_for(backend, key));
  backend.packets.add(1);
  service->stateless.add(1);
  service->overflowed = true;
  service->overflowed_at = burst.now;
  verdict = Verdict::stateless;
}

// --- state

template <class K>
typename BalanceFor<K>::State BalanceFor<K>::state_at(const std::byte* at) {
  State state;
  std::memcpy(&state, at, sizeof(state));
  return state;
}

template <class K>
typename BalanceFor<K>::State BalanceFor<K>::make_state([[maybe_unused]] const Address& address,
                                                        std::uint16_t port, std::uint16_t backend) {
  if constexpr (kDirect) {
    return {address, port, backend};
  } else {
    return {port, backend};
  }
}

template <class K>
std::uint16_t BalanceFor<K>::port_for(const Backend& backend, const K& key) {
  return backend.port != 0 && has_ports(key.protocol) ? backend.port : key.destination_port;
}

template class BalanceFor<KeyV4>;
template class BalanceFor<KeyV6>;

}  // namespace millrace
