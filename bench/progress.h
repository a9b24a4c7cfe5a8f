// How a benchmark says what it is about to do and what it has seen, and is told to end.
#pragma once

#include <functional>
#include <string_view>
#include <utility>

namespace millrace::bench {

/// Called on the benchmark's own thread.
class Progress {
 public:
  /// Told what comes next; false: the benchmark shall end here.
  using Next = std::function<bool(std::string_view what)>;
  /// Told each measurement of a contender, in the unit of the benchmark's first figure.
  using Seen = std::function<void(std::string_view who, double value)>;

  explicit Progress(
      Next next, Seen seen = [](std::string_view, double) {})
      : next_(std::move(next)), seen_(std::move(seen)) {}

  bool operator()(std::string_view what) const { return next_(what); }
  void seen(std::string_view who, double value) const { seen_(who, value); }

 private:
  Next next_;
  Seen seen_;
};

}  // namespace millrace::bench
