// The part of `HostFor` that treats fragments. Fragments of services' traffic are dropped, since
// only a datagram's first fragment has ports. Fragments of a ping to the host are returned one by
// one. A later fragment of an unknown datagram is dropped if services may take its destination. All
// other fragments are routed like whole packets.
#include <algorithm>
#include <bit>

#include "core/protocol.h"
#include "host/host_for.h"

namespace millrace {

template <class A>
auto HostFor<A>::filed(Burst& burst, const Steering& steering, std::uint64_t fragments,
                       bool keeps_all) -> Apart {
  ++bursts_;
  std::erase_if(pending_, [this](const Pending& one) { return bursts_ - one.burst > kInFlight; });
  Apart apart;
  std::uint64_t keyed = 0;
  const auto& lane = burst.lane<Key<A>>();
  for (unsigned n = 0; n < lane.size && fragments != 0; ++n) {
    const std::uint64_t bit = std::uint64_t{1} << lane.packet[n];
    if ((fragments & bit) == 0) continue;
    const Key<A>& key = lane.key[n];
    const Steered steered = steering.steer({&key, 1});
    const std::uint16_t port = has_ports(key.protocol) ? key.source_port : 0;
    const bool is_to_service =
        steered.is_by_source(0) && tables_->served.find(key.destination) != nullptr;
    const bool is_from_service =
        steered.is_by_destination(0) &&
        tables_->replies.find(key.source, port, key.protocol) != DestinationTable<A>::kNone;
    if (is_to_service || is_from_service) apart.refused |= bit;
    keyed |= bit;
  }
  for (; fragments != 0; fragments &= fragments - 1) {
    const auto i = static_cast<unsigned>(std::countr_zero(fragments));
    const auto fragment = read_fragment<A>(burst.data[i], burst.headers[i]);
    if (!fragment || !fragment->is_first) continue;
    const auto& datagram = fragment->datagram;
    if ((apart.refused >> i & 1) != 0) {
      treatments_.note(datagram, Treatment::refused, burst.now);
      continue;
    }
    // A first fragment to the host or a virtual address, or in a burst that may be handed over,
    // stays with this worker, untracked: later fragments have no key by which this worker could
    // hand them over to the same other worker.
    const Route<A>* const route = tables_->routes.find(datagram.destination);
    const bool is_own = route != nullptr && route->link == kLocal;
    if ((keyed >> i & 1) != 0 && (is_own || !keeps_all)) {
      apart.untracked |= std::uint64_t{1} << i;
    } else {
      pending_.push_back({burst.handle[i], datagram, bursts_});
    }
    if (!is_own && tables_->served.find(datagram.destination) != nullptr)
      treatments_.note(datagram, Treatment::routed, burst.now);
  }
  return apart;
}

template <class A>
void HostFor<A>::resolve(Burst& burst, unsigned i) {
  const auto found = std::ranges::find(pending_, burst.handle[i], &Pending::handle);
  if (found == pending_.end()) return;
  if (is_served(burst.verdict[i]) && is_rewritten(burst, i)) {
    burst.verdict[i] = Verdict::service_fragment;
    treatments_.note(found->datagram, Treatment::refused, burst.now);
  }
  pending_.erase(found);
}

/// Treats a later fragment like its datagram's first one. If that is not known, drops the fragment
/// if services may take its destination, and else routes it.
template <class A>
After HostFor<A>::route_fragment(Handling& h) {
  const auto fragment = read_fragment<A>(h.packet(), h.headers());
  const Treatment treatment =
      fragment ? treatments_.find(fragment->datagram, h.now()) : Treatment::unknown;
  if (treatment == Treatment::answered) {
    swap_ends(h.packet(), h.headers());
    return send_back(h, fragment->datagram.source);
  }
  const bool is_served =
      tables_->served.find(destination_of<A>(h.packet(), h.headers())) != nullptr;
  if (treatment != Treatment::refused && (treatment == Treatment::routed || !is_served))
    return route_whole(h);
  h.verdict() = Verdict::service_fragment;
  return After::stays;
}

template auto HostFor<AddressV4>::filed(Burst&, const Steering&, std::uint64_t, bool) -> Apart;
template auto HostFor<AddressV6>::filed(Burst&, const Steering&, std::uint64_t, bool) -> Apart;
template void HostFor<AddressV4>::resolve(Burst&, unsigned);
template void HostFor<AddressV6>::resolve(Burst&, unsigned);
template After HostFor<AddressV4>::route_fragment(Handling&);
template After HostFor<AddressV6>::route_fragment(Handling&);

}  // namespace millrace
