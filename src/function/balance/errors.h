// ICMP errors about packets that the load balancer has rewritten (RFC 5508, 4.2): they are sent on,
// and their quotes rewritten to the packets that those who hear of them had sent. A part of
// balance.cc.
#pragma once

#include "function/balance/balance.h"
#include "parse/quote.h"

namespace millrace {

template <class K>
void BalanceFor<K>::serve_errors(Burst& burst, const States<K>& originators,
                                 const States<K>& replies) {
  const Lane<K>& to_backend = burst.quoted<K>().originator;
  for (unsigned i = 0; i < to_backend.size; ++i) {
    const ConnId id = to_backend.connection[i];
    const K& key = to_backend.key[i];
    const Backend* backend =
        id != ConnId::none ? &backends_[state_at(originators[id])] : backend_by_maglev(key);
    if (backend == nullptr) continue;
    pass_on<Side::originator>(burst, to_backend.packet[i], *backend, port_for(*backend, key));
  }
  const Lane<K>& to_client = burst.quoted<K>().reply;
  for (unsigned i = 0; i < to_client.size; ++i) {
    const ConnId id = to_client.connection[i];
    const K& key = to_client.key[i];
    const unsigned packet = to_client.packet[i];
    if (id != ConnId::none) {
      const Backend& backend = backends_[state_at(replies[id])];
      pass_on<Side::reply>(burst, packet, backend,
                           virtual_port(backend, key, id, originators, replies));
      continue;
    }
    K asked;
    bool waits = false;
    const Answering* answering = find_answering(burst, packet, key, asked, waits);
    if (answering != nullptr) {
      const Backend& backend = backends_[answering->backend];
      pass_on<Side::reply>(burst, packet, backend, backend.virtual_port);
    }
  }
}

/// Where what has no entry was sent, and would be sent now; null where nothing is.
template <class K>
auto BalanceFor<K>::backend_by_maglev(const K& key) -> const Backend* {
  Service* const service = find(key);
  if (service == nullptr || service->plan->willing == 0) return nullptr;
  const Maglev* const table = table_of(*service);
  if (table == nullptr) return nullptr;
  return &backends_[service->plan->listed[table->pick(hash_(key))]];
}

/// To the backend, about what it sent from that port; or to the client, about what that sent to
/// that port of the service. Whoever on the way met the error appears as the service: what is
/// behind it is nobody's business.
template <class K>
template <Side kSide>
void BalanceFor<K>::pass_on(Burst& burst, unsigned packet, const Backend& backend,
                            std::uint16_t port) {
  constexpr bool kTo = kSide == Side::originator;
  if (kTo && backend.forward == Forward::dsr) {
    direct(burst, packet, backend);
    burst.verdict[packet] = Verdict::related;
    return;
  }
  std::byte* const data = burst.data[packet];
  const Headers& headers = burst.headers[packet];
  const Address& address = kTo ? backend.address : backend.virtual_address;
  const auto quote = read_quote<K>(data, headers);
  if (!quote) return;
  rewrite_quote<K>(kTo ? End::source : End::destination, data, headers, *quote, address, port);
  rewrite<K>(kTo ? End::destination : End::source, data, burst.length[packet], headers, address, 0);
  burst.verdict[packet] = Verdict::related;
}

}  // namespace millrace
