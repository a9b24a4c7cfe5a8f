#include <gtest/gtest.h>

#include "conntrack/state.h"

namespace millrace {
namespace {

TEST(State, ALaterFragmentChangesNothing) {
  for (std::size_t at = 0; at < kConnectionStates; ++at) {
    const auto state = static_cast<ConnectionState>(at);
    for (const auto from : {Direction::originator, Direction::reply, Direction::only}) {
      for (const std::uint32_t age : {0U, kStreamAfterMs}) {
        EXPECT_EQ(next_state(state, from, Signal::fragment, kProtocolUdp, age), state) << at;
        EXPECT_TRUE(lasts(state, from, Signal::fragment, age)) << at;
      }
      EXPECT_FALSE(begins(Signal::fragment, from));
    }
  }
  EXPECT_FALSE(concerns_marks(Signal::fragment));
}

}  // namespace
}  // namespace millrace
