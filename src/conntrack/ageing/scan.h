// `scan`: every interval a slice of the table is looked at, all of it in a second (Girondi et al.,
// HPSR 2021: "scanning").
//
// Slack: no connection is removed before its deadline, and an idle one at most a pass and an
// interval after it, plus what the budget of `sweep` leaves for later.
#pragma once

#include <cstdint>
#include <string_view>

#include "conntrack/ageing/passes.h"

namespace millrace {

class Scan final : public Passes {
 public:
  static constexpr std::string_view kName = "scan";
  static constexpr std::string_view kSummary = "a slice of the table every interval, all in 1 s";

  static Result<AgeingOfWorkers> create(const AgeingConfig& config, unsigned workers) {
    return create_each<Scan>(config, workers);
  }
  static std::uint32_t slack_ms(std::uint32_t interval_ms) { return kQuickPassMs + interval_ms; }

 private:
  friend Passes;
  using Passes::Passes;

  std::uint32_t pass_ms() const override { return kQuickPassMs; }
};

}  // namespace millrace
