#include "live_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

namespace millrace::cli {
namespace {

struct UnitIs {
  std::string_view name;
  bool more_is_better;
};
constexpr std::array<UnitIs, 3> kUnits{{{"ns", false}, {"lines", false}, {"Mpps", true}}};

const UnitIs& describe(Unit unit) { return kUnits[static_cast<std::size_t>(unit)]; }

std::string shown_time(double seconds) {
  if (seconds < 99.5) return fmt::format("{:.0f} s", seconds);
  const double minutes = seconds / 60;
  return minutes < 99.5 ? fmt::format("{:.0f} min", minutes)
                        : fmt::format("{:.1f} h", minutes / 60);
}

}  // namespace

LiveRows::Row& LiveRows::row(std::string_view who) {
  const auto known = std::ranges::find(rows_, who, &Row::who);
  return known != rows_.end() ? *known : rows_.emplace_back(std::string(who));
}

void LiveRows::next(const bench::Step& step) {
  if (step.anew) rows_.clear();
  what_ = step.what;
  who_ = step.who;
  if (!who_.empty()) row(who_);
  to_come_ = std::max(to_come_, step.to_come);
}

void LiveRows::add(std::string_view who, double value) {
  Row& of = row(who);
  of.values.push_back(value);
  of.spread = bench::spread_of(of.values);
  ++done_;
  if (to_come_ > 0) --to_come_;
}

/// Returns the line about the present step. The contender comes last, where a narrow window may cut
/// it off, because its row is marked, too.
std::string LiveRows::under_way(double seconds) const {
  if (to_come_ == 0) return fmt::format("{}: {}", shown_time(seconds), what_);
  std::string left;
  if (done_ > 0) {
    const double each = seconds / static_cast<double>(done_);
    left = fmt::format(", about {} left", shown_time(each * static_cast<double>(to_come_)));
  }
  return fmt::format("{} of {}, {}{}: {}", done_, done_ + to_come_, shown_time(seconds), left,
                     what_);
}

std::string LiveRows::median(const Row& row, bool with_spread) const {
  if (row.values.empty()) return "";
  const auto& [median, least, most] = row.spread;
  const auto shown = [this](double value) {
    return fmt::format("{:.{}f}", value, unit_ != Unit::ns ? 2 : value < 99.95 ? 1 : 0);
  };
  return with_spread ? fmt::format("{} ({}-{})", shown(median), shown(least), shown(most))
                     : shown(median);
}

/// Returns true if `a` comes before `b`. Contenders without measurements come last.
bool LiveRows::is_better(const Row& a, const Row& b) const {
  if (a.values.empty() || b.values.empty()) return !a.values.empty() && b.values.empty();
  return describe(unit_).more_is_better ? a.spread.median > b.spread.median
                                        : a.spread.median < b.spread.median;
}

/// Returns the row of the present contender and the best of the rest, `most` rows at most, in order
/// of appearance.
std::vector<const LiveRows::Row*> LiveRows::best_of(std::size_t most) const {
  std::vector<const Row*> all;
  for (const Row& one : rows_) all.push_back(&one);
  std::ranges::stable_sort(all, [this](const Row* a, const Row* b) {
    const bool a_is_under_way = a->who == who_;
    const bool b_is_under_way = b->who == who_;
    return a_is_under_way == b_is_under_way ? is_better(*a, *b) : a_is_under_way;
  });
  all.resize(std::min(all.size(), most));
  std::ranges::sort(all);
  return all;
}

std::vector<LiveLine> LiveRows::lines(double seconds, WindowSize window) const {
  const std::size_t width = std::max<std::size_t>(window.columns, 1) - 1;
  const std::size_t height = std::max<std::size_t>(window.rows, 2) - 1;
  std::vector<LiveLine> lines{{under_way(seconds)}};
  constexpr std::size_t kAboveRows = 2;
  if (!rows_.empty() && height > kAboveRows)
    std::ranges::move(table(height - kAboveRows, width), std::back_inserter(lines));
  for (LiveLine& line : lines) line.text.resize(std::min(line.text.size(), width));
  return lines;
}

/// Returns a head and at most `most` rows. If the window is narrow, names are cut first, down to a
/// few letters.
std::vector<LiveLine> LiveRows::table(std::size_t most, std::size_t width) const {
  // Columns from which the spread is shown: in narrower windows names matter more.
  constexpr std::size_t kSpreadFrom = 59;
  const bool with_spread = width >= kSpreadFrom;
  const auto shown = best_of(most);
  const std::size_t hidden = rows_.size() - shown.size();
  const std::string label = hidden > 0 ? fmt::format("{} not shown", hidden) : "";
  const std::string head =
      fmt::format("{}{}", describe(unit_).name, with_spread ? ", median (least-most)" : ", median");
  std::size_t name_width = label.size();
  std::size_t count_width = 1;
  std::size_t median_width = head.size();
  for (const Row& one : rows_) {
    name_width = std::max(name_width, one.who.size());
    count_width = std::max(count_width, fmt::formatted_size("{}", one.values.size()));
    median_width = std::max(median_width, median(one, with_spread).size());
  }
  constexpr std::size_t kLeastName = 8;
  const std::size_t beside = 2 + 2 + count_width + 2 + median_width + 2;
  name_width = std::min(name_width, std::max(width, beside + kLeastName) - beside);

  const auto line = [&](char mark, std::string_view name, auto count, std::string_view figures) {
    return fmt::format("{} {:{}.{}}  {:>{}}  {:>{}}", mark, name, name_width, name_width, count,
                       count_width, figures, median_width);
  };
  std::vector<LiveLine> lines{{line(' ', label, "n", head)}};
  const Row& best = *std::ranges::min_element(
      rows_, [this](const Row& a, const Row& b) { return is_better(a, b); });
  for (const Row* const one : shown) {
    const bool is_best = one == &best && !one->values.empty();
    const char mark = one->who == who_ ? '>' : ' ';
    lines.push_back({line(mark, one->who, one->values.size(), median(*one, with_spread)), is_best});
    if (is_best) lines.back().text += " *";
  }
  return lines;
}

}  // namespace millrace::cli
