#include "host/host.h"

#include <algorithm>
#include <bit>

#include "core/elapsed.h"
#include "core/vlan_tag.h"

namespace millrace {

bool Allowance::take(Tick now) {
  const std::uint32_t passed = elapsed_ms(filled_, now);
  if (passed > 0) {
    left_ = std::min(left_ + std::min(passed, kAtOnce) * (kASecond / 1000), kAtOnce);
    filled_ = now;
  }
  if (left_ == 0) return false;
  --left_;
  return true;
}

bool HostCommon::hold(const HeldFrame& frame) {
  const auto is_his = [&frame](const HeldFrame& other) { return other.customer == frame.customer; };
  if (frame.customer != 0 &&
      std::ranges::count_if(held, is_his) >= std::ptrdiff_t{kMaxHeldOfCustomer})
    return false;
  const auto waits_with_it = [&frame](const HeldFrame& other) {
    return other.neighbour == frame.neighbour && other.is_v4 == frame.is_v4;
  };
  if (held.size() >= kMaxHeld) return false;
  if (std::ranges::count_if(held, waits_with_it) >= std::ptrdiff_t{kMaxHeldEach}) return false;
  held.push_back(frame);
  return true;
}

std::vector<HeldFrame> HostCommon::take_held(std::uint32_t neighbour, bool is_v4) {
  std::vector<HeldFrame> taken;
  std::erase_if(held, [&](const HeldFrame& frame) {
    if (frame.neighbour != neighbour || frame.is_v4 != is_v4) return false;
    taken.push_back(frame);
    return true;
  });
  return taken;
}

void HostCommon::send_own(const Outgoing& frame, Wire& wire) {
  counters.generated.add(1);
  wire.send(frame);
}

void HostCommon::send_on(const Neighbourhood& in, Outgoing frame, Wire& wire) {
  frame.link = static_cast<std::uint8_t>(in.link);
  if (in.customer != 0) {
    const auto access = tunnels->access_of(in.customer);
    if (!access) return wire.drop(frame.handle);
    frame.data -= kVlanTagBytes;
    frame.length = static_cast<std::uint16_t>(frame.length + kVlanTagBytes);
    put_tag(frame.data, access->vlan);
  }
  send_own(frame, wire);
}

std::vector<Tunnels::End> ends_of_tunnels(const HostConfig& config) {
  std::vector<Tunnels::End> ends;
  for (unsigned link = 0; link < config.links.size(); ++link) {
    const HostLink& is = config.links[link];
    const auto own =
        std::ranges::find(config.v4.own, link, [](const auto& one) { return one.link; });
    if (is.tunnel_overhead != 0 && own != config.v4.own.end())
      ends.push_back({link, own->address, is.mac, is.has_neighbours});
  }
  return ends;
}

Host::Host(const HostConfig& config)
    : common_{.links = config.links, .is_active = config.is_active},
      plan_(std::make_shared<const HostPlan>(config)),
      v4_(common_, plan_->v4, config.seed),
      v6_(common_, plan_->v6, config.seed),
      announces_(config.announces),
      has_kernel_(std::ranges::any_of(config.links, &HostLink::has_kernel)) {
  adopt_settings();
}

/// Adopts the plan's settings of links and errors.
void Host::adopt_settings() {
  common_.tells_unreachable = plan_->tells_unreachable;
  common_.tunnels = &plan_->tunnels;
  for (std::size_t link = 0; link < plan_->mss.size(); ++link) {
    common_.links[link].mss = plan_->mss[link];
    common_.links[link].tunnel_overhead = plan_->tunnel_overhead[link];
  }
  common_.limits_mss = std::ranges::any_of(plan_->mss, [](auto mss) { return mss != 0; });
}

void Host::begin(Tick now, Wire& wire) {
  if (announces_) {
    v4_.announce(wire);
    v6_.announce(wire);
  }
  v4_.keep(now, wire);
  v6_.keep(now, wire);
}

void Host::update(std::shared_ptr<const HostPlan>& plan, Tick now, Wire& wire) {
  plan_.swap(plan);
  adopt_settings();
  v4_.update(plan_->v4);
  v6_.update(plan_->v6);
  begin(now, wire);
}

void Host::tick(Tick now, Wire& wire) {
  v4_.tick(now, wire);
  v6_.tick(now, wire);
}

void Host::admit(Burst& burst, std::span<const Arrival> arrivals) {
  std::uint64_t unfiled = 0;
  for (const Arrival& arrival : arrivals) unfiled |= plan_->ingress.inspect(burst, arrival);
  unfile(burst, unfiled);
  if (plan_->tunnels.are_there()) [[unlikely]]
    plan_->tunnels.file(burst, arrivals);
}

std::uint64_t Host::looked_up(Burst& burst, const Steering& steering) const {
  return v4_.keep_for_host(burst, steering) | v6_.keep_for_host(burst, steering);
}

void Host::filed(Burst& burst, const Steering& steering) {
  if (has_kernel_ && (burst.quoted_v4.size | burst.quoted_v6.size) != 0)
    unfile(burst, v4_.errors_for_kernel(burst, steering) | v6_.errors_for_kernel(burst, steering));
}

bool Host::is_rewritten(Burst& burst, unsigned packet) {
  if (burst.headers[packet].family == 4) return HostFor<AddressV4>::is_rewritten(burst, packet);
  return burst.headers[packet].family == 6 && HostFor<AddressV6>::is_rewritten(burst, packet);
}

Host::Routed Host::route(Burst& burst, std::uint64_t forward, std::span<Outgoing> out, Wire& wire) {
  Routed routed;
  for (unsigned i = 0; i < burst.size; ++i) {
    if (is_drop(burst.verdict[i]) && !is_answered(burst.verdict[i])) continue;
    if (burst.verdict[i] == Verdict::hopped || burst.verdict[i] == Verdict::consumed) continue;
    const std::uint64_t bit = std::uint64_t{1} << i;
    const bool is_of_kernel = (burst.of_host & bit) != 0;
    if (is_of_kernel && is_drop(burst.verdict[i])) continue;
    if (is_of_kernel && !is_rewritten(burst, i)) {
      out[i] = {burst.handle[i], burst.data[i], burst.length[i], burst.link[i]};
      if (!is_served(burst.verdict[i])) burst.verdict[i] = Verdict::passed;
      routed.sent |= bit;
      continue;
    }
    Handling handling{burst, i, (forward & bit) != 0, out[i], wire};
    const unsigned family = burst.headers[i].family;
    const After after = family == 4   ? v4_.route(handling)
                        : family == 6 ? v6_.route(handling)
                                      : hear_arp(handling);
    if (after == After::sent) routed.sent |= bit;
    if (after == After::taken) routed.taken |= bit;
  }
  return routed;
}

After Host::hear_arp(Handling& h) {
  const unsigned link = h.came_on();
  const auto notice = read_arp({h.packet(), h.burst.length[h.i]});
  if (notice && common_.links[link].has_neighbours) {
    v4_.hear(*notice, {link, h.burst.customer_of(h.i)}, true, h.now(), h.wire);
    if (common_.links[link].has_kernel && v4_.concerns_kernel(*notice))
      h.wire.show_to_kernel(h.burst.handle[h.i], link);
    h.verdict() = Verdict::consumed;
  }
  return After::stays;
}

bool Host::concerns_all(std::span<const std::byte> frame, const Headers& headers) {
  if (headers.family == 0) {
    const auto notice = read_arp(frame);
    return notice && !notice->is_question;
  }
  const auto notice = read_discovery(frame, headers);
  return notice && !notice->is_question;
}

void Host::hear(std::span<const std::byte> frame, const Neighbourhood& on, Tick now, Wire& wire) {
  if (const auto notice = read_arp(frame)) {
    v4_.hear(*notice, on, false, now, wire);
  } else if (const auto headers = headers_of_discovery(frame)) {
    if (const auto told = read_discovery(frame, *headers)) v6_.hear(*told, on, false, now, wire);
  }
}

std::vector<KnownNeighbour> Host::known() const {
  std::vector<KnownNeighbour> all;
  v4_.append_known(all);
  v6_.append_known(all);
  return all;
}

std::vector<SilentNeighbour> Host::silent() const {
  std::vector<SilentNeighbour> all;
  v4_.append_silent(all);
  v6_.append_silent(all);
  return all;
}

bool Host::keeps(const AnyKey& key, const Steering& steering) const {
  if (const auto* v4 = std::get_if<KeyV4>(&key)) return v4_.is_for_host(*v4, steering);
  return v6_.is_for_host(std::get<KeyV6>(key), steering);
}

WayTo Host::way_to(const AnyAddress& destination, Zone customer) const {
  if (const auto* v4 = std::get_if<AddressV4>(&destination)) return v4_.way_to(*v4, customer);
  return v6_.way_to(std::get<AddressV6>(destination), customer);
}

std::vector<Rival> Host::rivals() const {
  std::vector<Rival> all;
  v4_.append_rivals(all);
  v6_.append_rivals(all);
  return all;
}

void Host::know(const KnownNeighbour& neighbour, Tick now, Wire& wire) {
  const auto& [link, address, mac, customer] = neighbour;
  if (const auto* v4 = std::get_if<AddressV4>(&address)) {
    v4_.know({link, customer}, *v4, mac, now, wire);
  } else {
    v6_.know({link, customer}, std::get<AddressV6>(address), mac, now, wire);
  }
}

void Host::end(Wire& wire) {
  for (const HeldFrame& held : common_.held) {
    if (!held.is_own) common_.counters.unresolved.add(1);
    wire.drop(held.frame.handle);
  }
  common_.held.clear();
}

}  // namespace millrace
