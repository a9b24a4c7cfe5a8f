// `scan`: checks a slice of the table every interval, all of it in a second (Girondi et al., HPSR
// 2021: "scanning").
//
// Slack: no connection is removed before its deadline. An expired connection is removed at most a
// pass and an interval after its deadline, plus the delay if the budgets of `sweep` do not suffice.
#pragma once

#include <cstdint>
#include <string_view>

#include "conntrack/ageing/passes.h"

namespace millrace {

class Scan final : public Passes {
 public:
  static constexpr std::string_view kName = "scan";
  static constexpr std::string_view kSummary =
      "checks a slice of the table every interval, all of it in 1 s";

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
