#include "replicate/seal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/test_seed.h"

namespace millrace {
namespace {

ClusterKey key_with(std::uint8_t first) {
  ClusterKey key{};
  key[0] = std::byte{first};
  return key;
}

class Seal : public testing::Test {
 protected:
  static constexpr Member kOne{0x1111};
  static constexpr Member kTwo{0x2222};
  static constexpr Member kThree{0x3333};

  Seal() { EXPECT_TRUE(two_.admit(kOne)); }
  std::vector<std::byte> sealed(Member to, std::string_view text) {
    std::vector<std::byte> datagram;
    one_.seal(to, std::as_bytes(std::span(text)), datagram);
    return datagram;
  }
  /// Returns the text that opens; "nothing" if none does.
  std::string opened(std::span<const std::byte> datagram) {
    const auto is = two_.open(datagram);
    if (!is) return "nothing";
    EXPECT_EQ(is->sender, kOne);
    return {reinterpret_cast<const char*>(is->content.data()), is->content.size()};
  }
  Sealer one_ = *Sealer::create(key_with(7), kOne);
  Opener two_{key_with(7), kTwo};
};

TEST_F(Seal, OpensWhatAMemberSealed) {
  const auto datagram = sealed(kTwo, "the message");
  EXPECT_EQ(datagram.size(), kSealBytes + 11);
  EXPECT_EQ(opened(datagram), "the message");
  EXPECT_EQ(opened(sealed(kTwo, "")), "");
  EXPECT_EQ(opened(sealed(kTwo, std::string(1400, 'x'))), std::string(1400, 'x'));
  EXPECT_EQ(two_.counters().foreign, 0U);
}

TEST_F(Seal, HidesItsContent) {
  const auto datagram = sealed(kTwo, std::string(40, 'x'));
  EXPECT_TRUE(std::ranges::search(datagram, std::vector(4, std::byte{'x'})).empty());
  EXPECT_NE(datagram, sealed(kTwo, std::string(40, 'x')));
}

TEST_F(Seal, OpensNothingThatWasChanged) {
  const auto right = sealed(kTwo, "the message");
  for (std::size_t at = 0; at < right.size(); ++at) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      auto wrong = right;
      wrong[at] ^= std::byte{static_cast<std::uint8_t>(1U << bit)};
      EXPECT_EQ(opened(wrong), "nothing") << at;
    }
  }
  for (std::size_t length = 0; length < right.size(); ++length)
    EXPECT_EQ(opened(std::span(right).first(length)), "nothing") << length;
  EXPECT_EQ(two_.counters().version, 32U);
  EXPECT_EQ(two_.counters().foreign, (right.size() - 4) * 8 + right.size());
  EXPECT_EQ(opened(right), "the message");
}

TEST_F(Seal, OpensNothingOfAnotherCluster) {
  Sealer stranger = *Sealer::create(key_with(8), kOne);
  std::vector<std::byte> datagram;
  stranger.seal(kTwo, std::as_bytes(std::span("message")), datagram);
  EXPECT_EQ(opened(datagram), "nothing");
  EXPECT_EQ(two_.counters().foreign, 1U);
}

TEST_F(Seal, OpensNothingOfAMemberThatIsNotAdmitted) {
  const auto datagram = sealed(kTwo, "the message");
  two_.forget(kOne);
  EXPECT_EQ(opened(datagram), "nothing");
  EXPECT_TRUE(two_.admit(kOne));
  EXPECT_EQ(opened(datagram), "the message");
}

TEST_F(Seal, OpensNothingForAnotherMember) {
  EXPECT_EQ(opened(sealed(kThree, "the message")), "nothing");
  EXPECT_EQ(two_.counters().misled, 1U);
}

TEST_F(Seal, OpensADatagramOnce) {
  const auto first = sealed(kTwo, "first");
  const auto second = sealed(kTwo, "second");
  EXPECT_EQ(opened(second), "second");
  EXPECT_EQ(opened(first), "first") << "it came late";
  EXPECT_EQ(opened(first), "nothing");
  EXPECT_EQ(opened(second), "nothing");
  EXPECT_EQ(two_.counters().replayed, 2U);
}

/// A number is taken unless it came before; numbers far below the highest are never taken.
TEST(ReplayWindow, TakesEachNumberOnce) {
  SCOPED_TRACE(test::repeat());
  std::mt19937_64 random(test::seed());
  for (unsigned times = 0; times < 200; ++times) {
    ReplayWindow window;
    std::set<std::uint64_t> known;
    std::uint64_t highest = random() % 2 == 0 ? 0 : random() % 100'000;
    for (unsigned n = 0; n < 2000; ++n) {
      const std::uint64_t ahead = random() % 50 == 0 ? random() % 5000 : random() % 4;
      const std::uint64_t back = random() % 3 == 0 ? random() % 2000 : 0;
      const std::uint64_t number = highest + ahead - std::min(back, highest + ahead);
      const bool is_new = window.take(number);
      const std::uint64_t behind = highest > number ? highest - number : 0;
      if (n > 0 && known.contains(number)) {
        EXPECT_FALSE(is_new) << number;
      } else if (n == 0 || behind < ReplayWindow::kBehind - 127) {
        EXPECT_TRUE(is_new) << number << " after " << highest;
      } else if (behind >= ReplayWindow::kBehind) {
        EXPECT_FALSE(is_new) << number << " after " << highest;
      }
      if (is_new) known.insert(number);
      if (n == 0 || number > highest) highest = number;
    }
  }
}

}  // namespace
}  // namespace millrace
