#include "function/chain.h"

#include <algorithm>
#include <ranges>
#include <utility>

namespace millrace {
namespace {

template <class K>
std::vector<FunctionFor<K>*> families(std::span<Function* const> functions) {
  std::vector<FunctionFor<K>*> all;
  for (Function* const function : functions) all.push_back(&function->family<K>());
  return all;
}

constexpr std::size_t aligned(std::size_t offset, std::size_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

}  // namespace

template <class K>
ChainFor<K>::ChainFor(std::span<FunctionFor<K>* const> functions)
    : part_{.name = "chain", .alignment = 1, .replies = false} {
  std::size_t end = 0;
  std::size_t image_end = 0;
  for (FunctionFor<K>* const function : functions) {
    const Part part = function->part();
    const std::size_t offset = aligned(end, part.alignment);
    end = offset + std::max(part.originator_bytes, part.reply_bytes);
    links_.push_back({function, offset, image_end, {}});
    image_end += part.image_bytes;
    if (!function->judges()) {
      order_.push_back(links_.size() - 1);
      ++not_judging_;
    }
    part_.alignment = std::max(part_.alignment, part.alignment);
    part_.replies |= part.replies;
  }
  for (std::size_t n = 0; n < links_.size(); ++n) {
    if (links_[n].function->judges()) order_.push_back(n);
  }
  part_.originator_bytes = part_.reply_bytes = static_cast<std::uint16_t>(end);
  part_.image_bytes = static_cast<std::uint16_t>(image_end);
}

template <class K>
std::vector<Part> ChainFor<K>::parts() const {
  std::vector<Part> all;
  for (const Link& link : links_) all.push_back(link.function->part());
  return all;
}

/// Steers each key by the owner that a function names, else like the first function that names an
/// end of it.
template <class K>
Steered ChainFor<K>::steer(std::span<const K> keys, const Steered& before) const {
  Steered steered = before;
  for (const Link& link : links_) {
    const std::uint64_t open = ~(steered.by_source | steered.by_destination);
    const Steered one = link.function->steer(keys, steered);
    steered.by_source |= one.by_source & open;
    steered.by_destination |= one.by_destination & open;
    for_each_bit(one.by_owner & ~steered.by_owner,
                 [&](unsigned i) { steered.owner[i] = one.owner[i]; });
    steered.by_number |= one.by_number & ~steered.by_owner;
    steered.by_owner |= one.by_owner;
  }
  return steered;
}

/// Asks the functions in order. A packet that one function refuses, or takes for a reply, is not
/// shown to the functions behind that one. A packet that no function handles gets `no_service`.
template <class K>
std::uint64_t ChainFor<K>::screen(Burst& burst, Lane<K>& lane, std::uint64_t unknown) {
  std::uint64_t begin = 0;
  std::uint64_t left = unknown;
  for (Link& link : links_) {
    if (left == 0) break;
    const std::uint64_t begins = link.function->screen(burst, lane, left);
    begin |= begins;
    std::uint64_t unconcerned = 0;
    for_each_bit(left & ~begins & ~lane.replies, [&](unsigned i) {
      Verdict& verdict = burst.verdict[lane.packet[i]];
      if (verdict != Verdict::no_service) return;
      unconcerned |= std::uint64_t{1} << i;
      verdict = Verdict::tracked;
    });
    left &= begins | unconcerned;
  }
  for_each_bit(left & ~begin,
               [&](unsigned i) { burst.verdict[lane.packet[i]] = Verdict::no_service; });
  return left & begin;
}

// --- open

/// Returns the key with which the originator's packets leave the link's function.
template <class K>
K ChainFor<K>::left_by(const Link& link) const {
  const Opening<K>& opening = link.opening;
  if (opening.decision == Decision::two_way) return reversed(opening.reply_key);
  return link.function->target(opening.key, opening.state).key;
}

/// Asks a function to open the connection. False: the function refuses the connection, and no
/// longer counts an earlier attempt.
template <class K>
bool ChainFor<K>::ask(const Burst& burst, Link& link) {
  link.function->open(burst, link.opening);
  if (link.opening.decision != Decision::refused) return true;
  if (link.opening.attempt > 0) abandon(link);
  return false;
}

template <class K>
void ChainFor<K>::abandon(Link& link) {
  link.function->event(Event::abandoned, link.opening.key, link.opening.state, false);
}

/// Asks the functions for another reply key after a collision, from the last function to the first,
/// until one accepts. Sets `next` to the place behind that function in `order_`: from there on the
/// functions must be asked anew. False: every function refuses.
template <class K>
bool ChainFor<K>::choose_otherwise(const Burst& burst, std::size_t& next) {
  for (const std::size_t n : std::span(order_).subspan(not_judging_)) abandon(links_[n]);
  for (next = not_judging_; next > 0; --next) {
    Link& link = links_[order_[next - 1]];
    if (link.opening.decision == Decision::unconcerned) continue;
    ++link.opening.attempt;
    if (ask(burst, link)) return true;
  }
  return false;
}

/// Returns the key with which the originator's packets reach function `n`.
template <class K>
K ChainFor<K>::met_by(std::size_t n, const Opening<K>& whole) const {
  while (n > 0 && links_[n - 1].function->judges()) --n;
  return n > 0 ? left_by(links_[n - 1]) : whole.key;
}

/// Asks the functions in `order_` from `next` on. False: one has refused, and no function counts
/// the connection any more; `refusal` says why.
template <class K>
bool ChainFor<K>::ask_from(const Burst& burst, const Opening<K>& whole, std::size_t next,
                           Verdict& refusal) {
  for (; next < order_.size(); ++next) {
    const std::size_t n = order_[next];
    Link& link = links_[n];
    link.opening = whole;
    link.opening.attempt = 0;
    link.opening.state += link.offset;
    link.opening.reply_state += link.offset;
    link.opening.key = met_by(n, whole);
    if (next == not_judging_) traversal_ = traversal(whole.key, whole.state);
    link.opening.traversal = next < not_judging_ ? nullptr : &traversal_;
    if (whole.is_resumed) link.opening.image = whole.images[n];
    if (ask(burst, link)) continue;
    refusal = link.opening.refusal;
    for (std::size_t before = 0; before < next && !whole.is_resumed; ++before)
      abandon(links_[order_[before]]);
    return false;
  }
  return true;
}

template <class K>
void ChainFor<K>::open(const Burst& burst, Opening<K>& opening) {
  std::size_t next = 0;
  if (opening.attempt > 0 && !choose_otherwise(burst, next)) {
    Verdict why = Verdict::no_service;
    for (const Link& link : links_) {
      const bool has_refused = link.opening.decision == Decision::refused;
      if (has_refused && !is_drop(why)) why = link.opening.refusal;
    }
    return refuse(opening, why);
  }
  if (Verdict why; !ask_from(burst, opening, next, why)) return refuse(opening, why);
  const auto decided = [this](Decision decision) {
    return std::ranges::any_of(
        links_, [decision](const Link& l) { return l.opening.decision == decision; });
  };
  if (decided(Decision::one_way)) {
    opening.decision = Decision::one_way;
  } else if (decided(Decision::two_way)) {
    opening.accept_two_way(reversed(left_by(links_.back())));
  } else {
    opening.refuse(Verdict::no_service);
  }
}

/// Refuses an opening that no function counts any more. After a collision the line will report the
/// refusal as `Event::abandoned`: so that `event` passes that report on to no function, all are
/// marked as refusing.
template <class K>
void ChainFor<K>::refuse(Opening<K>& opening, Verdict why) {
  for (Link& link : links_) link.opening.decision = Decision::refused;
  opening.refuse(why);
}

template <class K>
Traversal<K> ChainFor<K>::traversal(const K& key, const std::byte* state) const {
  const Target last = target(key, state);
  return {key, last.key, last.next_hop.value_or(last.key.destination), receives(last.key)};
}

// --- events of connections

template <class K>
Verdict ChainFor<K>::event(Event event, const K& key, const std::byte* state, bool is_proved) {
  K met = key;
  for (std::size_t n = 0; n < links_.size(); ++n) {
    Link& link = links_[n];
    const std::byte* const own = state + link.offset;
    const K its = std::exchange(met, link.function->target(met, own).key);
    // A function that has refused the connection does not count it.
    if (event == Event::abandoned && link.opening.decision == Decision::refused) continue;
    const Verdict verdict = link.function->event(event, its, own, is_proved);
    if (event != Event::proved || verdict == Verdict::tracked) continue;
    unprove(n, key, state);
    return verdict;
  }
  return Verdict::tracked;
}

/// Tells the first `count` functions that the connection does not count as proved after all.
template <class K>
void ChainFor<K>::unprove(std::size_t count, K key, const std::byte* state) {
  for (Link& link : std::span(links_).first(count)) {
    const std::byte* const own = state + link.offset;
    link.function->event(Event::unproved, key, own, true);
    key = link.function->target(key, own).key;
  }
}

template <class K>
auto ChainFor<K>::target(const K& key, const std::byte* state) const -> Target {
  Target target{key, std::nullopt};
  for (const Link& link : links_) {
    const Target next = link.function->target(target.key, state + link.offset);
    target = {next.key, next.next_hop ? next.next_hop : target.next_hop};
  }
  return target;
}

template <class K>
void ChainFor<K>::write(const K& key, const std::byte* state, std::byte* image) const {
  K met = key;
  for (const Link& link : links_) {
    const std::byte* const own = state + link.offset;
    link.function->write(met, own, image + link.image_offset);
    met = link.function->target(met, own).key;
  }
}

template <class K>
Fate ChainFor<K>::fate(const K& key, const Traversal<K>*, const std::byte* state,
                       bool is_answered) const {
  Fate worst = Fate::stays;
  K met = key;
  const Traversal<K> whole = traversal(key, state);
  for (const Link& link : links_) {
    const std::byte* const own = state + link.offset;
    worst = std::max(worst, link.function->fate(met, &whole, own, is_answered));
    met = link.function->target(met, own).key;
  }
  return worst;
}

// --- serve

/// Calls `each(link, places)` for each function: in order with the originators' packets, then in
/// the reverse order with the replies.
template <class K>
template <class Each>
void ChainFor<K>::in_order(std::uint64_t originators, std::uint64_t replies, Each&& each) {
  if (originators != 0) {
    for (Link& link : links_) each(link, originators);
  }
  if (replies != 0) {
    for (Link& link : std::views::reverse(links_)) each(link, replies);
  }
}

template <class K>
void ChainFor<K>::serve(Burst& burst, std::uint64_t places, const States<K>& states) {
  const Lane<K>& lane = burst.lane<K>();
  std::uint64_t without = 0;
  for (unsigned i = 0; i < lane.size; ++i)
    without |= std::uint64_t{lane.connection[i] == ConnId::none} << i;
  without &= places;
  const std::uint64_t with = places & ~without;
  std::uint64_t dropped = 0;
  in_order(with & ~lane.replies, with & lane.replies, [&](Link& link, std::uint64_t some) {
    some &= ~dropped;
    link.function->serve(burst, some, states.from(link.offset));
    for_each_bit(some, [&](unsigned i) {
      dropped |= std::uint64_t{is_drop(burst.verdict[lane.packet[i]])} << i;
    });
  });
  if (without != 0) [[unlikely]]
    serve_without_entry(burst, without, states);
}

/// Lets each function serve the packets as if there were no other function. A verdict that drops a
/// packet is final, unless it is one that no function may change: then all functions see it. A
/// verdict that serves the packet outweighs the verdicts of functions that do not handle it.
template <class K>
void ChainFor<K>::serve_without_entry(Burst& burst, std::uint64_t places, const States<K>& states) {
  const Lane<K>& lane = burst.lane<K>();
  std::array<Verdict, kBurstMax> was;
  std::array<Verdict, kBurstMax> is;
  for_each_bit(places, [&](unsigned i) { was[i] = is[i] = burst.verdict[lane.packet[i]]; });
  std::uint64_t asked = 0;
  std::uint64_t dropped = 0;
  const auto ask = [&](Link& link, std::uint64_t some) {
    some &= ~dropped;
    for_each_bit(some, [&](unsigned i) { burst.verdict[lane.packet[i]] = was[i]; });
    link.function->serve(burst, some, states.from(link.offset));
    for_each_bit(some, [&](unsigned i) {
      const Verdict verdict = burst.verdict[lane.packet[i]];
      const bool is_first = (asked >> i & 1) == 0;
      const bool may_change = was[i] == Verdict::table_full || was[i] == Verdict::over_budget ||
                              was[i] == Verdict::no_connection || !is_drop(was[i]);
      if (is_drop(verdict) && may_change) dropped |= std::uint64_t{1} << i;
      if (is_first || is_drop(verdict) || (is_served(verdict) && !is_served(is[i])))
        is[i] = verdict;
    });
    asked |= some;
  };
  in_order(places & ~lane.replies, places & lane.replies, ask);
  for_each_bit(places, [&](unsigned i) { burst.verdict[lane.packet[i]] = is[i]; });
}

// --- service without an entry

template <class K>
Verdict ChainFor<K>::recognise_reply(const Burst& burst, unsigned packet, const K& reply_key,
                                     K& originator) {
  for (Link& link : links_) {
    const Verdict verdict = link.function->recognise_reply(burst, packet, reply_key, originator);
    if (verdict != Verdict::no_service) return verdict;
  }
  return Verdict::no_service;
}

template <class K>
auto ChainFor<K>::target_without_entry(const Burst& burst, unsigned packet, const K& key)
    -> std::optional<Target> {
  for (Link& link : links_) {
    if (auto target = link.function->target_without_entry(burst, packet, key)) return target;
  }
  return std::nullopt;
}

template <class K>
void ChainFor<K>::continue_from(const FunctionFor<K>& other) {
  const auto& theirs = static_cast<const ChainFor&>(other).links_;
  for (std::size_t n = 0; n < links_.size(); ++n)
    links_[n].function->continue_from(*theirs[n].function);
}

template class ChainFor<KeyV4>;
template class ChainFor<KeyV6>;

Chain::Chain(std::span<Function* const> functions)
    : functions_(functions.begin(), functions.end()),
      stateful_(std::ranges::all_of(functions, &Function::stateful)),
      v4_(families<KeyV4>(functions)),
      v6_(families<KeyV6>(functions)) {}

}  // namespace millrace
