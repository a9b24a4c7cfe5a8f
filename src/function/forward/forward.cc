#include "function/forward/forward.h"

namespace millrace {

/// Accepts the connection with the reversed key as reply key. Refuses it with `passed` if that key
/// is taken, as by a packet from a sender to itself, or behind a function that rewrites an end: the
/// packet leaves untracked, unless another function drops it.
template <class K>
void ForwarderFor<K>::open(const Burst&, Opening<K>& opening) {
  if (opening.attempt > 0) return opening.refuse(Verdict::passed);
  opening.accept_two_way(reversed(opening.key));
}

template <class K>
void ForwarderFor<K>::serve(Burst& burst, std::uint64_t places, const States<K>&) {
  const Lane<K>& lane = burst.lane<K>();
  for_each_bit(places, [&](unsigned i) {
    Verdict& verdict = burst.verdict[lane.packet[i]];
    if (lane.connection[i] != ConnId::none) [[likely]] {
      verdict = Verdict::tracked;
      return;
    }
    const bool may_go_on = verdict == Verdict::no_connection || verdict == Verdict::over_budget ||
                           (verdict == Verdict::table_full && stateless_when_full_);
    if (may_go_on) verdict = Verdict::stateless;
    // The packet has no connection: another function of the chain takes it for a reply.
    if (verdict == Verdict::tracked) verdict = Verdict::no_service;
  });
}

template class ForwarderFor<KeyV4>;
template class ForwarderFor<KeyV6>;

}  // namespace millrace
