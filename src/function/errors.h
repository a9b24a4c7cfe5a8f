// ICMP errors about packets that a function serves (RFC 5508, 4.2): they are sent on to whom the
// packets came from, rewritten to what that one knows. The line's work, for every function.
#pragma once

#include "function/function.h"
#include "parse/quote.h"

namespace millrace {

/// Rewrites the burst's errors, whose `connection` is the one that they are about, and gives them
/// the verdict `related`, where it is known who is to hear of them. Others are left alone.
/// `target_of(side, key, id)` is how packets with that key leave that meet that entry.
template <class K, class TargetOf>
void send_errors_on(Burst& burst, FunctionFor<K>& function, TargetOf&& target_of) {
  const Lane<K>& lane = burst.quoted<K>();
  for (unsigned i = 0; i < lane.size; ++i) {
    const unsigned packet = lane.packet[i];
    const K& key = lane.key[i];
    const ConnId id = lane.connection[i];
    const auto to = id != ConnId::none ? std::optional(target_of(lane.side(i), key, id))
                                       : function.target_without_entry(burst, packet, key);
    // The parser files only errors that quote a packet which can be read.
    if (!to || !rewrite_error(burst.data[packet], burst.headers[packet], key, to->key)) continue;
    if (to->next_hop) burst.send_by(packet, *to->next_hop);
    burst.verdict[packet] = Verdict::related;
  }
}

}  // namespace millrace
