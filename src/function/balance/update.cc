// Changes of the load balancer's services and backends, at the start and later.
#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/address.h"
#include "function/balance/balance.h"

namespace millrace {

// --- one worker

/// The worker may be serving: this writes only what the worker reads after `take_on`. Backends with
/// new ids have no connections yet, so nothing reads them earlier.
template <class K>
void BalanceFor<K>::learn(std::shared_ptr<const Plan> plan) {
  coming_ = std::move(plan);
  coming_services_.clear();
  coming_changes_.clear();
  backends_.grow(coming_->backends.size());
  std::unordered_map<std::uint64_t, std::shared_ptr<Service>> known;
  known.reserve(services_.size());
  for (const auto& service : services_) known.emplace(service->identity, service);
  coming_services_.reserve(coming_->services.size());
  for (const auto& planned : coming_->services) {
    auto& service = known[planned->identity];
    if (service == nullptr) {
      service = std::make_shared<Service>();
      service->identity = planned->identity;
    }
    coming_services_.push_back(service);
  }
  for (std::size_t id = 0; id < backends_.size(); ++id) {
    const auto& coming = coming_->backends[id];
    Backend& backend = backends_[id];
    if (backend.since == coming.since) continue;
    backend = Backend{};
    backend.address = coming.address;
    backend.virtual_address = coming.virtual_address;
    backend.port = coming.port;
    backend.virtual_port = coming.virtual_port;
    backend.forward = coming.forward;
    backend.has_replies = coming.has_replies;
    backend.service = known.at(coming.service).get();
    backend.activity_of_all = coming.activity.get();
    backend.since = coming.since;
  }
  for (const std::uint32_t i : coming_->changed) {
    const auto& planned = coming_->services[i];
    coming_changes_.push_back(
        {coming_services_[i], planned, pool_of(*coming_services_[i], *planned)});
  }
}

template <class K>
void BalanceFor<K>::take_on() {
  plan_.swap(coming_);
  services_.swap(coming_services_);
  for (Coming& change : coming_changes_) {
    change.service->plan.swap(change.plan);
    change.service->pooled.swap(change.pooled);
    change.service->maglev = nullptr;
  }
}

template <class K>
void BalanceFor<K>::let_go() {
  coming_.reset();
  coming_services_.clear();
  coming_changes_.clear();
}

/// Returns the service's scheduler and backends under the plan that is learned: the present object
/// if they stay the same.
template <class K>
auto BalanceFor<K>::pool_of(const Service& service, const typename Plan::Service& planned)
    -> std::shared_ptr<Pooled> {
  if (service.plan != nullptr && service.pooled != nullptr &&
      service.plan->maglev == planned.maglev && service.plan->listed == planned.listed &&
      service.plan->spec.scheduler == planned.spec.scheduler)
    return service.pooled;
  auto pooled = std::make_shared<Pooled>();
  for (const std::uint16_t id : planned.listed) {
    const Backend& backend = backends_[id];
    pooled->candidates.push_back({.weight = coming_->backends[id].weight,
                                  .activity = backend.activity_of_all != nullptr
                                                  ? backend.activity_of_all
                                                  : &backend.activity});
  }
  if (planned.willing > 0)
    pooled->scheduler =
        scheduler_named(planned.spec.scheduler)
            ->create({pooled->candidates, planned.maglev, *coming_->settings.maglev});
  return pooled;
}

template <class K>
std::uint64_t BalanceFor<K>::live_on(std::uint16_t id) const {
  return id < backends_.size() ? backends_[id].live.value() : 0;
}

template <class K>
void BalanceFor<K>::append_statistics(std::vector<ServiceStatistics>& all) const {
  for (const auto& service : services_) {
    ServiceStatistics& out = all.emplace_back();
    out.service = to_string(service->plan->spec);
    out.scheduler = service->plan->spec.scheduler;
    out.forward = service->plan->spec.forward;
    out.draining = service->plan->removed;
    out.established =
        static_cast<std::uint64_t>(std::max<std::int64_t>(service->plan->proved->total(), 0));
    out.max_connections = service->plan->spec.max_connections;
    out.limited = service->limited.value();
    out.refused = service->refused.value();
    out.collisions = service->collisions.value();
    out.stateless = service->stateless.value();
    const auto append = [&](std::uint16_t id, bool draining) {
      const Backend& backend = backends_[id];
      out.backends.push_back({.address = with_port(backend.address, backend.port),
                              .weight = plan_->backends[id].weight,
                              .draining = draining,
                              .packets = backend.packets.value(),
                              .bytes = backend.bytes.value(),
                              .replies = backend.replies.value(),
                              .reply_bytes = backend.reply_bytes.value(),
                              .connections = backend.connections.value(),
                              .live = backend.live.value(),
                              .established = established_on(backend)});
    };
    for (const std::uint16_t id : service->plan->listed) append(id, false);
    for (const std::uint16_t id : service->plan->draining) append(id, true);
  }
}

template <class K>
Result<void> BalanceFor<K>::check_invariants() const {
  const auto broken = [](const char* rule) { return std::unexpected(Error{rule}); };
  if (services_.size() != plan_->services.size()) return broken("a service is missing");
  for (std::size_t i = 0; i < services_.size(); ++i) {
    if (services_[i]->plan != plan_->services[i]) return broken("a service is of another plan");
  }
  for (const std::uint16_t id : plan_->free_ids) {
    if (plan_->settings.workers == 1 && live_on(id) != 0)
      return broken("a free id has live connections");
  }
  return plan_->check_invariants();
}

template class BalanceFor<KeyV4>;
template class BalanceFor<KeyV6>;

// --- all workers

namespace {

/// Returns the plan after `now` with these services. `v4` and `v6` return how many connections live
/// on a backend. Errors: as `PlanFor::check`.
Result<std::shared_ptr<const BalancePlan>> next_plan(const BalancePlan& now,
                                                     const Services& services,
                                                     const PlanFor<KeyV4>::LiveOn& v4,
                                                     const PlanFor<KeyV6>::LiveOn& v6) {
  // Both families are checked before one of them is changed.
  if (auto ok = now.v4.check(services.v4, v4); !ok) return std::unexpected(ok.error());
  if (auto ok = now.v6.check(services.v6, v6); !ok) return std::unexpected(ok.error());
  return std::make_shared<const BalancePlan>(
      BalancePlan{now.v4.next(services.v4, v4), now.v6.next(services.v6, v6)});
}

}  // namespace

Result<std::shared_ptr<const BalancePlan>> Balance::plan(const BalanceConfig& config,
                                                         unsigned workers) {
  if (!is_prime(config.maglev_table_size) || config.maglev_table_size > Maglev::kMaxSize) {
    return std::unexpected(
        Error{"the Maglev table size " + std::to_string(config.maglev_table_size) +
                  " is no prime up to " + std::to_string(Maglev::kMaxSize) + ": 65537 is",
              Error::Kind::usage});
  }
  const PlanSettings settings{
      .hash = balance_hasher(config.key),
      .maglev = std::make_shared<MaglevTables>(config.maglev_table_size, config.maglev_threads),
      .stateful = config.stateful,
      .workers = workers,
      .shares_tables = config.shares_tables};
  const auto none = [](std::uint16_t) { return std::uint64_t{0}; };
  return next_plan({PlanFor<KeyV4>(settings), PlanFor<KeyV6>(settings)}, config.services, none,
                   none);
}

Balance::Balance(const BalanceConfig& config, std::shared_ptr<const BalancePlan> plan,
                 unsigned worker)
    : stateful_(config.stateful), v4_(config, worker), v6_(config, worker) {
  learn(std::move(plan));
  take_on();
  let_go();
}

Result<std::unique_ptr<Balance>> Balance::create(const BalanceConfig& config) {
  auto first = plan(config, 1);
  if (!first) return std::unexpected(first.error());
  return std::make_unique<Balance>(config, std::move(*first));
}

void Balance::learn(std::shared_ptr<const BalancePlan> plan) {
  coming_ = std::move(plan);
  v4_.learn({coming_, &coming_->v4});
  v6_.learn({coming_, &coming_->v6});
}

void Balance::take_on() {
  v4_.take_on();
  v6_.take_on();
  plan_.swap(coming_);
}

void Balance::let_go() {
  coming_.reset();
  v4_.let_go();
  v6_.let_go();
}

namespace {

/// True if connections live on a backend that is gone in the plan `is`, and was not gone in `was`.
template <class K>
bool has_lost(const PlanFor<K>& was, const PlanFor<K>& is,
              const typename PlanFor<K>::LiveOn& live) {
  for (std::size_t id = 0; id < was.backends.size(); ++id) {
    const bool is_same = was.backends[id].since == is.backends[id].since;
    if (is_same && !was.backends[id].is_gone() && is.backends[id].is_gone() &&
        live(static_cast<std::uint16_t>(id)) > 0)
      return true;
  }
  return false;
}

/// True if a service takes new connections in the plan `is`, and took none in `was`.
template <class K>
bool has_gained(const PlanFor<K>& was, const PlanFor<K>& is) {
  std::set<std::uint64_t> removed;
  for (const auto& service : was.services) {
    if (service->removed) removed.insert(service->identity);
  }
  return std::ranges::any_of(is.services, [&](const auto& service) {
    return !service->removed &&
           (service->identity >= was.identities || removed.contains(service->identity));
  });
}

}  // namespace

Result<Review> update(std::span<Balance* const> all, const Services& services,
                      const OnEachBalance& on_each) {
  const auto live = [all]<class K>(std::uint16_t id) {
    std::uint64_t sum = 0;
    for (const Balance* one : all) sum += one->live_on<K>(id);
    return sum;
  };
  const auto live_v4 = [&live](std::uint16_t id) { return live.operator()<KeyV4>(id); };
  const auto live_v6 = [&live](std::uint16_t id) { return live.operator()<KeyV6>(id); };
  const std::shared_ptr<const BalancePlan> before = all.front()->plan();
  // After the first round no worker opens connections to removed backends. The second round forgets
  // those of them that have no connections left.
  bool forgets = false;
  for (int time = 0; time == 0 || (time == 1 && forgets); ++time) {
    const auto plan = next_plan(*all.front()->plan(), services, live_v4, live_v6);
    if (!plan) return std::unexpected(plan.error());
    for (Balance* one : all) one->learn(*plan);
    if (!on_each([](Balance& one) { one.take_on(); }))
      return std::unexpected(Error{"millrace is ending: nothing can change any more"});
    for (Balance* one : all) one->let_go();
    forgets = (*plan)->v4.forgets(live_v4) || (*plan)->v6.forgets(live_v6);
  }
  const BalancePlan& now = *all.front()->plan();
  if (has_lost(before->v4, now.v4, live_v4) || has_lost(before->v6, now.v6, live_v6))
    return Review::all;
  const bool gains = has_gained(before->v4, now.v4) || has_gained(before->v6, now.v6);
  return gains ? Review::unconcerned : Review::none;
}

std::vector<ServiceStatistics> Balance::statistics() const {
  std::vector<ServiceStatistics> all;
  v4_.append_statistics(all);
  v6_.append_statistics(all);
  return all;
}

Result<void> Balance::check_invariants() const {
  if (auto ok = v4_.check_invariants(); !ok) return ok;
  return v6_.check_invariants();
}

}  // namespace millrace
