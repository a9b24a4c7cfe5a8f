#include "function/nat/nat.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "core/protocol.h"
#include "core/signal.h"

namespace millrace {
namespace {

constexpr std::uint8_t kSource = Lane<KeyV4>::kSource;
constexpr std::uint8_t kDestination = Lane<KeyV4>::kDestination;
constexpr std::uint8_t kIdentifier = Lane<KeyV4>::kIdentifier;
constexpr std::uint8_t kZone = Lane<KeyV4>::kZone;

/// Returns the remote end of an originator's mapping. An ICMP query has no remote port.
EndpointV4 remote_of(const KeyV4& key) {
  return {key.destination, key.protocol == kProtocolIcmp ? std::uint16_t{0} : key.destination_port};
}

/// True if the lane's packet `i`, from outside, is activity of its session: of TCP, if it is a SYN,
/// a FIN or a RST that changes the state, and so begins a timeout; of other protocols with a
/// handshake, any packet.
bool counts_from_outside(const Burst& burst, const Lane<KeyV4>& lane, unsigned i) {
  const std::uint8_t protocol = lane.key[i].protocol;
  if (protocol != kProtocolTcp) return has_handshake(protocol);
  return (lane.advanced >> i & 1) != 0 && burst.signal[lane.packet[i]] != Signal::ack;
}

/// Replaces the parts `bits` of the lane's packet `i`. Packets of both directions come in turn, so
/// a branch by direction would often be predicted wrongly; unless another function of the chain has
/// changed the packet, too, no other part of its target is needed.
void change(Lane<KeyV4>& lane, unsigned i, const KeyV4& to, int bits) {
  KeyV4& target = lane.target[i];
  const auto changed = static_cast<std::uint8_t>(bits);
  target = lane.changed[i] == 0 ? to : Lane<KeyV4>::leaving(target, to, changed);
  lane.changed[i] |= changed;
}

}  // namespace

Part NatV4::part() const {
  return {.name = "nat",
          .version = 3,
          .originator_bytes = sizeof(State),
          .reply_bytes = sizeof(Ends),
          .alignment = alignof(State),
          .image_bytes = sizeof(Image)};
}

NatV4::Need NatV4::need_of(const KeyV4& key) const {
  const Zone zone = key.number_of_zone();
  Need need{.rule = settings_->rule_for(zone, key.source, key.destination),
            .is_in = is_public(key.destination),
            .is_hosts = settings_->is_hosts(zone, key.destination)};
  if (need.is_hosts && need.rule != nullptr && !(need.is_in && is_taken(*settings_, *blocks_, key)))
    return {.is_hosts = true};
  // A port's customer may send to other customers only what has a rule.
  if (need.rule == nullptr && zone != 0) need.is_in = false;
  return need;
}

bool NatV4::is_taken(const NatSettings& settings, const PortBlocks& blocks, const KeyV4& key) {
  return settings.forwards.to(key.destination, key.destination_port, key.protocol) != nullptr ||
         (key.protocol != kProtocolIcmp && blocks.is_mapped(destination_of(key), key.protocol));
}

// --- screen

std::uint64_t NatV4::screen(Burst& burst, Lane<KeyV4>& lane, std::uint64_t unknown) {
  now_ = burst.now;
  std::uint64_t begin = 0;
  std::size_t soon = 0;
  std::array<std::uint8_t, PortBlocks::kSoon> place;
  for_each_bit(unknown, [&](unsigned i) {
    const KeyV4& key = lane.key[i];
    Verdict& verdict = burst.verdict[lane.packet[i]];
    const Need need = need_of(key);
    if (need.rule == nullptr && !need.is_in) {
      verdict = Verdict::no_service;
      return;
    }
    // The answers of customers come to a public address, whose group is another customer's.
    if (need.rule != nullptr && blocks_->has_groups() && !need.is_in &&
        settings_->rule_of(0, key.destination) != nullptr) {
      verdict = Verdict::no_service;
      return;
    }
    const bool begins = begins_strictly(burst.signal[lane.packet[i]]);
    const bool is_forward =
        settings_->forwards.to(key.destination, key.destination_port, key.protocol) != nullptr;
    if (need.rule == nullptr && !(begins && is_forward)) {
      const auto inside = begins ? blocks_->enter({.outside = destination_of(key),
                                                   .remote = source_of(key),
                                                   .protocol = key.protocol,
                                                   .now = burst.now},
                                                  false)
                                 : std::unexpected(Verdict::no_mapping);
      if (!inside) {
        verdict = need.is_hosts ? Verdict::no_service : inside.error();
        return;
      }
    } else if (!begins) {
      verdict = Verdict::no_connection;
      return;
    }
    begin |= std::uint64_t{1} << i;
    if (need.rule == nullptr) return;
    place[soon] = static_cast<std::uint8_t>(i);
    soon_[soon++] = wanted_of(key, *need.rule);
  });
  std::array<EndpointV4, PortBlocks::kSoon> likely;
  blocks_->prefetch(std::span(soon_).first(soon), likely);
  for (std::size_t n = 0; n < soon; ++n) {
    if (likely[n].port == 0) continue;
    const unsigned i = place[n];
    lane.set_source(i, likely[n].address, likely[n].port);
    if (lane.key[i].protocol == kProtocolIcmp) lane.set_identifier(i, likely[n].port);
    if (lane.key[i].number_of_zone() != 0) lane.set_zone(i, {});
  }
  return begin;
}

// --- open

void NatV4::open(const Burst& burst, Opening<KeyV4>& opening) {
  release_resumed();
  if (opening.is_resumed) return resume(opening);
  now_ = burst.now;
  const Need need = need_of(opening.key);
  if (need.rule == nullptr && !need.is_in) return pass_over(opening);
  if (!begins_strictly(burst.signal[opening.packet])) return opening.refuse(Verdict::no_connection);
  need.rule != nullptr ? open_out(opening, *need.rule) : open_in(opening, need.is_hosts);
}

/// Gives the originator, a customer, a public end.
void NatV4::open_out(Opening<KeyV4>& opening, const NatRule& rule) {
  const KeyV4& key = opening.key;
  const bool is_first = opening.attempt == 0;
  State before;
  if (!is_first) {
    std::memcpy(&before, opening.state, sizeof(before));
    if (!before.port.is_there() || !settings_->pools[rule.pool].shares_ports())
      return opening.refuse(Verdict::reply_collision);
  }
  State state;
  Ends& ends = state.ends;
  ends.changed = kSource;
  const NatForward* const forward =
      settings_->forwards.from(key.number_of_zone(), key.source, key.source_port, key.protocol);
  if (forward != nullptr) {
    ends.address = forward->address;
    ends.port = forward->out(key.source_port);
  } else {
    PortBlocks::Wanted wanted = wanted_of(key, rule);
    wanted.attempt = opening.attempt;
    const auto taken = blocks_->take(wanted);
    if (!taken) return opening.refuse(is_first ? taken.error() : Verdict::reply_collision);
    state.port = taken->ref;
    ends.address = taken->outside.address;
    ends.port = taken->outside.port;
    // A query has its identifier in place of both ports. Forwards leave it as it is.
    if (key.protocol == kProtocolIcmp) ends.changed |= kIdentifier;
  }
  if (key.number_of_zone() != 0) ends.changed |= kZone;
  if (is_first) return accept(opening, state, counters_.sessions);
  release(key, before);
  link(opening, state);
}

/// Finds the customer's end of the public end that the originator sends to.
void NatV4::open_in(Opening<KeyV4>& opening, bool is_hosts) {
  const KeyV4& key = opening.key;
  if (opening.attempt > 0) return opening.refuse(Verdict::reply_collision);
  State state;
  Ends& ends = state.ends;
  ends.changed = kDestination;
  Zone leaves_to = 0;
  if (const auto* const forward =
          settings_->forwards.to(key.destination, key.destination_port, key.protocol);
      forward != nullptr) {
    leaves_to = zone_of(forward->customer);
    ends.address = forward->inside;
    ends.port = forward->in(key.destination_port);
  } else {
    const auto inside = blocks_->enter({.outside = destination_of(key),
                                        .remote = source_of(key),
                                        .protocol = key.protocol,
                                        .now = now_},
                                       true);
    if (!inside && is_hosts) return pass_over(opening);
    if (!inside) return opening.refuse(inside.error());
    leaves_to = zone_of(inside->customer);
    state.port = inside->ref;
    ends.address = inside->inside.address;
    ends.port = inside->inside.port;
    if (key.protocol == kProtocolIcmp) ends.changed |= kIdentifier;
  }
  if (leaves_to != 0) {
    ends.changed |= kZone;
    KeyV4 leaves;
    leaves.set_zone(leaves_to);
    ends.zone = leaves.zone;
  }
  accept(opening, state, counters_.from_outside);
}

PortBlocks::Wanted NatV4::wanted_of(const KeyV4& key, const NatRule& rule) const {
  return {.inside = source_of(key),
          .remote = remote_of(key),
          .customer = NatSettings::customer_by(rule, key.number_of_zone(), key.source),
          .protocol = key.protocol,
          .pool = rule.pool,
          .now = now_,
          .forwards = &settings_->forwards};
}

/// Accepts and counts a session.
void NatV4::accept(Opening<KeyV4>& opening, const State& state, Counter& opened) {
  opened.add(1);
  counters_.live.add(1);
  link(opening, state);
}

/// Accepts a session: writes its entries.
void NatV4::link(Opening<KeyV4>& opening, State state) const {
  const KeyV4& key = opening.key;
  const bool is_out = (state.ends.changed & kSource) != 0;
  Ends reply{.address = is_out ? key.source : key.destination,
             .port = is_out ? key.source_port : key.destination_port,
             .changed = is_out ? kDestination : kSource,
             .zone = key.zone};
  reply.changed |= state.ends.changed & (kIdentifier | kZone);
  const KeyV4 leaves = state.ends.leaving(key);
  if (is_out && is_public(leaves.destination)) state.ends.changed |= kAgain;
  if (!is_out && is_public(key.source)) reply.changed |= kAgain;
  std::memcpy(opening.state, &state, sizeof(state));
  std::memcpy(opening.reply_state, &reply, sizeof(reply));
  opening.accept_two_way(reversed(leaves));
}

/// Leaves a connection that is not translated to the other functions of a chain.
void NatV4::pass_over(Opening<KeyV4>& opening) {
  opening.decision = Opening<KeyV4>::Decision::unconcerned;
  opening.refusal = Verdict::no_service;
  const State none{};
  std::memcpy(opening.state, &none, sizeof(none));
  std::memcpy(opening.reply_state, &none.ends, sizeof(none.ends));
}

// --- the life of a session

/// Ends the use of its public port by the session with this originator's key.
void NatV4::release(const KeyV4& key, const State& state, bool is_proved) {
  if (!state.port.is_there()) return;
  const bool is_out = (state.ends.changed & kSource) != 0;
  blocks_->release(state.port, key.protocol, is_out ? key.destination : key.source, now_,
                   is_out || is_proved);
}

void NatV4::release_resumed() {
  if (resumed_) release(resumed_->key, resumed_->state);
  resumed_.reset();
}

/// A session from outside counts for its customer only while it is proved.
Verdict NatV4::event(Event event, const KeyV4& key, const std::byte* at, bool is_proved) {
  State state;
  std::memcpy(&state, at, sizeof(state));
  if (state.ends.changed == 0) return Verdict::tracked;
  const bool is_from_outside = (state.ends.changed & kSource) == 0 && state.port.is_there();
  const auto hold = [&](bool is_limited) {
    return !is_from_outside || blocks_->hold(state.port, key.protocol, key.source, is_limited);
  };
  switch (event) {
    case Event::abandoned:
      ((state.ends.changed & kSource) != 0 ? counters_.sessions : counters_.from_outside)
          .subtract(1);
      [[fallthrough]];
    case Event::closed:
      release(key, state, is_proved);
      counters_.live.subtract(1);
      break;
    case Event::adopted:
      resumed_.reset();
      if (is_proved) hold(false);
      counters_.live.add(1);
      break;
    case Event::proved:
      if (!hold(true)) return Verdict::customer_limit;
      break;
    case Event::unproved:
      if (is_from_outside) blocks_->let_go(state.port, key.protocol, key.source);
      break;
  }
  return Verdict::tracked;
}

// --- serve

void NatV4::serve(Burst& burst, std::uint64_t places, const States<KeyV4>& states) {
  now_ = burst.now;
  Lane<KeyV4>& lane = burst.lane<KeyV4>();
  std::uint64_t again = 0;
  std::uint64_t out = 0;
  std::uint64_t in = 0;
  for_each_bit(places, [&](unsigned i) {
    Verdict& verdict = burst.verdict[lane.packet[i]];
    if (lane.connection[i] == ConnId::none) [[unlikely]] {
      // Nothing that is to be translated may leave without being so.
      if (need_of(lane.leaving(i)).is_there() && is_served(verdict))
        verdict = Verdict::no_connection;
      if (verdict == Verdict::tracked) verdict = Verdict::no_service;
      return;
    }
    Ends ends;
    std::memcpy(&ends, states[lane.connection[i]], sizeof(ends));
    if (ends.changed == 0) return;
    const bool is_out = (ends.changed & kSource) != 0;
    change(lane, i, ends.target(), ends.changed & ~kAgain);
    const std::uint64_t counts = counts_from_outside(burst, lane, i) ? 1 : 0;
    lane.idle |= (~(std::uint64_t{is_out} | counts) & 1) << i;
    again |= std::uint64_t{(ends.changed & kAgain) != 0} << lane.packet[i];
    out += is_out;
    in += !is_out;
    verdict = Verdict::tracked;
  });
  burst.again |= again;
  counters_.out_packets.add(out);
  counters_.in_packets.add(in);
}

// --- another worker, another process

auto NatV4::target(const KeyV4& key, const std::byte* at) const -> Target {
  Ends ends;
  std::memcpy(&ends, at, sizeof(ends));
  return {ends.leaving(key), std::nullopt};
}

void NatV4::write(const KeyV4& key, const std::byte* at, std::byte* image) const {
  State state;
  std::memcpy(&state, at, sizeof(state));
  const Ends& ends = state.ends;
  Image to;
  if (ends.changed != 0) {
    to = {.address = ends.address,
          .port = ends.port,
          .changed = ends.changed,
          .zone = ends.zone,
          .is_forwards = state.port.is_there() ? std::uint8_t{0} : std::uint8_t{1}};
    if ((ends.changed & kDestination) != 0 && state.port.is_there()) {
      const MappedEnds mapped = blocks_->ends_at(state.port, key.protocol);
      to.mapped = mapped.remote;
      to.mapped_port = mapped.remote_port;
    }
  }
  std::memcpy(image, &to, sizeof(to));
}

bool NatV4::is_translated(const std::byte* image) {
  return image[offsetof(Image, changed)] != std::byte{0};
}

/// Returns the customer's ends of the session with this originator's key.
auto NatV4::ends_of(const KeyV4& key, const Ends& ends) -> CustomersEnds {
  const EndpointV4 end{ends.address, ends.port};
  if ((ends.changed & kSource) != 0) return {key.number_of_zone(), source_of(key), end};
  return {ends.leaving(key).number_of_zone(), end, destination_of(key)};
}

/// True if the present settings still give the session's customer its public end.
bool NatV4::keeps_end(const KeyV4& key, const State& state) const {
  const auto [zone, inside, outside] = ends_of(key, state.ends);
  if (!state.port.is_there()) {
    const auto* const is = settings_->forwards.to(outside.address, outside.port, key.protocol);
    return is != nullptr && zone_of(is->customer) == zone && is->inside == inside.address &&
           is->in(outside.port) == inside.port;
  }
  const NatRule* const by = settings_->rule_of(zone, inside.address);
  return by != nullptr && blocks_->may_keep(state.port, by->pool,
                                            NatSettings::customer_by(*by, zone, inside.address));
}

/// True if the remote end of a session from inside is public now if, and only if, it was so.
bool NatV4::has_same_remote(const KeyV4& key, const Ends& ends) const {
  return (ends.changed & kSource) == 0 ||
         is_public(key.destination) == ((ends.changed & kAgain) != 0);
}

/// Ends the sessions whose public end is gone, or another customer's; those that are not translated
/// but would have to be; and those to an address that has become public, or is so no longer. The
/// others of a customer go on, also if he has a forward by now that would give them another public
/// end.
Fate NatV4::fate(const KeyV4& key, const Traversal<KeyV4>*, const std::byte* at, bool) const {
  State state;
  std::memcpy(&state, at, sizeof(state));
  const bool stays = state.ends.changed == 0
                         ? !need_of(key).is_there()
                         : keeps_end(key, state) && has_same_remote(key, state.ends);
  if (stays) return Fate::stays;
  return key.protocol == kProtocolTcp ? Fate::reset : Fate::begins_anew;
}

/// Accepts a session that goes on here with the public end that it had, if that is free. Without
/// its image nobody knows that end.
void NatV4::resume(Opening<KeyV4>& opening) {
  const KeyV4& key = opening.key;
  Image was;
  if (opening.image != nullptr) std::memcpy(&was, opening.image, sizeof(was));
  if (was.changed == 0) {
    const Need need = need_of(key);
    return need.is_there() ? opening.refuse(Verdict::no_mapping) : pass_over(opening);
  }
  State state{.ends = {.address = was.address,
                       .port = was.port,
                       .changed = static_cast<std::uint8_t>(was.changed & ~kAgain),
                       .zone = was.zone},
              .port = {}};
  const auto [zone, inside, outside] = ends_of(key, state.ends);
  const auto take_again = [&] {
    const NatRule* const by = settings_->rule_of(zone, inside.address);
    if (by == nullptr) return false;
    const bool is_out = (was.changed & kSource) != 0;
    const PortBlocks::Wanted wanted{.inside = inside,
                                    .remote = is_out ? remote_of(key) : source_of(key),
                                    .customer = NatSettings::customer_by(*by, zone, inside.address),
                                    .protocol = key.protocol,
                                    .pool = by->pool,
                                    .now = now_,
                                    .forwards = &settings_->forwards};
    const MappedEnds sent_to{inside.address, was.mapped, inside.port, was.mapped_port};
    const auto taken =
        blocks_->take_again(wanted, outside, is_out ? blocks_->ends_of(wanted) : sent_to, is_out);
    if (taken) state.port = taken->ref;
    return taken.has_value();
  };
  if (zone > resumed_up_to_ || !(was.is_forwards != 0 ? keeps_end(key, state) : take_again()))
    return opening.refuse(Verdict::no_port);
  resumed_ = {key, state};
  link(opening, state);
}

}  // namespace millrace
