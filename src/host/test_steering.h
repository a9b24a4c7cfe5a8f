// A steering for tests, with the same result for every key.
#pragma once

#include "core/steering.h"

namespace millrace {

class SteersAll final : public Steering {
 public:
  explicit SteersAll(const Steered& steered = {}) : steered_(steered) {}
  Steered steer(std::span<const KeyV4>) const override { return steered_; }
  Steered steer(std::span<const KeyV6>) const override { return steered_; }

 private:
  Steered steered_;
};

}  // namespace millrace
