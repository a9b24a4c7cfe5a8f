// Tests of the library's public interface, in C++ and in C.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "conntrack/test_support.h"
#include "millrace/millrace.h"
#include "millrace/tracker.h"

namespace millrace {
namespace {

using test::nth_key;

template <class K>
class LibraryTest : public testing::Test {};
using Keys = testing::Types<KeyV4, KeyV6>;
TYPED_TEST_SUITE(LibraryTest, Keys);

TYPED_TEST(LibraryTest, TracksLinksAndEnds) {
  auto tracker = ConnectionTracker<TypeParam>::create(
      {.capacity = 500, .state_bytes = 40, .reply_state_bytes = 8, .timeout_ms = 1000, .seed = 1});
  ASSERT_TRUE(tracker.has_value());
  std::array<TypeParam, 64> keys;
  for (std::uint64_t n = 0; n < 64; ++n) keys[n] = nth_key<TypeParam>(n / 2);  // each key twice
  std::array<ConnId, 64> ids;
  EXPECT_EQ(tracker->track(keys, Tick{0}, ids), 0x5555555555555555U);
  EXPECT_EQ(tracker->track(keys, Tick{0}, ids), 0U);
  EXPECT_EQ(tracker->size(), 32U);
  for (unsigned i = 0; i < 64; ++i) {
    EXPECT_EQ(ids[i], ids[i & ~1U]);
    EXPECT_EQ(tracker->key(ids[i]), keys[i]);
    EXPECT_EQ(tracker->state(ids[i])[39], std::byte{0});
  }
  EXPECT_TRUE(tracker->link(ids[0], reversed(keys[0]), Tick{0}));
  EXPECT_FALSE(tracker->link(ids[0], reversed(keys[2]), Tick{0})) << "id 0 has a reply entry";
  EXPECT_FALSE(tracker->link(ids[2], reversed(keys[0]), Tick{0})) << "the reply key has an entry";
  const TypeParam answer = reversed(keys[0]);
  ConnId reply{};
  tracker->find(Side::reply, {&answer, 1}, Tick{900}, {&reply, 1});
  ASSERT_NE(reply, ConnId::none);
  EXPECT_EQ(tracker->originator(reply), ids[0]);
  EXPECT_EQ(tracker->reply_state(reply)[7], std::byte{0});
  std::vector<ConnId> ended;
  while (!tracker->sweep(Tick{1500}, 1U << 30, [&](ConnId id) { ended.push_back(id); })) {
  }
  EXPECT_EQ(ended.size(), 31U) << "all must end but the connection with a reply at tick 900";
  tracker->close(ids[0]);
  EXPECT_EQ(tracker->size(), 0U);
  tracker->find(Side::reply, {&answer, 1}, Tick{1500}, {&reply, 1});
  EXPECT_EQ(reply, ConnId::none);
}

TEST(Library, NamesEveryOptionThatIsWrong) {
  const auto tracker = ConnectionTracker<KeyV4>::create(
      {.capacity = 0, .state_bytes = 1000, .timeout_ms = 0, .interval_ms = 5000});
  ASSERT_FALSE(tracker.has_value());
  for (const char* word : {"capacity", "state", "timeout_ms", "interval_ms"}) {
    EXPECT_NE(tracker.error().message.find(word), std::string::npos) << word;
  }
}

TEST(CLibrary, TracksLinksAndEnds) {
  const std::uint64_t seed = 1;
  millrace_options options = millrace_defaults();
  options.capacity = 100;
  options.replies = true;
  options.timeout_ms = 1000;
  options.seed = &seed;
  std::array<char, 100> error{};
  millrace_tracker* tracker = millrace_create(&options, error.data(), error.size());
  ASSERT_NE(tracker, nullptr) << error.data();
  std::array<millrace_key_v4, 3> keys{};
  for (std::uint8_t i = 0; i < 3; ++i) keys[i].source[3] = i;
  std::array<std::uint32_t, 3> ids{};
  EXPECT_EQ(millrace_track(tracker, keys.data(), 3, 0, ids.data()), 7U);
  std::memset(millrace_state(tracker, ids[1]), 1, 8);
  millrace_key_v4 reply_key{};
  reply_key.destination[0] = 9;
  EXPECT_TRUE(millrace_link(tracker, ids[1], &reply_key, 0));
  EXPECT_FALSE(millrace_link(tracker, ids[2], &reply_key, 0));
  std::uint32_t reply = 0;
  millrace_find_replies(tracker, &reply_key, 1, 10, &reply);
  EXPECT_EQ(millrace_originator(tracker, reply), ids[1]);
  EXPECT_NE(millrace_reply_state(tracker, reply), nullptr);
  millrace_close(tracker, ids[0]);
  millrace_find(tracker, keys.data(), 1, 10, ids.data());
  EXPECT_EQ(ids[0], MILLRACE_NONE);
  EXPECT_EQ(millrace_size(tracker), 2U);
  unsigned ended = 0;
  const auto count = [](std::uint32_t, void* context) { ++*static_cast<unsigned*>(context); };
  while (!millrace_sweep(tracker, 5000, 64, count, &ended)) {
  }
  EXPECT_EQ(ended, 2U);
  EXPECT_GT(millrace_memory_bytes(tracker), 0U);
  millrace_destroy(tracker);
}

TEST(CLibrary, SaysWhatIsWrong) {
  millrace_options options = millrace_defaults();
  options.interval_ms = 0;
  std::array<char, 20> error{};
  EXPECT_EQ(millrace_create(&options, error.data(), error.size()), nullptr);
  EXPECT_EQ(std::string(error.data()), "interval_ms must be");
  options = millrace_defaults();
  options.family = static_cast<millrace_family>(5);
  EXPECT_EQ(millrace_create(&options, nullptr, 0), nullptr);
}

}  // namespace
}  // namespace millrace
