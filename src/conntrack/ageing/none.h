// `none`: connections stay until someone removes them.
#pragma once

#include <vector>

#include "conntrack/ageing/ageing.h"

namespace millrace {

struct NoAgeing {
  static constexpr std::string_view kName = "none";
  static constexpr std::string_view kSummary = "connections stay until they are removed";
  static Result<std::vector<NoAgeing>> create(const AgeingConfig&, unsigned workers) {
    return std::vector<NoAgeing>(workers);
  }
  void born(ConnId, Tick, Tick) {}
  void gone(ConnId) {}
  template <Lives L, class Expire>
  bool sweep(Tick, unsigned, const L&, Expire&&) {
    return true;
  }
  std::size_t memory_bytes() const { return 0; }
  Result<void> check_invariants() const { return {}; }
};

static_assert(Ageing<NoAgeing>);

}  // namespace millrace
