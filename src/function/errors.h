// ICMP errors about packets that a function serves (RFC 5508, 4.2). Such an error is sent on to the
// sender of the packet that it quotes, and the quoted packet gets the addresses and ports with
// which that sender sent it. The line does this for every function.
#pragma once

#include "function/function.h"
#include "parse/quote.h"

namespace millrace {

/// Rewrites the burst's ICMP errors, and gives them the verdict `related`. In their lane
/// (`Burst::quoted`), the caller has set `connection` and `replies` for the lane's keys. Errors
/// about packets that are not served stay as they are. An error with a wrong checksum is dropped
/// (RFC 5508, REQ-3 a). `target_of(side, key, id)` returns how packets with the key `key`, which go
/// the same way as the error, leave; `id` is the entry of such packets, on the side `side` of their
/// connection. An error that leaves for where the function receives packets is to come again
/// (`Burst::again`); the lane then has the key with which it leaves.
template <class K, class TargetOf>
void send_errors_on(Burst& burst, FunctionFor<K>& function, TargetOf&& target_of) {
  Lane<K>& lane = burst.quoted<K>();
  for (unsigned i = 0; i < lane.size; ++i) {
    const unsigned packet = lane.packet[i];
    const K& key = lane.key[i];
    const ConnId id = lane.connection[i];
    const auto to = id != ConnId::none ? std::optional(target_of(lane.side(i), key, id))
                                       : function.target_without_entry(burst, packet, key);
    if (to && has_wrong_checksum<K>(burst.data[packet], burst.headers[packet])) {
      burst.verdict[packet] = Verdict::bad_checksum;
      continue;
    }
    // The lane has only errors whose quoted packet can be read, so `rewrite_error` returns true.
    if (!to || !rewrite_error(burst.data[packet], burst.headers[packet], key, to->key)) continue;
    const Zone customer = to->key.number_of_zone();
    if ((customer | key.number_of_zone()) != 0 && to->key != key) burst.send_to(packet, customer);
    if (to->next_hop) burst.send_by(packet, *to->next_hop);
    burst.verdict[packet] = Verdict::related;
    if (function.receives(to->key)) [[unlikely]] {
      burst.again |= std::uint64_t{1} << packet;
      lane.target[i] = to->key;
      lane.changed[i] = Lane<K>::kSource | Lane<K>::kDestination | Lane<K>::kZone;
    }
  }
}

}  // namespace millrace
