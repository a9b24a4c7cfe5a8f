// Reports a benchmark's steps and measurements to its caller, which may end the benchmark.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>
#include <utility>

namespace millrace::bench {

/// The next step of a benchmark.
struct Step {
  std::string_view what;    ///< description for people
  std::string_view who;     ///< the contender that is measured; empty: none
  std::size_t to_come = 0;  ///< least number of measurements to come, with this one; 0: unknown
  bool anew = false;        ///< earlier measurements do not compare with the following ones

  // NOLINTNEXTLINE(google-explicit-constructor): callers that show only `what` take a string.
  operator std::string_view() const { return what; }
};

/// Two functions of a benchmark's caller. Both functions are called on the thread that runs the
/// benchmark.
class Progress {
 public:
  /// Receives the next step. Returns false if the benchmark shall end before that step.
  using Next = std::function<bool(const Step& step)>;
  /// Receives each measurement of a contender, in the unit of the benchmark's first figure.
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
