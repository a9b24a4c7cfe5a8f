#include "bench/advise_choice.h"

#include <algorithm>
#include <vector>

#include "conntrack/schemes.h"

namespace millrace::bench {
namespace {

/// Returns true if `one` is worse than `first`, the fastest: `one` failed, or dropped out in an
/// earlier round, or has a median above the upper quartile of `first`. If the search ended before
/// the final, there are too few turns for a quartile: then the median of `one` must exceed the
/// median of `first` by more than the margin of the round.
bool is_told_apart(const Tried& one, const Tried& first) {
  if (!one.failed.empty() || one.round != first.round) return true;
  const double ns = one.ns_per_packet.median;
  if (first.round > kRounds) return ns > first.mostly;
  return ns > (1 + kMargin[first.round - 1]) * first.ns_per_packet.median;
}

/// Returns the first combination of `tried` for which `may` returns true; the end of `tried` if
/// there is none. Returns `usual` instead if it is in `tried` and `is_told_apart` does not tell it
/// from that first combination. `tried` must be sorted, the fastest first.
template <class May>
std::vector<Tried>::iterator recommended(std::vector<Tried>& tried, const Combination& usual,
                                         May may) {
  const auto first = std::ranges::find_if(tried, may);
  const auto same = std::ranges::find(tried, usual, &Tried::combination);
  if (first == tried.end() || same == tried.end()) return first;
  return is_told_apart(*same, *first) ? first : same;
}

}  // namespace

void recommend(Advice& advice, unsigned workers) {
  auto& tried = advice.tried;
  const auto works = [](const Tried& one) { return one.failed.empty(); };
  if (workers > 1) {
    const auto shared = recommended(tried, usual(workers, true), [&works](const Tried& one) {
      return works(one) && one.combination.sharing != Sharded::kName;
    });
    if (shared != tried.end()) advice.shared = *shared;
  }
  const auto one = recommended(tried, usual(workers, false), works);
  if (one == tried.begin() || one == tried.end()) return;
  advice.no_faster = tried.front().combination;
  std::rotate(tried.begin(), one, one + 1);
}

}  // namespace millrace::bench
