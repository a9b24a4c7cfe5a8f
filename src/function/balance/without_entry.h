// Service without an entry, by consistent hashing: for packets that found no room in the table or
// begin no connection, and for the replies to such packets; if nothing is tracked, for all packets
// to services. A part of balance.cc.
#pragma once

#include "function/balance/balance.h"

namespace millrace {

template <class K>
void BalanceFor<K>::serve_without_entry(Burst& burst, Lane<K>& lane, std::uint64_t places) {
  const std::uint64_t originators = places & ~lane.replies;
  if (stateful_) {
    for_each_bit(originators, [&](unsigned i) { serve_by_maglev<true>(burst, lane, i); });
  } else {
    for_each_bit(originators, [&](unsigned i) { serve_by_maglev<false>(burst, lane, i); });
  }
  for_each_bit(places & lane.replies, [&](unsigned i) { serve_answer(burst, lane, i); });
}

/// Serves the lane's packet `i`, from the originator. `kStateful`: true if connections are tracked;
/// if not, services have no limits.
template <class K>
template <bool kStateful>
[[gnu::always_inline]] inline void BalanceFor<K>::serve_by_maglev(Burst& burst, Lane<K>& lane,
                                                                  unsigned i) {
  const K& key = lane.key[i];
  Verdict& verdict = burst.verdict[lane.packet[i]];
  // A packet that found no room may be its connection's first one. If it is served, the
  // connection's later packets must go by Maglev, too (`Overflow`).
  const bool found_no_place =
      verdict == Verdict::table_full || (kStateful && verdict == Verdict::over_budget);
  const bool is_refused = kStateful && verdict == Verdict::table_full && !stateless_when_full_;
  const bool begins_none = kStateful && verdict == Verdict::no_connection;
  if (is_refused || (!found_no_place && !begins_none)) return;
  Service* service = find(key);
  if (service == nullptr) {
    verdict = Verdict::no_service;
    return;
  }
  if (service->plan->willing == 0) {
    verdict = without_backend(service->plan->spec.no_backend);
    if (verdict != Verdict::passed) service->refused.add(1);
    return;
  }
  if (kStateful && found_no_place) {
    if (turns_away(*service)) {
      verdict = Verdict::service_limit;
      return;
    }
    service->overflow.note(burst.now);
  }
  const Maglev* const table = table_of(*service);
  if (table == nullptr) {
    verdict = Verdict::not_ready;
    return;
  }
  Backend& backend = backends_[service->plan->listed[table->pick(hash_(key))]];
  service->stateless.add(1);
  send<Side::originator>(burst, lane, i, backend, port_for(backend, key), Verdict::stateless);
}

/// Returns the backend and service of a reply without an entry. Such a reply is one to packets that
/// Maglev has sent to the reply's sender, or would send there. A backend's SYN or INIT begins a
/// connection of its own, and is no reply. Backends of a service that takes any port are left out:
/// packets of their own connections look the same as replies.
template <class K>
auto BalanceFor<K>::find_reply_source(const Burst& burst, unsigned packet, const K& reply_key,
                                      K& originator, bool& waits) -> const ReplySource* {
  if (begins_handshake(burst.signal[packet]) || !has_ports(reply_key.protocol)) return nullptr;
  const auto* there = plan_->serving_at(reply_key);
  if (there == nullptr) return nullptr;
  const ReplySource* found = nullptr;
  for (const ReplySource& reply_source : there->reply_sources) {
    Service& service = *services_[reply_source.service];
    if (service.plan->willing == 0) continue;
    const Maglev* const table = table_of(service);
    waits = waits || table == nullptr;
    if (table == nullptr) continue;
    const Backend& backend = backends_[reply_source.backend];
    K asked = reversed(reply_key);
    asked.destination = backend.virtual_address;
    asked.destination_port = backend.virtual_port;
    if (service.plan->listed[table->pick(hash_(asked))] != reply_source.backend) continue;
    if (found != nullptr) return nullptr;  // it may be a reply of either service
    found = &reply_source;
    originator = asked;
  }
  return waits ? nullptr : found;
}

template <class K>
Verdict BalanceFor<K>::recognise_reply(const Burst& burst, unsigned packet, const K& reply_key,
                                       K& originator) {
  bool waits = false;
  const ReplySource* reply_source = find_reply_source(burst, packet, reply_key, originator, waits);
  if (reply_source == nullptr) return Verdict::no_service;
  return turns_away(*services_[reply_source->service]) ? Verdict::service_limit : Verdict::tracked;
}

template <class K>
void BalanceFor<K>::serve_answer(Burst& burst, Lane<K>& lane, unsigned i) {
  const K& key = lane.key[i];
  const unsigned packet = lane.packet[i];
  if (is_drop(burst.verdict[packet])) return;
  const auto* there = plan_->serving_at(key);
  const bool is_stray = there != nullptr && !there->is_direct;
  burst.verdict[packet] = is_stray ? Verdict::stray_reply : Verdict::no_service;
  K originator;
  bool waits = false;
  const ReplySource* reply_source = find_reply_source(burst, packet, key, originator, waits);
  if (waits) burst.verdict[packet] = Verdict::not_ready;
  if (reply_source == nullptr) return;
  Backend& backend = backends_[reply_source->backend];
  services_[reply_source->service]->stateless.add(1);
  send<Side::reply>(burst, lane, i, backend, backend.virtual_port, Verdict::stateless);
}

template <class K>
auto BalanceFor<K>::target_without_entry(const Burst& burst, unsigned packet, const K& key)
    -> std::optional<Target> {
  const auto side = plan_->index->table.only_catch_all() ? Side::originator : plan_->side(key);
  if (!side) return std::nullopt;
  if (side == Side::originator) {
    const Backend* const backend = backend_by_maglev(key);
    return backend != nullptr ? std::optional(to_backend(*backend, key)) : std::nullopt;
  }
  K asked;
  bool waits = false;
  const ReplySource* const reply_source = find_reply_source(burst, packet, key, asked, waits);
  if (reply_source == nullptr) return std::nullopt;
  const Backend& backend = backends_[reply_source->backend];
  return from_backend(backend, backend.virtual_port, key);
}

/// Returns the backend to which packets with this key and no entry are sent; null if there is none.
template <class K>
auto BalanceFor<K>::backend_by_maglev(const K& key) -> const Backend* {
  Service* const service = find(key);
  if (service == nullptr || service->plan->willing == 0) return nullptr;
  const Maglev* const table = table_of(*service);
  if (table == nullptr) return nullptr;
  return &backends_[service->plan->listed[table->pick(hash_(key))]];
}

}  // namespace millrace
