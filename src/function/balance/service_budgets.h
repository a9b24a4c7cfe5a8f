// How many proved connections each service has, all workers' functions together. A service keeps
// its count through updates, also one that goes and comes back while connections are left.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "core/budget.h"
#include "function/balance/service_table.h"

namespace millrace {

/// Any thread may call it; it is called when services change, never for a packet.
class ServiceBudgets {
 public:
  explicit ServiceBudgets(unsigned workers) : workers_(workers) {}

  /// That of the service with this identity: one and the same as long as somebody has it.
  template <class A>
  std::shared_ptr<Budget> of(const ServiceSpec<A>& service) {
    const std::lock_guard guard(lock_);
    auto& budgets = std::get<Of<A>>(budgets_);
    std::erase_if(budgets, [](const auto& known) { return known.second.expired(); });
    auto& known = budgets[ServiceTable<A>::identity(service)];
    auto budget = known.lock();
    if (budget == nullptr) known = budget = std::make_shared<Budget>(workers_);
    return budget;
  }

 private:
  template <class A>
  using Of = std::map<typename ServiceTable<A>::Words, std::weak_ptr<Budget>>;

  unsigned workers_;
  std::mutex lock_;
  std::tuple<Of<AddressV4>, Of<AddressV6>> budgets_;
};

}  // namespace millrace
