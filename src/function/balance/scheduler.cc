#include "function/balance/scheduler.h"

#include <array>

#include "function/balance/scheduler/hash.h"
#include "function/balance/scheduler/least_connections.h"
#include "function/balance/scheduler/maglev.h"
#include "function/balance/scheduler/round_robin.h"
#include "function/balance/scheduler/weighted_round_robin.h"

namespace millrace {
namespace {

template <class S>
std::unique_ptr<Scheduler> create(const Pool& pool) {
  return std::make_unique<S>(pool);
}

constexpr std::array<SchedulerKind, 5> kSchedulers{{
    {"maglev", "consistent hashing of the five-tuple; the default", create<MaglevScheduler>},
    {"round-robin", "each backend in turn", create<RoundRobin>},
    {"weighted-round-robin", "each backend in turn, as often as its weight, interleaved",
     create<WeightedRoundRobin>},
    {"hash", "keyed hash of the five-tuple modulo the sum of the weights", create<HashScheduler>},
    {"least-connections", "the backend with the fewest connections for its weight",
     create<LeastConnections>},
}};

}  // namespace

std::span<const SchedulerKind> schedulers() { return kSchedulers; }

const SchedulerKind* scheduler_named(std::string_view name) {
  for (const SchedulerKind& kind : kSchedulers) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

}  // namespace millrace
