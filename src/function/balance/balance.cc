// The load balancer's work for packets and connections. Changes of plans are in update.cc.
#include "function/balance/balance.h"

#include <cstring>

#include "function/balance/without_entry.h"

namespace millrace {
template <class K>
BalanceFor<K>::BalanceFor(const BalanceConfig& config, unsigned worker)
    : hash_(balance_hasher(config.key)),
      worker_(worker),
      quiet_ms_(config.quiet_ms),
      stateful_(config.stateful),
      stateless_when_full_(config.stateless_when_full),
      backends_(Plan::kMaxBackends) {}

template <class K>
Part BalanceFor<K>::part() const {
  static_assert(offsetof(Backend, virtual_address) % 64 + offsetof(Backend, connections) -
                    offsetof(Backend, virtual_address) <=
                64);
  static_assert(sizeof(State) <= Part::kMost);
  static_assert(sizeof(Backend) == (Address::kBytes == 4 ? 128 : 192));
  return {.name = "balance",
          .originator_bytes = sizeof(State),
          .reply_bytes = sizeof(State),
          .alignment = alignof(State),
          .image_bytes = sizeof(Image),
          .replies = plan_->replies};
}

// --- screen

/// Steers by the client's end. In a connection that a backend begins itself, the end opposite to
/// the backend counts as the client's.
template <class K>
Steered BalanceFor<K>::steer(std::span<const K> keys, const Steered&) const {
  const auto& index = *plan_->index;
  if (index.table.only_catch_all())
    return {.by_source = bits_below(static_cast<unsigned>(keys.size()))};
  const auto is_backend = [&index](const Address& address) {
    return index.reply_sources.find(address, 0, 0) != Plan::kNone;
  };
  Steered steered;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto side = plan_->side(keys[i]);
    const bool is_reply = side == Side::reply && is_backend(keys[i].source);
    const bool is_client = side == Side::originator ||
                           (side == Side::reply && !is_reply && is_backend(keys[i].destination));
    steered.by_source |= std::uint64_t{is_client} << i;
    steered.by_destination |= std::uint64_t{is_reply} << i;
  }
  return steered;
}

template <class K>
std::uint64_t BalanceFor<K>::screen(Burst& burst, Lane<K>& lane, std::uint64_t unknown) {
  if (plan_->index->table.only_catch_all()) return unknown;
  std::uint64_t begin = 0;
  for_each_bit(unknown, [&](unsigned i) {
    const K& key = lane.key[i];
    if (plan_->side(key) == Side::originator) {
      begin |= std::uint64_t{1} << i;
    } else if (plan_->serving_at(key) != nullptr) {
      lane.replies |= std::uint64_t{1} << i;
    } else {
      burst.verdict[lane.packet[i]] = Verdict::no_service;
    }
  });
  return begin;
}

// --- open

template <class K>
typename BalanceFor<K>::Service* BalanceFor<K>::find(const K& key) {
  const std::uint32_t i = plan_->current_for(key);
  return i == Plan::kNone ? nullptr : services_[i].get();
}

template <class K>
void BalanceFor<K>::open(const Burst& burst, Opening<K>& opening) {
  if (opening.is_resumed) return resume(opening);
  Service* service = find(opening.key);
  if (service == nullptr) return pass_over(opening);
  if (service->plan->willing == 0) {
    refuse(opening, service, without_backend(service->plan->spec.no_backend));
    return;
  }
  if (turns_away(*service)) {
    refuse(opening, nullptr, Verdict::service_limit);
    return;
  }
  if (opening.attempt == 0) {
    const auto place = first_choice(*service, burst, opening);
    if (!place) return refuse(opening, nullptr, Verdict::not_ready);
    accept(service->plan->listed[*place], opening);
    return;
  }
  service->collisions.add(1);
  if (service->overflow.is_there()) {
    // The connection may have been served without an entry before. Another backend would break it.
    // So it goes on without an entry, to the backend that Maglev chooses; or it is dropped, if
    // `stateless_when_full_` is false.
    refuse(opening, nullptr, Verdict::table_full);
    return;
  }
  if (opening.attempt >= service->plan->willing) {
    refuse(opening, service, Verdict::reply_collision);
    return;
  }
  accept(service->plan->listed[next_choice(*service, opening)], opening);
}

/// Leaves a connection to no service to the other functions of a chain. A connection whose replies
/// would be packets to a service is refused: such packets must not find an entry of another
/// function.
template <class K>
void BalanceFor<K>::pass_over(Opening<K>& opening) {
  if (plan_->serving_for(reversed(opening.key)) != Plan::kNone)
    return opening.refuse(Verdict::no_service);
  opening.decision = Opening<K>::Decision::unconcerned;
  opening.refusal = Verdict::no_service;
  std::memcpy(opening.state, &kUnconcerned, sizeof(State));
  std::memcpy(opening.reply_state, &kUnconcerned, sizeof(State));
}

template <class K>
void BalanceFor<K>::refuse(Opening<K>& opening, Service* service, Verdict why) {
  opening.refuse(why);
  if (service != nullptr && why != Verdict::passed) service->refused.add(1);
}

template <class K>
bool BalanceFor<K>::turns_away(Service& service) {
  const std::uint32_t most = service.plan->spec.max_connections;
  if (most == 0 || service.plan->proved->has_room(most)) return false;
  service.limited.add(1);
  return true;
}

template <class K>
std::optional<std::uint16_t> BalanceFor<K>::first_choice(Service& service, const Burst& burst,
                                                         const Opening<K>& opening) {
  const Hash hash = hash_(opening.key);
  if (!by_maglev(service, burst, opening)) return service.pooled->scheduler->pick(hash);
  const Maglev* const table = table_of(service);
  return table != nullptr ? std::optional(table->pick(hash)) : std::nullopt;
}

template <class K>
bool BalanceFor<K>::by_maglev(Service& service, const Burst& burst,
                              const Opening<K>& opening) const {
  if (opening.by_reply) return true;
  if (service.overflow.expire(burst.now, quiet_ms_)) return true;
  return has_handshake(opening.key.protocol) && !begins_handshake(burst.signal[opening.packet]);
}

/// Uncounts the previous attempt. Returns the place in the list of the next backend with a weight
/// above 0: behind the backend of that attempt, or from the beginning if none is left behind it.
template <class K>
std::uint16_t BalanceFor<K>::next_choice(const Service& service, const Opening<K>& opening) {
  abandon(opening.state);
  std::uint32_t place = plan_->backends[state_at(opening.state)].place;
  do {
    if (++place >= service.plan->listed.size()) place = 0;
  } while (service.pooled->candidates[place].weight == 0);
  return static_cast<std::uint16_t>(place);
}

template <class K>
void BalanceFor<K>::accept(std::uint16_t id, Opening<K>& opening) {
  Backend& backend = backends_[id];
  backend.connections.add(1);
  backend.live.add(1);
  fill(id, opening);
}

/// Accepts a connection to that backend, and writes the states of its entries.
template <class K>
void BalanceFor<K>::fill(std::uint16_t id, Opening<K>& opening) const {
  using Decision = typename Opening<K>::Decision;
  std::memcpy(opening.state, &id, sizeof(id));
  opening.decision = Decision::one_way;
  if (!backends_[id].has_replies) return;
  opening.accept_two_way(reversed(to_backend(backends_[id], opening.key).key));
  std::memcpy(opening.reply_state, &id, sizeof(id));
}

template <class K>
void BalanceFor<K>::count_active(const std::byte* state, std::int64_t more, bool is_proof) {
  Backend& backend = backends_[state_at(state)];
  backend.service->plan->proved->template add<false>(worker_, more);
  const auto change = static_cast<std::uint64_t>(more);
  if (backend.activity_of_all != nullptr) {
    backend.activity_of_all->active.add_beside_others(change);
    if (is_proof) backend.activity_of_all->proved.add_beside_others(1);
  } else {
    backend.activity.active.add(change);
    if (is_proof) backend.activity.proved.add(1);
  }
}

/// Counts in this worker, whichever worker opened the connection: only the sum over all workers
/// matters.
template <class K>
Verdict BalanceFor<K>::event(Event event, const K&, const std::byte* state, bool is_proved) {
  if (state_at(state) == kUnconcerned) return Verdict::tracked;
  switch (event) {
    case Event::proved:
      return prove(state);
    case Event::unproved:
      count_active(state, -1);
      break;
    case Event::closed:
      close(state, is_proved);
      break;
    case Event::abandoned:
      abandon(state);
      break;
    case Event::adopted:
      if (is_proved) count_active(state, 1);
      backends_[state_at(state)].live.add(1);
      break;
  }
  return Verdict::tracked;
}

template <class K>
Verdict BalanceFor<K>::prove(const std::byte* state) {
  if (turns_away(*backends_[state_at(state)].service)) return Verdict::service_limit;
  count_active(state, 1, true);
  return Verdict::tracked;
}

template <class K>
void BalanceFor<K>::close(const std::byte* state, bool proved) {
  if (proved) count_active(state, -1);
  backends_[state_at(state)].live.subtract(1);
}

template <class K>
void BalanceFor<K>::abandon(const std::byte* state) {
  backends_[state_at(state)].connections.subtract(1);
  close(state, false);
}

/// Returns the connection's fate. A connection on a backend that is gone begins anew if it is
/// unanswered. If it is answered, TCP is reset if the backend is unhealthy and `on_unhealthy` is
/// `reset`, and protocols other than TCP and SCTP begin anew with `move_udp`. All other connections
/// to services stay.
template <class K>
Fate BalanceFor<K>::fate(const K& key, const Traversal<K>*, const std::byte* state,
                         bool is_answered) const {
  const State id = state_at(state);
  if (id == kUnconcerned) {  // begins anew if it is unanswered and a service takes it
    const bool begins = !is_answered && plan_->current_for(key) != Plan::kNone;
    return begins ? Fate::begins_anew : Fate::stays;
  }
  const auto& backend = plan_->backends[id];
  if (!backend.is_gone()) return Fate::stays;
  const Spec& spec = backends_[id].service->plan->spec;
  if (!is_answered) return Fate::begins_anew;
  if (key.protocol == kProtocolSctp) return Fate::stays;
  if (key.protocol != kProtocolTcp) return spec.move_udp ? Fate::begins_anew : Fate::stays;
  const bool resets = !backend.is_healthy && spec.on_unhealthy == OnUnhealthy::reset;
  return resets ? Fate::reset : Fate::stays;
}

template <class K>
void BalanceFor<K>::write(const K& key, const std::byte* state, std::byte* image) const {
  Image is{};
  if (const State id = state_at(state); id != kUnconcerned)
    is = {backends_[id].address, port_for(backends_[id], key)};
  std::memcpy(image, &is, sizeof(is));
}

template <class K>
void BalanceFor<K>::resume(Opening<K>& opening) {
  if (plan_->serving_for(opening.key) == Plan::kNone) return pass_over(opening);
  opening.refuse(Verdict::no_backend);
  if (opening.image == nullptr) return;
  Image was;
  std::memcpy(&was, opening.image, sizeof(was));
  const K& key = opening.key;
  const bool keeps_port = was.port == key.destination_port;
  const auto serve_by = [&](std::uint32_t place) {
    const auto& service = *plan_->services[place];
    // A connection of a protocol without ports does not show its backend's port.
    const bool has_port = has_ports(key.protocol);
    auto id =
        plan_->backend_at(service, was.address, has_port ? std::optional(was.port) : std::nullopt);
    if (!id && has_port && keeps_port) id = plan_->backend_at(service, was.address, 0);
    if (id) fill(*id, opening);
    return id.has_value();
  };
  if (serve_by(plan_->serving_for(opening.key))) return;
  // A more specific service may have been configured since the connection began.
  for (std::uint32_t place = 0; place < plan_->services.size(); ++place) {
    const std::uint16_t port = has_ports(key.protocol) ? key.destination_port : 0;
    if (plan_->services[place]->spec.destination().takes(key.destination, port, key.protocol) &&
        serve_by(place))
      return;
  }
}

/// For each service, adopts the time at which `other`, another worker's balancer, last served a
/// packet without an entry for lack of room, if that time is later. So a connection that began
/// there without an entry keeps its backend here.
template <class K>
void BalanceFor<K>::continue_from(const FunctionFor<K>& other) {
  const auto& theirs = static_cast<const BalanceFor&>(other).services_;
  for (std::size_t i = 0; i < services_.size(); ++i)
    services_[i]->overflow.continue_from(theirs[i]->overflow);
}

// --- serve

template <class K>
void BalanceFor<K>::serve(Burst& burst, std::uint64_t places, const States<K>& states) {
  Lane<K>& lane = burst.lane<K>();
  std::uint64_t without = 0;
  for_each_bit(places & ~lane.replies, [&](unsigned i) {
    const ConnId id = lane.connection[i];
    if (id == ConnId::none) [[unlikely]] {
      without |= std::uint64_t{1} << i;
      return;
    }
    const State backend_id = state_at(states[id]);
    if (backend_id == kUnconcerned) [[unlikely]]
      return;
    Backend& backend = backends_[backend_id];
    send<Side::originator>(burst, lane, i, backend, port_for(backend, lane.key[i]),
                           Verdict::tracked);
  });
  for_each_bit(places & lane.replies, [&](unsigned i) {
    const ConnId id = lane.connection[i];
    if (id == ConnId::none) [[unlikely]] {
      without |= std::uint64_t{1} << i;
      return;
    }
    const State backend_id = state_at(states[id]);
    if (backend_id == kUnconcerned) [[unlikely]]
      return;
    Backend& backend = backends_[backend_id];
    const std::uint16_t port = virtual_port(backend, lane.key[i], id, states);
    send<Side::reply>(burst, lane, i, backend, port, Verdict::tracked);
  });
  if (without != 0) [[unlikely]]
    serve_without_entry(burst, lane, without);
}

/// Sends a packet to the backend, at `port`; or a reply to the client, from `port` of the service.
template <class K>
template <Side kSide>
void BalanceFor<K>::send(Burst& burst, Lane<K>& lane, unsigned i, Backend& backend,
                         std::uint16_t port, Verdict verdict) {
  constexpr bool kTo = kSide == Side::originator;
  const unsigned packet = lane.packet[i];
  if (kTo && backend.forward == Forward::dsr) [[unlikely]] {
    burst.send_by(packet, backend.address);
  } else if (kTo) {
    lane.set_destination(i, backend.address, port);
  } else {
    lane.set_source(i, backend.virtual_address, port);
  }
  (kTo ? backend.packets : backend.replies).add(1);
  (kTo ? backend.bytes : backend.reply_bytes).add(burst.wire_length[packet]);
  burst.verdict[packet] = verdict;
}

template <class K>
auto BalanceFor<K>::to_backend(const Backend& backend, const K& key) -> Target {
  if (backend.forward == Forward::dsr) return {key, backend.address};
  K to = key;
  to.destination = backend.address;
  to.destination_port = port_for(backend, key);
  return {to, std::nullopt};
}

template <class K>
auto BalanceFor<K>::from_backend(const Backend& backend, std::uint16_t port, const K& key)
    -> Target {
  K to = key;
  to.source = backend.virtual_address;
  to.source_port = port;
  return {to, std::nullopt};
}

template <class K>
auto BalanceFor<K>::target(const K& key, const std::byte* state) const -> Target {
  if (state_at(state) == kUnconcerned) return {key, std::nullopt};
  return to_backend(backends_[state_at(state)], key);
}

// --- state

template <class K>
typename BalanceFor<K>::State BalanceFor<K>::state_at(const std::byte* at) {
  State state;
  std::memcpy(&state, at, sizeof(state));
  return state;
}

template <class K>
std::uint16_t BalanceFor<K>::port_for(const Backend& backend, const K& key) {
  return backend.port != 0 && has_ports(key.protocol) ? backend.port : key.destination_port;
}

/// Returns the port of the service that the client has called. If the service takes any port and
/// its backend has a port of its own, only the originator's key shows that port; if the
/// originator's entry is gone, returns the reply's source port.
template <class K>
std::uint16_t BalanceFor<K>::virtual_port(const Backend& backend, const K& reply_key, ConnId reply,
                                          const States<K>& states) {
  if (backend.virtual_port != 0) return backend.virtual_port;
  const auto originator = states.originator(reply);
  if (backend.port == 0 || !originator) return reply_key.source_port;
  return states.header(*originator).key.destination_port;
}

template class BalanceFor<KeyV4>;
template class BalanceFor<KeyV6>;

}  // namespace millrace
