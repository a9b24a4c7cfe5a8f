// `lazy`: what has expired stays until its place is wanted (Girondi et al., HPSR 2021, after Le
// Scouarnec, ANCS 2018). A packet that meets it begins a connection anew, in its place, and an
// insertion that finds no other place takes its. A sweep helps: a pass over the table takes a
// minute, and a second where three quarters of the ids or more are taken.
//
// Slack: no connection is removed before its deadline; packets do not meet an expired one; it is
// counted, and keeps its place from others, at most a pass of a minute and an interval, plus what
// the budget of `sweep` leaves for later. Where workers share tables, others may be reading an
// entry that is in the way: there only the sweep removes, and a packet that comes before it finds
// its connection alive.
#pragma once

#include <cstdint>
#include <string_view>

#include "conntrack/ageing/passes.h"

namespace millrace {

class Lazy final : public Passes {
 public:
  static constexpr std::string_view kName = "lazy";
  static constexpr std::string_view kSummary =
      "what has expired stays until its place is wanted, a minute at most";

  static Result<AgeingOfWorkers> create(const AgeingConfig& config, unsigned workers) {
    return create_each<Lazy>(config, workers);
  }
  static std::uint32_t slack_ms(std::uint32_t interval_ms) { return kSlowPassMs + interval_ms; }
  bool leaves_expired() const override { return true; }

 private:
  friend Passes;
  using Passes::Passes;

  static constexpr std::uint32_t kSlowPassMs = 60'000;

  std::uint32_t pass_ms() const override { return has_quarters(3) ? kQuickPassMs : kSlowPassMs; }
};

}  // namespace millrace
