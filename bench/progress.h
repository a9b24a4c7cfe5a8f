// How a benchmark says what it is about to do and what it has seen, and is told to end.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>
#include <utility>

namespace millrace::bench {

/// What a benchmark is about to do.
struct Step {
  std::string_view what;    ///< for people
  std::string_view who;     ///< the contender that is measured; empty: none
  std::size_t to_come = 0;  ///< measurements still to come at least, this one included
  bool anew = false;        ///< what was seen before does not compare with what comes

  // NOLINTNEXTLINE(google-explicit-constructor): who wants the words only takes the words only.
  operator std::string_view() const { return what; }
};

/// Called on the benchmark's own thread.
class Progress {
 public:
  /// Told what comes next; false: the benchmark shall end here.
  using Next = std::function<bool(const Step& step)>;
  /// Told each measurement of a contender, in the unit of the benchmark's first figure.
  using Seen = std::function<void(std::string_view who, double value)>;

  explicit Progress(
      Next next, Seen seen = [](std::string_view, double) {})
      : next_(std::move(next)), seen_(std::move(seen)) {}

  bool operator()(const Step& step) const { return next_(step); }
  bool operator()(std::string_view what) const { return next_({.what = what}); }
  void seen(std::string_view who, double value) const { seen_(who, value); }

 private:
  Next next_;
  Seen seen_;
};

}  // namespace millrace::bench
