#include "core/edit_distance.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(EditDistance, CountsWhatIsAddedLeftOutAndReplaced) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("same", "same"), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

}  // namespace
}  // namespace millrace
