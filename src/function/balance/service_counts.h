// How many proved connections each service has, all workers' functions together. A service keeps
// its count through updates, also one that goes and comes back while connections are left.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "core/sharded_count.h"
#include "function/balance/service.h"

namespace millrace {

/// Any thread may call it; it is called when services change, never for a packet.
class ServiceCounts {
 public:
  explicit ServiceCounts(unsigned workers) : workers_(workers) {}

  unsigned workers() const { return workers_; }

  /// That of the service with this identity: one and the same as long as somebody has it.
  template <class A>
  std::shared_ptr<ShardedCount> of(const ServiceSpec<A>& service) {
    const std::lock_guard guard(lock_);
    auto& counts = std::get<Of<A>>(counts_);
    std::erase_if(counts, [](const auto& known) { return known.second.expired(); });
    auto& known = counts[service.destination()];
    auto count = known.lock();
    if (count == nullptr) known = count = std::make_shared<ShardedCount>(workers_);
    return count;
  }

 private:
  template <class A>
  using Of = std::map<Destination<A>, std::weak_ptr<ShardedCount>>;

  unsigned workers_;
  std::mutex lock_;
  std::tuple<Of<AddressV4>, Of<AddressV6>> counts_;
};

}  // namespace millrace
