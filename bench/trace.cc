#include "bench/trace.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "bench/numbers.h"
#include "parse/capture_bursts.h"

namespace millrace::bench {
namespace {

/// Counts the connections whose latest packet lies in a range of the capture, by a Fenwick tree.
class LastPackets {
 public:
  explicit LastPackets(std::size_t packets) : tree_(packets + 1) {}

  void add(std::size_t at, std::int32_t count) {
    for (std::size_t i = at + 1; i < tree_.size(); i += i & (~i + 1)) tree_[i] += count;
  }
  std::int64_t before(std::size_t at) const {
    std::int64_t sum = 0;
    for (std::size_t i = at; i > 0; i &= i - 1) sum += tree_[i];
    return sum;
  }

 private:
  std::vector<std::int32_t> tree_;
};

/// Collects the figures of packets, which must be passed in their order.
class Walk {
 public:
  explicit Walk(std::size_t packets) : last_packets_(packets) {}

  template <class K>
  void meet(const K& key) {
    const auto [id, is_new] = numbers.of(key);
    if (is_new) {
      packets_of.push_back(0);
      last_.push_back(0);
    } else {
      const std::size_t last = last_[id];
      reuse.push_back(
          static_cast<std::uint32_t>(last_packets_.before(met_) - last_packets_.before(last + 1)));
      last_packets_.add(last, -1);
    }
    ++packets_of[id];
    last_[id] = met_;
    last_packets_.add(met_++, 1);
  }

  Numbers numbers;
  std::vector<std::uint32_t> packets_of;  // by connection
  std::vector<std::uint32_t> reuse;

 private:
  std::vector<std::size_t> last_;  // by connection
  LastPackets last_packets_;
  std::size_t met_ = 0;
};

std::uint32_t at_share(std::vector<std::uint32_t>& values, double share) {
  if (values.empty()) return 0;
  const auto place = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::ranges::nth_element(values, values.begin() + place);
  return values[static_cast<std::size_t>(place)];
}

}  // namespace

Result<TraceProfile> profile_of(const Capture& capture) try {
  TraceProfile profile{.packets = capture.size()};
  Walk walk(capture.size());
  std::uint64_t bytes = 0;
  auto done = for_each_burst(capture, [&](Burst& burst) -> Result<void> {
    // Places of the packets' keys in the lanes; -1: none. A packet has a key in one lane at most.
    std::array<std::int16_t, Burst::kMax> v4;
    std::array<std::int16_t, Burst::kMax> v6;
    v4.fill(-1);
    v6.fill(-1);
    for (unsigned i = 0; i < burst.v4.size; ++i)
      v4[burst.v4.packet[i]] = static_cast<std::int16_t>(i);
    for (unsigned i = 0; i < burst.v6.size; ++i)
      v6[burst.v6.packet[i]] = static_cast<std::int16_t>(i);
    for (unsigned i = 0; i < burst.size; ++i) {
      bytes += burst.wire_length[i];
      if (v4[i] >= 0) {
        walk.meet(burst.v4.key[static_cast<std::size_t>(v4[i])]);
      } else if (v6[i] >= 0) {
        walk.meet(burst.v6.key[static_cast<std::size_t>(v6[i])]);
      } else {
        ++profile.keyless;
      }
    }
    return {};
  });
  if (!done) return std::unexpected(done.error());
  profile.connections_v4 = walk.numbers.v4();
  profile.connections_v6 = walk.numbers.v6();
  const std::uint64_t keyed = profile.packets - profile.keyless;
  if (capture.size() > 0) {
    profile.seconds = static_cast<double>(capture.span_ns()) * 1e-9;
    profile.bytes = static_cast<double>(bytes) / static_cast<double>(profile.packets);
  }
  if (profile.seconds > 0)
    profile.begun_a_second = static_cast<double>(profile.connections()) / profile.seconds;
  if (keyed == 0) return profile;
  profile.first_packets = static_cast<double>(profile.connections()) / static_cast<double>(keyed);
  profile.reuse_median = at_share(walk.reuse, 0.5);
  profile.reuse_90 = at_share(walk.reuse, 0.9);
  std::ranges::sort(walk.packets_of, std::greater());
  const auto busiest = static_cast<std::ptrdiff_t>((walk.packets_of.size() + 99) / 100);
  profile.busiest =
      static_cast<double>(std::accumulate(walk.packets_of.begin(),
                                          walk.packets_of.begin() + busiest, std::uint64_t{0})) /
      static_cast<double>(keyed);
  return profile;
} catch (const std::bad_alloc&) {
  return std::unexpected(Error{"no memory to describe the capture: give a shorter capture"});
}

}  // namespace millrace::bench
