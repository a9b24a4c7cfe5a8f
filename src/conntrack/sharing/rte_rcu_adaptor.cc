#include "conntrack/sharing/rte_rcu_adaptor.h"

#include <rte_rcu_qsbr.h>

#include <cstdlib>
#include <string>

namespace millrace {

void GracePeriods::Free::operator()(rte_rcu_qsbr* variable) const { std::free(variable); }

Result<GracePeriods> GracePeriods::create(unsigned workers) {
  const std::size_t bytes = rte_rcu_qsbr_get_memsize(workers);
  const std::size_t lines = (bytes + 63) / 64 * 64;
  std::unique_ptr<rte_rcu_qsbr, Free> variable(
      static_cast<rte_rcu_qsbr*>(std::aligned_alloc(64, lines)));
  if (!variable || rte_rcu_qsbr_init(variable.get(), workers) != 0) {
    return std::unexpected(
        Error{"no memory for the grace periods of " + std::to_string(workers) + " workers"});
  }
  for (unsigned worker = 0; worker < workers; ++worker)
    rte_rcu_qsbr_thread_register(variable.get(), worker);
  return GracePeriods(std::move(variable));
}

void GracePeriods::begin(unsigned worker) { rte_rcu_qsbr_thread_online(variable_.get(), worker); }
void GracePeriods::quiescent(unsigned worker) { rte_rcu_qsbr_quiescent(variable_.get(), worker); }
void GracePeriods::end(unsigned worker) { rte_rcu_qsbr_thread_offline(variable_.get(), worker); }
std::uint64_t GracePeriods::start() { return rte_rcu_qsbr_start(variable_.get()); }
bool GracePeriods::is_over(std::uint64_t period) {
  // rte_rcu keeps the result of a check, so that the next caller reads no worker's counter. Acquire
  // and release of the flag therefore make the next caller see what the first one saw of the
  // workers.
  if (asking_->test_and_set(std::memory_order_acquire)) return false;
  const bool over = rte_rcu_qsbr_check(variable_.get(), period, false) != 0;
  asking_->clear(std::memory_order_release);
  return over;
}

}  // namespace millrace
