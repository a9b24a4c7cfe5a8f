// Visits a whole capture, parsed burst by burst.
#pragma once

#include "parse/parse.h"
#include "port/replay_port.h"

namespace millrace {

/// Calls `visit(burst)`, which returns a Result<void>, for each burst of the capture in order, up
/// to the first error. Errors: those of `ReplayPort::create` and of `visit`.
template <class Visit>
Result<void> for_each_burst(const Capture& capture, Visit&& visit) {
  auto port = ReplayPort::create(capture, {.burst = Burst::kMax, .clock = Clock::wall});
  if (!port) return std::unexpected(port.error());
  Burst burst;
  while (port->receive(burst)) {
    parse(burst, port->link_type());
    if (Result<void> done = visit(burst); !done) return done;
  }
  return {};
}

}  // namespace millrace
