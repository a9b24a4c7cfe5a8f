// `none`: connections do not expire; they stay until they are closed or evicted.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "conntrack/ageing/ageing.h"

namespace millrace {

class NoAgeing final : public Ageing {
 public:
  static constexpr std::string_view kName = "none";
  static constexpr std::string_view kSummary =
      "connections do not expire, they stay until they are closed or evicted";
  static Result<AgeingOfWorkers> create(const AgeingConfig&, unsigned workers) {
    AgeingOfWorkers all;
    for (unsigned worker = 0; worker < workers; ++worker)
      all.push_back(std::make_unique<NoAgeing>());
    return all;
  }
  void born(ConnId, Tick, Tick) override {}
  void gone(ConnId) override {}
  bool sweep(Tick, unsigned, Connections&) override { return true; }
  std::size_t memory_bytes() const override { return 0; }
  Result<void> check_invariants() const override { return {}; }
};

}  // namespace millrace
