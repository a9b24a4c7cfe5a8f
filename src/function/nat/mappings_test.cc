// Compares mappings with ordered maps in random steps.
#include "function/nat/mappings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/address_numbers.h"

namespace millrace {
namespace {

struct CacheLine {
  alignas(64) std::array<std::byte, 64> bytes{};
};

class MappingsTest : public testing::TestWithParam<std::tuple<std::size_t, bool, bool>> {};

bool is_before(const MappedEnds& a, const MappedEnds& b) {
  const auto all = [](const MappedEnds& ends) {
    return std::tuple(ends.inside, ends.remote, ends.inside_port, ends.remote_port);
  };
  return all(a) < all(b);
}

TEST_P(MappingsTest, DoWhatAMapSays) {
  const auto [ports, has_remotes, has_peers] = GetParam();
  const Mappings::Kind kind{ports, has_remotes, has_peers};
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&random](std::size_t n) { return static_cast<std::uint32_t>(random() % n); };
  ASSERT_EQ(kind.bytes() % 64, 0U);
  constexpr std::byte kElse{0x5a};
  std::vector<CacheLine> memory(kind.bytes() / 64 + 2);
  memory.front().bytes.fill(kElse);
  memory.back().bytes.fill(kElse);
  const Hasher hasher(Secret::from_seed(seed));
  const Mappings mappings(memory[1].bytes.data(), kind, hasher);

  struct Mapping {
    Mappings::Offset offset = 0;
    unsigned uses = 0;
  };
  std::map<MappedEnds, Mapping, decltype(&is_before)> by_ends(&is_before);
  std::map<Mappings::Offset, MappedEnds> by_offset;
  using Peer = std::pair<Mappings::Offset, std::uint32_t>;
  std::map<Peer, unsigned> peers;
  const auto random_ends = [&] {
    MappedEnds ends{.inside = address_with(0x0a000000 + below(4)),
                    .remote = {},
                    .inside_port = static_cast<std::uint16_t>(below(ports))};
    if (!has_remotes) return ends;
    ends.remote = address_with(0xc0000200 + below(2));
    ends.remote_port = static_cast<std::uint16_t>(below(2));
    return ends;
  };
  const auto is_any_port = [](Mappings::Offset) { return false; };
  const auto end_one = [&](std::map<Mappings::Offset, MappedEnds>::iterator at) {
    const auto [offset, ends] = *at;
    Mapping& mapping = by_ends.at(ends);
    const bool is_last = --mapping.uses == 0;
    ASSERT_EQ(mappings.release(offset), is_last);
    if (!is_last) return;
    by_ends.erase(ends);
    by_offset.erase(at);
  };
  std::size_t most = 0;
  for (std::size_t step = 0; step < std::max<std::size_t>(20'000, ports * 24); ++step) {
    const bool grows = step / (ports * 8) % 2 == 0;
    const MappedEnds ends = random_ends();
    const Hash hash = ends.hash(hasher);
    const auto known = by_ends.find(ends);
    const auto found = mappings.find(ends, hash);
    ASSERT_EQ(found.has_value(), known != by_ends.end());
    if (found) {
      ASSERT_EQ(*found, known->second.offset);
    }
    if (below(100) < (grows ? 80 : 25)) {
      const auto from = static_cast<Mappings::Offset>(below(ports));
      const auto offset = mappings.free_port(from, 0, is_any_port);
      ASSERT_EQ(offset.has_value(), by_offset.size() < ports);
      if (found) {
        mappings.use(*found);
        ++known->second.uses;
      } else if (offset) {
        ASSERT_TRUE(mappings.is_free(*offset));
        ASSERT_FALSE(by_offset.contains(*offset));
        mappings.insert(ends, hash, *offset);
        by_ends[ends] = {*offset, 1};
        by_offset[*offset] = ends;
      }
    } else if (auto at = by_offset.lower_bound(static_cast<Mappings::Offset>(below(ports)));
               at != by_offset.end()) {
      end_one(at);
      if (HasFatalFailure()) return;
    }
    most = std::max(most, by_offset.size());
    const auto port = static_cast<Mappings::Offset>(below(ports));
    ASSERT_EQ(mappings.is_free(port), !by_offset.contains(port));
    if (!mappings.is_free(port)) {
      ASSERT_EQ(mappings.ends_of(port), by_offset.at(port));
    }
    if (!has_peers) continue;
    const Peer peer{port, below(5)};
    const AddressV4 remote = address_with(peer.second);
    // Fewer than there is room for, so that none is forgotten.
    if (peers.size() < ports * 3 && below(2) == 0) {
      mappings.admit(port, remote);
      ++peers[peer];
    } else {
      mappings.dismiss(port, remote);
      if (const auto at = peers.find(peer); at != peers.end() && --at->second == 0) peers.erase(at);
    }
    const Peer other{static_cast<Mappings::Offset>(below(ports)), below(5)};
    ASSERT_EQ(mappings.is_admitted(other.first, address_with(other.second)), peers.contains(other));
  }
  EXPECT_EQ(most, ports) << "all ports should be in use at times";
  ASSERT_EQ(mappings.in_use(), by_offset.size());
  for (const auto& [ends, mapping] : by_ends)
    ASSERT_EQ(mappings.find(ends, ends.hash(hasher)), mapping.offset);

  // The memory is now as good as if it were all 0.
  while (!by_offset.empty()) {
    end_one(by_offset.begin());
    if (HasFatalFailure()) return;
  }
  for (auto& [peer, uses] : peers)
    for (; uses != 0; --uses) mappings.dismiss(peer.first, address_with(peer.second));
  EXPECT_EQ(mappings.in_use(), 0U);
  const Mappings anew(memory[1].bytes.data(), kind, hasher);
  std::set<Mappings::Offset> given;
  for (std::size_t n = 0; n < ports; ++n) {
    const MappedEnds ends{.inside = address_with(static_cast<std::uint32_t>(n)), .remote = {}};
    ASSERT_FALSE(anew.find(ends, ends.hash(hasher)));
    const auto offset = anew.free_port(0, 0, is_any_port);
    ASSERT_TRUE(offset);
    ASSERT_TRUE(given.insert(*offset).second);
    anew.insert(ends, ends.hash(hasher), *offset);
    if (!has_peers) continue;
    for (std::uint32_t remote = 0; remote < 3; ++remote) {
      ASSERT_FALSE(anew.is_admitted(*offset, address_with(remote)));
      anew.admit(*offset, address_with(remote));
      ASSERT_TRUE(anew.is_admitted(*offset, address_with(remote)));
    }
  }
  EXPECT_FALSE(anew.free_port(0, 0, is_any_port));
  for (const CacheLine& beside : {memory.front(), memory.back()})
    EXPECT_EQ(std::ranges::count(beside.bytes, kElse), 64) << "memory beside was written";
}

INSTANTIATE_TEST_SUITE_P(All, MappingsTest,
                         testing::Combine(testing::Values(64, 128, 256, 512, 1024, 2048, 4096),
                                          testing::Bool(), testing::Bool()));

}  // namespace
}  // namespace millrace
