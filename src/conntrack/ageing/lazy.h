// `lazy`: an expired connection stays until its slot is needed (Girondi et al., HPSR 2021, after Le
// Scouarnec, ANCS 2018). A packet with the key of an expired connection opens a new connection in
// the same slot, and an insertion that finds no free slot may evict an expired connection. Sweeps
// remove expired connections, too: a pass over the table takes a minute, or a second if the worker
// has at least three quarters of `AgeingConfig::connections`, divided by the number of workers.
//
// Slack: no connection is removed before its deadline, and no packet finds an expired connection.
// An expired connection is counted as live and keeps its slot for at most a pass of a minute and an
// interval, plus the delay if the budgets of `sweep` do not suffice. If workers share tables,
// another worker may be reading an expired entry: then only sweeps remove entries, and a packet
// that arrives before the sweep still finds the connection live.
#pragma once

#include <cstdint>
#include <string_view>

#include "conntrack/ageing/passes.h"

namespace millrace {

class Lazy final : public Passes {
 public:
  static constexpr std::string_view kName = "lazy";
  static constexpr std::string_view kSummary =
      "expired connections stay until their slots are needed, a minute at most";

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
