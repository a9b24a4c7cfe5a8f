#include "fragments/fragments.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>
#include <variant>

#include "core/protocol.h"
#include "parse/fragment.h"

namespace millrace {
namespace {

/// Returns the place in the lane of the burst's packet `packet`; none if it has no key.
template <class K>
std::optional<unsigned> place_of(const Lane<K>& lane, unsigned packet) {
  const auto* const end = lane.packet.begin() + lane.size;
  const auto* const at = std::find(lane.packet.begin(), end, packet);
  if (at == end) return std::nullopt;
  return static_cast<unsigned>(at - lane.packet.begin());
}

/// Files the key of a later fragment, so that the lane keeps the order of the burst.
template <class K>
void file(Burst& burst, unsigned packet, const K& key) {
  Lane<K>& lane = burst.lane<K>();
  unsigned at = lane.size++;
  for (; at > 0 && lane.packet[at - 1] > packet; --at) {
    lane.packet[at] = lane.packet[at - 1];
    lane.key[at] = lane.key[at - 1];
  }
  lane.packet[at] = static_cast<std::uint8_t>(packet);
  lane.key[at] = key;
  burst.verdict[packet] = Verdict::tracked;
  burst.signal[packet] = Signal::fragment;
}

}  // namespace

Fragments::Fragments(std::shared_ptr<FragmentTable> table)
    : table_(std::move(table)), rest_(std::make_unique<Burst>()) {
  // No more can wait: `follow` is called only when none does, and then every kept fragment may be
  // released, and each of the burst's kept and released.
  released_.reserve(Datagrams<KeyV4>::kMostKept + Datagrams<KeyV6>::kMostKept + Burst::kMax);
}

void Fragments::next(std::unique_ptr<Burst>& burst, Port& port) {
  if (at_ == released_.size()) {
    std::swap(burst, rest_);
    rest_->clear();
    return;
  }
  burst->now = now_;
  while (at_ != released_.size() && burst->size < Burst::kMax) {
    const ReleasedFragment& fragment = released_[at_++];
    const unsigned i = burst->size++;
    port.place(*burst, i, fragment.packet.handle);
    burst->headers[i] = fragment.packet.headers;
    burst->verdict[i] = fragment.verdict;
    if (fragment.verdict == Verdict::tracked)
      std::visit([&](const auto& key) { file(*burst, i, key); }, fragment.key);
  }
  if (at_ != released_.size()) return;
  released_.clear();
  at_ = 0;
}

template <class K>
auto Fragments::follow_one(Burst& burst, unsigned i, bool may_be_kept, bool is_known) -> After {
  auto fragment = read_fragment<typename K::Address>(burst.data[i], burst.headers[i]);
  if (fragment) fragment->datagram.customer = burst.customer_of(i);
  Verdict& verdict = burst.verdict[i];
  const bool is_later = burst.headers[i].protocol == kProtocolFragment;
  if (!fragment || fragment->is_first() == is_later) {
    // Several fragment headers.
    unfile(burst, std::uint64_t{1} << i);
    verdict = Verdict::fragment_invalid;
    return After::stays;
  }
  if (is_known) {
    if (!is_later) return After::stays;
    const auto answer = table_->datagrams<K>().find(fragment->datagram);
    verdict = answer.verdict;
    if (verdict == Verdict::tracked) file(burst, i, answer.key);
    return After::stays;
  }
  const Lane<K>& lane = burst.lane<K>();
  const auto at = place_of(lane, i);
  const std::size_t before = released_.size();
  const auto answer = table_->take<K>({.fragment = *fragment,
                                       .key = at ? &lane.key[*at] : nullptr,
                                       .packet = {burst.handle[i], burst.headers[i]},
                                       .may_be_kept = may_be_kept},
                                      burst.now, released_);
  if (answer.verdict == Verdict::held) return After::taken;
  if (is_drop(answer.verdict)) {
    if (at) unfile(burst, std::uint64_t{1} << i);
    verdict = answer.verdict;
  } else if (is_later && answer.verdict == Verdict::tracked) {
    file(burst, i, answer.key);
  }
  return released_.size() == before ? After::stays : After::releases;
}

void Fragments::follow(Burst& burst, const Port& port) {
  const auto lock = table_->lock();
  now_ = burst.now;
  if (looked_ != burst.now) table_->expire(burst.now, released_);
  looked_ = burst.now;
  const unsigned known = port.known();
  std::uint64_t kept = 0;
  while (burst.fragments != 0) {
    const auto i = static_cast<unsigned>(std::countr_zero(burst.fragments));
    burst.fragments &= burst.fragments - 1;
    if (is_drop(burst.verdict[i])) continue;
    const bool may_be_kept = port.can_place();
    const After after = burst.headers[i].family == 4
                            ? follow_one<KeyV4>(burst, i, may_be_kept, i < known)
                            : follow_one<KeyV6>(burst, i, may_be_kept, i < known);
    if (after == After::taken) kept |= std::uint64_t{1} << i;
    if (after == After::releases && i + 1 < burst.size) {
      split_off(burst, i + 1, *rest_);
      break;
    }
  }
  take_out(burst, kept);
}

void Fragments::give_up() {
  const auto lock = table_->lock();
  table_->give_up(released_);
}

}  // namespace millrace
