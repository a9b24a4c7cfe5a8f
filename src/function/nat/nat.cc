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

}  // namespace

Part NatV4::part() const {
  return {.name = "nat",
          .version = 2,
          .originator_bytes = sizeof(State),
          .reply_bytes = sizeof(Ends),
          .alignment = alignof(State),
          .image_bytes = sizeof(Image)};
}

NatV4::Need NatV4::need_of(const KeyV4& key) const {
  Need need{.rule = settings_->rule_for(key.number_of_zone(), key.source, key.destination),
            .is_in = blocks_->has(key.destination) || settings_->forwards.has(key.destination),
            .is_hosts = settings_->is_hosts(key.number_of_zone(), key.destination)};
  if (need.is_hosts && !need.is_in) need.rule = nullptr;
  // A port's customer may send to other customers only what has a rule.
  if (need.rule == nullptr && key.number_of_zone() != 0) need.is_in = false;
  return need;
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
    const bool begins = begins_strictly(burst.signal[lane.packet[i]]);
    const bool is_forward =
        settings_->forwards.to(key.destination, key.destination_port, key.protocol) != nullptr;
    if (need.is_in && !(begins && is_forward)) {
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

/// Gives the originator a public end, and finds the inside endpoint of the public end that it sends
/// to: one of both, or both (hairpinning, RFC 4787, REQ-9).
void NatV4::open(const Burst& burst, Opening<KeyV4>& opening) {
  release_resumed();
  if (opening.is_resumed) return resume(opening);
  now_ = burst.now;
  const KeyV4& key = opening.key;
  const auto [rule, is_in, is_hosts] = need_of(key);
  if (rule == nullptr && !is_in) return pass_over(opening);
  if (!begins_strictly(burst.signal[opening.packet])) return opening.refuse(Verdict::no_connection);
  const bool is_query = key.protocol == kProtocolIcmp;
  const NatForwards& forwards = settings_->forwards;
  const NatForward* const from = rule != nullptr ? forwards.from(key.number_of_zone(), key.source,
                                                                 key.source_port, key.protocol)
                                                 : nullptr;
  const NatForward* const to = forwards.to(key.destination, key.destination_port, key.protocol);
  // One identifier cannot be that of both customers.
  if (rule != nullptr && is_in && is_query && from == nullptr && to == nullptr)
    return is_hosts ? pass_over(opening) : opening.refuse(Verdict::no_mapping);
  State state;
  if (opening.attempt > 0) {
    std::memcpy(&state, opening.state, sizeof(state));
    if (!state.source.is_there() || !settings_->pools[rule->pool].shares_ports())
      return opening.refuse(Verdict::reply_collision);
    const auto taken = take(opening, *rule);
    if (!taken) return opening.refuse(Verdict::reply_collision);
    blocks_->release(state.source, key.protocol, key.destination, now_);
    state.source = taken->ref;
    state.ends.source_port = taken->outside.port;
    return accept(opening, state);
  }
  Zone leaves_to = 0;
  if (to != nullptr) {
    leaves_to = zone_of(to->customer);
    state.ends.destination = to->inside;
    state.ends.destination_port = to->in(key.destination_port);
    state.ends.changed |= kDestination;
  } else if (is_in) {
    const auto inside = blocks_->enter({.outside = destination_of(key),
                                        .remote = source_of(key),
                                        .protocol = key.protocol,
                                        .now = now_},
                                       true);
    if (!inside && is_hosts) return pass_over(opening);
    if (!inside) return opening.refuse(inside.error());
    leaves_to = zone_of(inside->customer);
    state.destination = inside->ref;
    state.ends.destination = inside->inside.address;
    state.ends.destination_port = inside->inside.port;
    state.ends.changed |= kDestination;
  }
  if (from != nullptr) {
    state.ends.source = from->address;
    state.ends.source_port = from->out(key.source_port);
    state.ends.changed |= kSource;
  } else if (rule != nullptr) {
    const auto taken = take(opening, *rule);
    if (!taken) {
      release(key, state);
      return opening.refuse(taken.error());
    }
    state.source = taken->ref;
    state.ends.source = taken->outside.address;
    state.ends.source_port = taken->outside.port;
    state.ends.changed |= kSource;
  }
  if ((leaves_to | key.number_of_zone()) != 0) {
    state.ends.changed |= kZone;
    KeyV4 leaves;
    leaves.set_zone(leaves_to);
    state.ends.zone = leaves.zone;
  }
  // A query has its identifier in place of both ports. Forwards leave it as it is.
  if (is_query && (state.source.is_there() || state.destination.is_there())) {
    state.ends.changed |= kIdentifier;
    auto& kept = state.source.is_there() ? state.ends.source_port : state.ends.destination_port;
    state.ends.source_port = state.ends.destination_port = kept;
  }
  auto& opened = rule != nullptr ? counters_.sessions : counters_.from_outside;
  opened.add(1);
  counters_.live.add(1);
  accept(opening, state);
}

auto NatV4::take(const Opening<KeyV4>& opening, const NatRule& rule)
    -> std::expected<PortBlocks::Taken, Verdict> {
  PortBlocks::Wanted wanted = wanted_of(opening.key, rule);
  wanted.attempt = opening.attempt;
  return blocks_->take(wanted);
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

void NatV4::accept(Opening<KeyV4>& opening, const State& state) {
  const KeyV4 leaves = state.ends.leaving(opening.key);
  Ends reply{.source = opening.key.destination,
             .destination = opening.key.source,
             .source_port = opening.key.destination_port,
             .destination_port = opening.key.source_port,
             .changed = 0,
             .zone = opening.key.zone};
  if ((state.ends.changed & kSource) != 0) reply.changed |= kDestination;
  if ((state.ends.changed & kDestination) != 0) reply.changed |= kSource;
  reply.changed |= state.ends.changed & (kIdentifier | kZone);
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

/// Ends the use of public ports by the session with this originator's key.
void NatV4::release(const KeyV4& key, const State& state, bool is_proved) {
  if (state.source.is_there()) blocks_->release(state.source, key.protocol, key.destination, now_);
  if (state.destination.is_there())
    blocks_->release(state.destination, key.protocol, key.source, now_, is_proved);
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
  const auto hold = [&](bool is_limited) {
    return !state.destination.is_there() ||
           blocks_->hold(state.destination, key.protocol, key.source, is_limited);
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
      if (state.destination.is_there())
        blocks_->let_go(state.destination, key.protocol, key.source);
      break;
  }
  return Verdict::tracked;
}

// --- serve

void NatV4::serve(Burst& burst, std::uint64_t places, const States<KeyV4>& states) {
  now_ = burst.now;
  Lane<KeyV4>& lane = burst.lane<KeyV4>();
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
    if ((ends.changed & kSource) != 0) lane.set_source(i, ends.source, ends.source_port);
    if ((ends.changed & kDestination) != 0)
      lane.set_destination(i, ends.destination, ends.destination_port);
    if ((ends.changed & kIdentifier) != 0) lane.set_identifier(i, ends.source_port);
    if ((ends.changed & kZone) != 0) lane.set_zone(i, ends.zone);
    const bool is_from_outside = (ends.changed & (kSource | kDestination)) == kDestination;
    lane.idle |= std::uint64_t{is_from_outside && !counts_from_outside(burst, lane, i)} << i;
    out += (ends.changed & kSource) != 0;
    in += (ends.changed & kDestination) != 0;
    verdict = Verdict::tracked;
  });
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
    to = {ends.source,  ends.destination, ends.source_port, ends.destination_port,
          ends.changed, ends.zone,        forwarded(state)};
    if (state.destination.is_there()) {
      const MappedEnds mapped = blocks_->ends_at(state.destination, key.protocol);
      to.mapped = mapped.remote;
      to.mapped_port = mapped.remote_port;
    }
  }
  std::memcpy(image, &to, sizeof(to));
}

bool NatV4::is_translated(const std::byte* image) {
  return image[offsetof(Image, changed)] != std::byte{0};
}

/// Returns the ends of a session that are ends of forwards, as bits of `Ends::changed`.
std::uint8_t NatV4::forwarded(const State& state) {
  std::uint8_t ends = 0;
  if (!state.source.is_there()) ends |= kSource;
  if (!state.destination.is_there()) ends |= kDestination;
  return ends & state.ends.changed;
}

/// True if the present forwards still give the session the ends that it has of them.
bool NatV4::has_forwards(const KeyV4& key, const Ends& ends, std::uint8_t forwarded) const {
  const auto is_there = [&](const EndpointV4& outside, Zone zone, const EndpointV4& inside) {
    const auto* is = settings_->forwards.to(outside.address, outside.port, key.protocol);
    return is != nullptr && zone_of(is->customer) == zone && is->inside == inside.address &&
           is->in(outside.port) == inside.port;
  };
  return ((forwarded & kSource) == 0 ||
          is_there({ends.source, ends.source_port}, key.number_of_zone(), source_of(key))) &&
         ((forwarded & kDestination) == 0 ||
          is_there(destination_of(key), ends.leaving(key).number_of_zone(),
                   {ends.destination, ends.destination_port}));
}

/// True if the present rules and pools still give the session's customers its public ports.
bool NatV4::keeps_ports(const KeyV4& key, const State& state) const {
  const auto keeps = [&](const PortRef& ref, Zone zone, const AddressV4& inside) {
    const NatRule* const by = settings_->rule_of(zone, inside);
    return by != nullptr &&
           blocks_->may_keep(ref, by->pool, NatSettings::customer_by(*by, zone, inside));
  };
  return (!state.source.is_there() || keeps(state.source, key.number_of_zone(), key.source)) &&
         (!state.destination.is_there() ||
          keeps(state.destination, state.ends.leaving(key).number_of_zone(),
                state.ends.destination));
}

/// Ends the sessions whose public ends are gone, or another customer's, and those that are not
/// translated but would have to be. The others of a customer go on, also if he has a forward by now
/// that would give them another public end.
Fate NatV4::fate(const KeyV4& key, const Traversal<KeyV4>*, const std::byte* at, bool) const {
  State state;
  std::memcpy(&state, at, sizeof(state));
  const bool stays = state.ends.changed == 0 ? !need_of(key).is_there()
                                             : has_forwards(key, state.ends, forwarded(state)) &&
                                                   keeps_ports(key, state);
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
  State state{.ends = {.source = was.source,
                       .destination = was.destination,
                       .source_port = was.source_port,
                       .destination_port = was.destination_port,
                       .changed = was.changed,
                       .zone = was.zone},
              .source = {},
              .destination = {}};
  const auto take_again = [&](Zone zone, const EndpointV4& inside, const EndpointV4& remote,
                              const EndpointV4& outside, PortRef& ref) {
    const NatRule* const by = settings_->rule_of(zone, inside.address);
    if (by == nullptr) return false;
    const PortBlocks::Wanted wanted{.inside = inside,
                                    .remote = remote,
                                    .customer = NatSettings::customer_by(*by, zone, inside.address),
                                    .protocol = key.protocol,
                                    .pool = by->pool,
                                    .now = now_,
                                    .forwards = &settings_->forwards};
    const bool is_sent_to = &ref == &state.destination;
    const MappedEnds sent_to{inside.address, was.mapped, inside.port, was.mapped_port};
    const auto taken = blocks_->take_again(
        wanted, outside, is_sent_to ? sent_to : blocks_->ends_of(wanted), !is_sent_to);
    if (taken) ref = taken->ref;
    return taken.has_value();
  };
  bool ok =
      std::max(key.number_of_zone(), state.ends.leaving(key).number_of_zone()) <= resumed_up_to_ &&
      has_forwards(key, state.ends, was.forwarded);
  const int taken = was.changed & ~was.forwarded;
  if (ok && (taken & kDestination) != 0)
    ok = take_again(state.ends.leaving(key).number_of_zone(),
                    {was.destination, was.destination_port}, source_of(key), destination_of(key),
                    state.destination);
  if (ok && (taken & kSource) != 0)
    ok = take_again(key.number_of_zone(), source_of(key), remote_of(key),
                    {was.source, was.source_port}, state.source);
  if (!ok) {
    release(key, state);
    return opening.refuse(Verdict::no_port);
  }
  resumed_ = {key, state};
  accept(opening, state);
}

}  // namespace millrace
