#include "function/firewall/firewall.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/protocol.h"
#include "host/addresses_of.h"
#include "parse/bytes.h"
#include "parse/ip.h"

namespace millrace {
namespace {

template <class K>
constexpr std::uint8_t kIcmp = K::Address::kBytes == 4 ? kProtocolIcmp : kProtocolIcmpV6;

/// Returns type and code of an ICMP query; 0 for packets of other protocols.
template <class K>
std::uint16_t read_message(const Burst& burst, unsigned packet) {
  const Headers& headers = burst.headers[packet];
  return headers.protocol == kIcmp<K> ? detail::u16(burst.data[packet] + headers.l4) : 0;
}

/// True if a query of that type is an answer, so that it begins nothing (RFC 792, RFC 950, RFC
/// 4443, RFC 8335).
template <class K>
constexpr bool is_answer(unsigned type) {
  if constexpr (K::Address::kBytes == 4)
    return type == 0 || type == 14 || type == 16 || type == 18 || type == 43;
  return type == 129 || type == 161;
}

/// The types of ICMP queries (`Ipv4::message`, `Ipv6::message` in parse/ip.h), and 0 first.
template <class K>
constexpr std::array<std::uint8_t, 8> kQueries =
    K::Address::kBytes == 4 ? std::array<std::uint8_t, 8>{0, 8, 13, 15, 17, 42}
                            : std::array<std::uint8_t, 8>{0, 128, 160};

/// Returns where a packet comes from, as the zones know it.
std::uint8_t link_of(const Burst& burst, unsigned packet) {
  if ((burst.came_again >> packet & 1) != 0) return kAgainLink;
  return (burst.of_host >> packet & 1) != 0 ? kHostLink : burst.link[packet];
}

}  // namespace

template <class K>
FirewallFor<K>::State::State(RuleId by, std::uint8_t on, std::uint16_t message, bool to_host)
    : rule(by), link(on) {
  const auto type = std::ranges::find(kQueries<K>, message >> 8) - kQueries<K>.begin();
  const unsigned code = std::min(message & 0xffU, 15U);
  bits = static_cast<std::uint8_t>(unsigned{to_host} << 7 | (type & 7) << 4 | code);
}

template <class K>
std::uint16_t FirewallFor<K>::State::message() const {
  return icmp_message(kQueries<K>[bits >> 4 & 7], bits & 15);
}

template <class K>
Part FirewallFor<K>::part() const {
  return {.name = "firewall",
          .originator_bytes = sizeof(State),
          .reply_bytes = sizeof(State),
          .alignment = alignof(State),
          .image_bytes = sizeof(Image),
          .is_needed = false};
}

template <class K>
auto FirewallFor<K>::state_at(const std::byte* at) -> State {
  State state;
  std::memcpy(&state, at, sizeof(state));
  return state;
}

template <class K>
Ruling FirewallFor<K>::ruling(const K& key, const Traversal<K>* traversal, std::uint8_t link,
                              std::uint16_t message) const {
  const FirewallPlan& plan = *shared_.plan;
  return plan.ruling(plan.fields_of(key, traversal, link, message));
}

/// Refuses packets that cannot begin a connection. Unless other functions may yet rewrite the
/// packets, asks the rules, too: what they refuse then takes no place in the table.
template <class K>
std::uint64_t FirewallFor<K>::screen(Burst& burst, Lane<K>& lane, std::uint64_t unknown) {
  const bool is_strict = shared_.plan->settings->pickup == Pickup::strict;
  std::uint64_t begin = 0;
  for_each_bit(unknown, [&](unsigned i) {
    const unsigned packet = lane.packet[i];
    const K& key = lane.key[i];
    const std::uint16_t message = read_message<K>(burst, packet);
    const Signal signal = burst.signal[packet];
    // A HEARTBEAT opens a further path of an association (RFC 9260, 5.4). A later fragment begins
    // nothing, but if a rule denies it, the rule has also denied the first one; which type of ICMP
    // message that was is not known any more.
    const bool is_icmp = key.protocol == kIcmp<K>;
    const bool is_later = signal == Signal::fragment;
    const bool is_other = signal == Signal::sctp_heartbeat || (is_later && !is_icmp);
    const bool begins = is_other || (is_strict ? begins_strictly(signal) : begins_loosely(signal));
    if (!begins || (is_icmp && (is_later || is_answer<K>(message >> 8)))) {
      burst.verdict[packet] = Verdict::no_connection;
      return;
    }
    if (!shared_.others_rewrite) {
      rulings_[packet] = ruling(key, nullptr, link_of(burst, packet), message);
      if (rulings_[packet].action != Action::accept) {
        burst.verdict[packet] = verdict_of(rulings_[packet].action);
        return;
      }
      if (!has_room(rulings_[packet], key, burst.now, false)) {
        burst.verdict[packet] = Verdict::rate_limit;
        return;
      }
    }
    begin |= std::uint64_t{1} << i;
  });
  return begin;
}

template <class K>
void FirewallFor<K>::count_refused(const Burst& burst, unsigned packet, const Ruling& by) {
  Traffic& refused = shared_.counters[by.rule].refused;
  refused.packets.add(1);
  refused.bytes.add(burst.wire_length[packet]);
}

// --- the log

bool FirewallShared::log_has_room(RuleId rule, Tick now) {
  const RateLimit& rate = plan->settings->log_rate;
  if (log->bucket(rule).allows(rate.interval_ns, rate.burst, now, true)) return true;
  ring->leave_out();
  counters[rule].not_logged.add(1);
  return false;
}

void FirewallShared::write(FirewallEvent event) {
  event.time_ns = wall_time_ns();
  ring->write(event);
  counters[event.rule].logged.add(1);
}

/// Returns the event of a packet that arrived with one key, and leaves with the other.
template <class K>
FirewallEvent FirewallFor<K>::event_of(const Burst& burst, unsigned packet, const Ruling& by,
                                       const K& arrives, const K& leaves) const {
  return {.time_ns = 0,
          .key = arrives,
          .destination = leaves.destination,
          .destination_port = leaves.destination_port,
          .message = read_message<K>(burst, packet),
          .length = burst.wire_length[packet],
          .to_customer = leaves_to_customer(arrives, leaves) ? leaves.number_of_zone() : 0,
          .names = shared_.plan->log_names,
          .rule = by.rule,
          .action = by.action,
          .verdict = Verdict::tracked,
          .from = by.from,
          .to = by.to,
          .link = link_of(burst, packet)};
}

template <class K>
void FirewallFor<K>::log_refused(const Burst& burst, unsigned packet, const Ruling& by,
                                 const K& arrives, const K& leaves) {
  const bool is_later_fragment = burst.headers[packet].protocol == kProtocolFragment;
  if (is_later_fragment || !shared_.log_has_room(by.rule, burst.now)) return;
  FirewallEvent event = event_of(burst, packet, by, arrives, leaves);
  event.verdict = burst.verdict[packet];
  shared_.write(event);
}

template <class K>
void FirewallFor<K>::log_accepted(Tick now) {
  if (!accepted_) [[likely]]
    return;
  if (shared_.log_has_room(accepted_->rule, now)) shared_.write(*accepted_);
  accepted_.reset();
}

// --- open

/// Accepts or refuses the connection. If its reply's key is taken, refuses it: the firewall has no
/// other key to offer.
template <class K>
void FirewallFor<K>::open(const Burst& burst, Opening<K>& opening) {
  if (opening.is_resumed) return resume(opening);
  if (opening.attempt > 0) return opening.refuse(Verdict::reply_collision);
  log_accepted(burst.now);
  const unsigned packet = opening.packet;
  const std::uint16_t message = opening.by_reply ? 0 : read_message<K>(burst, packet);
  // The packet of `by_reply` is a reply: where it arrived says nothing of the originator's packets.
  const std::uint8_t link = opening.by_reply ? kNoLink : link_of(burst, packet);
  const bool is_judged = !shared_.others_rewrite && !opening.by_reply;
  const Ruling by =
      is_judged ? rulings_[packet] : ruling(opening.key, opening.traversal, link, message);
  rulings_[packet] = by;
  const Traversal<K>* const traversal = opening.traversal;
  const K& arrives = traversal != nullptr ? traversal->arrives : opening.key;
  const K& leaves = traversal != nullptr ? traversal->leaves : opening.key;
  if (by.logs) leaves_[packet] = leaves;
  if (by.action != Action::accept) return opening.refuse(verdict_of(by.action));
  if (!has_room(by, arrives, burst.now, true)) return opening.refuse(Verdict::rate_limit);
  taken_ = {by, arrives.source, arrives.number_of_zone(), burst.now};
  accept(opening, State(by.rule, link, message, by.to == kHostZone));
  shared_.counters[by.rule].connections.add(1);
  shared_.counters[by.rule].live.add(1);
  if (!by.logs) return;
  accepted_ = event_of(burst, packet, by, arrives, leaves);
  accepted_->link = link;
  accepted_->message = message;
}

template <class K>
void FirewallFor<K>::accept(Opening<K>& opening, const State& state) {
  std::memcpy(opening.state, &state, sizeof(state));
  std::memcpy(opening.reply_state, &state, sizeof(state));
  opening.accept_two_way(reversed(opening.key));
}

/// Accepts a connection that goes on here. Asks the rules unless the connection's rule is known and
/// connections outlive changes of rules.
template <class K>
void FirewallFor<K>::resume(Opening<K>& opening) {
  const FirewallPlan& plan = *shared_.plan;
  Image was;
  if (opening.image != nullptr) std::memcpy(&was, opening.image, sizeof(was));
  const std::uint8_t link = was.of_host == 2   ? kAgainLink
                            : was.of_host != 0 ? kHostLink
                                               : plan.link_named(was.port);
  const std::uint16_t message = icmp_message(was.icmp_type, was.icmp_code);
  RuleId rule = 0;
  bool is_to_host = was.to_host != 0;
  const auto known = plan.ids.find(was.rule);
  const bool is_known = known != plan.ids.end();
  if (!is_known || plan.settings->on_reload == OnReload::recheck) {
    const Ruling by = ruling(opening.key, opening.traversal, link, message);
    if (by.action != Action::accept) return opening.refuse(Verdict::denied);
    rule = by.rule;
    is_to_host = by.to == kHostZone;
  }
  if (is_known) rule = known->second;
  accept(opening, State(rule, link, message, is_to_host));
}

template <class K>
Verdict FirewallFor<K>::event(Event event, const K&, const std::byte* state, bool) {
  RuleCounters& counters = shared_.counters[state_at(state).rule];
  switch (event) {
    case Event::abandoned:
      accepted_.reset();
      counters.connections.subtract(1);
      if (taken_.by.limit != nullptr)
        shared_.plan->limits->give_back(taken_.by.rule, *taken_.by.limit, taken_.source, taken_.at,
                                        taken_.customer);
      taken_ = {};
      [[fallthrough]];
    case Event::closed:
      counters.live.subtract(1);
      break;
    case Event::adopted:
      counters.live.add(1);
      break;
    case Event::proved:
    case Event::unproved:
      break;
  }
  return Verdict::tracked;
}

// --- serve

template <class K>
void FirewallFor<K>::serve(Burst& burst, std::uint64_t places, const States<K>& states) {
  log_accepted(burst.now);
  const Lane<K>& lane = burst.lane<K>();
  for_each_bit(places, [&](unsigned i) {
    const unsigned packet = lane.packet[i];
    Verdict& verdict = burst.verdict[packet];
    if (lane.connection[i] == ConnId::none) [[unlikely]] {
      // A reply whose connection this burst has opened was refused until then, so packets are
      // counted here.
      const Ruling& by = rulings_[packet];
      const bool is_limited = verdict == Verdict::rate_limit;
      const bool is_refused = verdict == Verdict::denied || verdict == Verdict::rejected;
      if (is_refused) count_refused(burst, packet, by);
      if (is_limited) shared_.counters[by.rule].limited.add(1);
      if ((is_refused || is_limited) && by.logs)
        log_refused(burst, packet, by, lane.key[i],
                    shared_.others_rewrite ? leaves_[packet] : lane.key[i]);
      // Without an entry nothing says that the packet is welcome: no function may let it pass.
      if (!is_drop(verdict)) verdict = Verdict::no_connection;
      return;
    }
    const State state = state_at(states[lane.connection[i]]);
    const Side side = lane.side(i);
    RuleCounters& counters = shared_.counters[state.rule];
    Traffic& traffic = side == Side::originator ? counters.forth : counters.back;
    traffic.packets.add(1);
    traffic.bytes.add(burst.wire_length[packet]);
    verdict = state.goes_to_host(side) ? Verdict::no_service : Verdict::tracked;
  });
}

// --- the host

namespace {

/// Returns the protocol, of a later fragment too: there the IPv4 header names it, and in IPv6 the
/// fragment header, which is the last one in front of the payload.
template <class K>
std::uint8_t protocol_of(const std::byte* data, const Headers& headers) {
  if (headers.protocol != kProtocolFragment) return headers.protocol;
  return detail::u8(data + (K::Address::kBytes == 4 ? headers.l3 + 9 : headers.l4 - 8));
}

/// True for messages that a router must take in, whatever the rules (RFC 4890, 4.4.1): neighbour
/// and router discovery, multicast listeners, secure neighbour discovery.
constexpr bool is_needed(unsigned type) {
  return (type >= 130 && type <= 136) || (type >= 141 && type <= 143) || type == 148 ||
         type == 149 || (type >= 151 && type <= 153);
}

}  // namespace

template <class K>
void FirewallFor<K>::guard(Burst& burst, unsigned packet) {
  const Headers& headers = burst.headers[packet];
  const std::byte* const data = burst.data[packet];
  const Verdict verdict = burst.verdict[packet];
  const bool is_icmp = headers.protocol == kIcmp<K> && headers.l4 + 2 <= headers.l4_end;
  const std::uint16_t message = is_icmp ? detail::u16(data + headers.l4) : std::uint16_t{0};
  if (verdict == Verdict::icmp_control && kIcmp<K> == kProtocolIcmpV6 && is_needed(message >> 8))
    return;
  K key{.source = source_of<Address>(data, headers),
        .destination = destination_of<Address>(data, headers),
        .protocol = protocol_of<K>(data, headers)};
  if (has_ports(key.protocol) && headers.l4 + 4 <= headers.l4_end) {
    key.source_port = detail::u16(data + headers.l4);
    key.destination_port = detail::u16(data + headers.l4 + 2);
  }
  key.set_zone(burst.customer_of(packet));
  const FirewallPlan& plan = *shared_.plan;
  auto fields = plan.fields_of<K>(key, nullptr, burst.link[packet], message);
  if (burst.customer_of(packet) != 0)
    fields.from = plan.settings->zone_tables->template family<Address>().at(burst.link[packet]);
  // A packet to a group or a broadcast address goes no further than this host.
  if (verdict == Verdict::no_service || !is_one_host(key.destination)) fields.to = kHostZone;
  if (fields.to != kHostZone) return;
  const Ruling by = plan.ruling(fields);
  if (by.action == Action::accept) return;
  count_refused(burst, packet, by);
  burst.verdict[packet] = Verdict::denied;
  if (by.logs) log_refused(burst, packet, by, key, key);
}

template <class K>
void FirewallFor<K>::guard_error(Burst& burst, unsigned packet) {
  const auto& zones = shared_.plan->settings->zone_tables->template family<Address>();
  const auto destination = destination_of<Address>(burst.data[packet], burst.headers[packet]);
  if (zones.to(destination) == kHostZone || !is_one_host(destination))
    burst.verdict[packet] = Verdict::no_connection;
}

void Firewall::guard_errors(Burst& burst) {
  for (unsigned i = 0; i < burst.size; ++i) {
    if (burst.verdict[i] != Verdict::icmp_error || (burst.of_host >> i & 1) != 0) [[likely]]
      continue;
    burst.headers[i].family == 4 ? v4_.guard_error(burst, i) : v6_.guard_error(burst, i);
  }
}

void Firewall::guard(Burst& burst) {
  for (unsigned i = 0; i < burst.size; ++i) {
    const Verdict verdict = burst.verdict[i];
    const bool is_apart = verdict == Verdict::no_service || verdict == Verdict::icmp_control ||
                          verdict == Verdict::fragment;
    if (!is_apart || (burst.of_host >> i & 1) != 0) [[likely]]
      continue;
    burst.headers[i].family == 4 ? v4_.guard(burst, i) : v6_.guard(burst, i);
  }
}

// --- another worker, another process, other rules

template <class K>
void FirewallFor<K>::write(const K&, const std::byte* state, std::byte* image) const {
  const State is = state_at(state);
  const FirewallPlan& plan = *shared_.plan;
  const Image to{.rule = is.rule < plan.names.size() ? plan.names[is.rule] : 0,
                 .port = is.link < plan.port_names.size() ? plan.port_names[is.link] : 0,
                 .icmp_type = static_cast<std::uint8_t>(is.message() >> 8),
                 .of_host = is.link == kAgainLink  ? std::uint8_t{2}
                            : is.link == kHostLink ? std::uint8_t{1}
                                                   : std::uint8_t{0},
                 .to_host = is.is_to_host(),
                 .icmp_code = static_cast<std::uint8_t>(is.message())};
  std::memcpy(image, &to, sizeof(to));
}

/// Returns what the present rules say of a connection: one that they refuse ends, and its ends get
/// a RST if the rule rejects. If they drop, its next packet counts as a first one, and is refused.
template <class K>
Fate FirewallFor<K>::fate(const K& key, const Traversal<K>* traversal, const std::byte* state,
                          bool) const {
  if (shared_.plan->settings->on_reload == OnReload::keep) return Fate::stays;
  const State is = state_at(state);
  switch (ruling(key, traversal, is.link, is.message()).action) {
    case Action::accept:
      return Fate::stays;
    case Action::drop:
      return Fate::begins_anew;
    case Action::reject:
      return Fate::reset;
  }
  return Fate::stays;
}

template class FirewallFor<KeyV4>;
template class FirewallFor<KeyV6>;

}  // namespace millrace
