// Checks the lines that a benchmark shows in windows of several sizes.
#include "live_rows.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace millrace::cli {
namespace {

std::vector<std::string> texts(const std::vector<LiveLine>& lines) {
  std::vector<std::string> all;
  for (const LiveLine& line : lines) all.push_back(line.text);
  return all;
}

/// Makes rows of contenders c0, c1, ..., each measured once: 10, 11, ...
LiveRows of_many(Unit unit, int count) {
  LiveRows rows(unit);
  for (int i = 0; i < count; ++i) rows.add(fmt::format("c{}", i), 10 + i);
  return rows;
}

TEST(LiveRows, ShowMediansInOrderOfAppearance) {
  LiveRows rows(Unit::ns);
  for (const double ns : {30.0, 10.0, 120.0}) rows.add("second best", ns);
  rows.add("best", 20.04);
  rows.next({.what = "repetition 2 of 3: new", .who = "new", .to_come = 8});
  EXPECT_EQ(texts(rows.lines(8, {})), (std::vector<std::string>{
                                          "4 of 12, 8 s, about 16 s left: repetition 2 of 3: new",
                                          "               n  ns, median (least-most)",
                                          "  second best  3          30.0 (10.0-120)",
                                          "  best         1         20.0 (20.0-20.0) *",
                                          "> new          0                         ",
                                      }));
}

TEST(LiveRows, TheBestIsTheLeastTimeAndTheHighestRate) {
  const auto best = [](Unit unit) {
    LiveRows rows(unit);
    rows.next({.what = "new", .who = "new"});
    for (const double value : {1, 9, 5}) rows.add("five", value);
    for (const double value : {2, 2, 90}) rows.add("two", value);
    std::string names;
    for (const LiveLine& line : rows.lines(0, {})) {
      EXPECT_EQ(line.is_best, line.text.ends_with("*"));
      if (line.is_best) names += line.text.substr(2, 4);
    }
    return names;
  };
  EXPECT_EQ(best(Unit::ns), "two ");
  EXPECT_EQ(best(Unit::lines), "two ");
  EXPECT_EQ(best(Unit::mpps), "five");
}

TEST(LiveRows, SaysHowFarItIs) {
  LiveRows rows(Unit::mpps);
  rows.next({.what = "making the traffic"});
  EXPECT_EQ(rows.lines(3, {}).front().text, "3 s: making the traffic");
  rows.next({.what = "a", .who = "a", .to_come = 1000});
  EXPECT_EQ(rows.lines(3, {}).front().text, "0 of 1000, 3 s: a");
  rows.add("a", 1);
  rows.add("a", 1);
  rows.next({.what = "b", .to_come = 400});  // fewer than are already known to come
  EXPECT_EQ(rows.lines(20, {}).front().text, "2 of 1000, 20 s, about 2.8 h left: b");
  EXPECT_EQ(rows.lines(2, {}).front().text, "2 of 1000, 2 s, about 17 min left: b");
}

TEST(LiveRows, ForgetWhatDoesNotCompare) {
  LiveRows rows = of_many(Unit::ns, 2);
  rows.next({.what = "the final", .anew = true});
  EXPECT_EQ(texts(rows.lines(8, {})), std::vector<std::string>{"8 s: the final"});
  rows.add("c1", 30);
  EXPECT_TRUE(rows.lines(8, {}).back().text.starts_with("  c1  1 "));
}

TEST(LiveRows, FitIntoAnyWindow) {
  for (const Unit unit : {Unit::ns, Unit::mpps}) {
    LiveRows rows = of_many(unit, 30);
    rows.add(std::string(200, 'x'), 1e9);
    rows.next({.what = std::string(200, 'y'), .who = "c7", .to_come = 10});
    for (std::size_t columns = 0; columns < 120; ++columns) {
      for (std::size_t height = 0; height < 40; ++height) {
        const auto lines = rows.lines(5, {columns, height});
        EXPECT_LE(lines.size(), std::max<std::size_t>(height, 2) - 1);
        for (const LiveLine& line : lines)
          EXPECT_LE(line.text.size(), std::max<std::size_t>(columns, 1) - 1);
      }
    }
  }
}

TEST(LiveRows, ANarrowWindowKeepsNamesAndMedians) {
  LiveRows rows(Unit::ns);
  rows.add("campus, race, sharded, 2 workers", 12.5);
  rows.next({.what = "repetition 1 of 5", .to_come = 3});
  EXPECT_EQ(texts(rows.lines(4, {40, 8})), (std::vector<std::string>{
                                               "1 of 4, 4 s, about 12 s left: repetitio",
                                               "                        n  ns, median",
                                               "  campus, race, sharde  1        12.5 *",
                                           }));
}

TEST(LiveRows, ALowWindowKeepsTheBestAndTheOneUnderWay) {
  const auto shown = [](Unit unit, std::size_t height) {
    LiveRows rows = of_many(unit, 6);
    rows.next({.what = "", .who = "c3"});
    std::vector<std::string> names;
    for (const auto& text : texts(rows.lines(0, {80, height}))) names.push_back(text.substr(0, 4));
    return std::vector<std::string>(names.begin() + 1, names.end());
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(shown(Unit::ns, 9), (Names{"    ", "  c0", "  c1", "  c2", "> c3", "  c4", "  c5"}));
  EXPECT_EQ(shown(Unit::ns, 6), (Names{"  3 ", "  c0", "  c1", "> c3"}));
  EXPECT_EQ(shown(Unit::mpps, 6), (Names{"  3 ", "> c3", "  c4", "  c5"}));
  EXPECT_EQ(shown(Unit::ns, 4), (Names{"  5 ", "> c3"}));
  EXPECT_EQ(shown(Unit::ns, 3), Names{});
  LiveRows rows = of_many(Unit::ns, 6);
  EXPECT_TRUE(rows.lines(0, {80, 6})[1].text.starts_with("  3 not shown"));
}

}  // namespace
}  // namespace millrace::cli
