// The stepper for processors other than x86-64: `create` always fails.
#include "stepping.h"

namespace millrace::bench {

struct Stepper::Steps {};

Stepper::Stepper(std::unique_ptr<Steps> steps) : steps_(std::move(steps)) {}
Stepper::Stepper(Stepper&&) noexcept = default;
Stepper& Stepper::operator=(Stepper&&) noexcept = default;
Stepper::~Stepper() = default;

Result<Stepper> Stepper::create() {
  return std::unexpected(Error{"cache lines can be counted on x86-64 only"});
}

Footprint Stepper::follow(void (*call)(void*), void* argument) {
  call(argument);
  return {};
}

}  // namespace millrace::bench
