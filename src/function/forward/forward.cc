#include "function/forward/forward.h"

namespace millrace {

/// A key that another connection has can only be that of the same ends, met from the other side.
template <class K>
void ForwarderFor<K>::open(const Burst&, Opening<K>& opening) {
  if (opening.attempt > 0) return opening.refuse(Verdict::reply_collision);
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
    const bool found_no_place = verdict == Verdict::table_full || verdict == Verdict::over_budget;
    if ((found_no_place && config_.stateless_when_full) || verdict == Verdict::no_connection)
      verdict = Verdict::stateless;
  });
}

template class ForwarderFor<KeyV4>;
template class ForwarderFor<KeyV6>;

}  // namespace millrace
