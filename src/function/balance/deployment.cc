#include "function/balance/deployment.h"

#include <algorithm>
#include <utility>

#include "core/address.h"
#include "core/json.h"

namespace millrace {
namespace {

template <class K>
void append_overflowed(const Balance& balance, std::set<std::string>& all) {
  const auto& services = balance.plan()->family<K>().services;
  for (std::size_t i = 0; i < services.size(); ++i) {
    if (balance.is_overflowed<K>(i)) all.insert(to_string(services[i]->spec));
  }
}

/// Returns the services of a plan, each with its listed and draining backends.
template <class K>
std::vector<ServiceSpec<typename K::Address>> served_by(const PlanFor<K>& plan) {
  std::vector<ServiceSpec<typename K::Address>> all;
  for (const auto& service : plan.services) {
    auto& spec = all.emplace_back(service->spec);
    spec.backends.clear();
    for (const auto* ids : {&service->listed, &service->draining}) {
      for (const std::uint16_t id : *ids)
        spec.backends.push_back({plan.backends[id].address, plan.backends[id].port, 0});
    }
  }
  return all;
}

}  // namespace

Result<std::unique_ptr<FunctionDeployment>> BalanceDeployment::create(
    std::shared_ptr<const FunctionSettings> settings, const FunctionRun& run) {
  auto own = std::static_pointer_cast<const BalanceSettings>(std::move(settings));
  BalanceConfig config = balance_config(*own, run);
  BalanceOffer offer;
  if (run.offered != nullptr && run.offered->contains(kOfferedServices)) {
    auto said = balance_offer_from(*run.offered);
    if (!said) return std::unexpected(said.error());
    offer = std::move(*said);
    config.services = with_those_of(offer, std::move(config.services));
  }
  auto plan = Balance::plan(config, run.workers);
  if (!plan) return std::unexpected(plan.error());
  return std::unique_ptr<FunctionDeployment>(
      new BalanceDeployment(std::move(own), std::move(config), std::move(*plan), std::move(offer)));
}

Function& BalanceDeployment::make(unsigned worker) {
  all_[worker] = std::make_unique<Balance>(config_, plan_, worker);
  return *all_[worker];
}

/// Adopts new settings. Removes the mark `unhealthy` in services without a health check: a service
/// may have lost its check, which would have removed the mark.
Result<Review> BalanceDeployment::update(std::shared_ptr<const FunctionSettings> settings,
                                         const FunctionRun& run, const OnEachWorker& on_each) {
  auto before = std::exchange(settings_,
                              std::static_pointer_cast<const BalanceSettings>(std::move(settings)));
  Marked marked_before = marked_;
  forget_health();
  auto review = make_plan(on_each);
  if (!review) {
    settings_ = std::move(before);
    marked_ = std::move(marked_before);
    return review;
  }
  on_each([&](unsigned n) { all_[n]->set_quiet_ms(run.quiet_ms); });
  return review;
}

Result<Review> BalanceDeployment::make_plan(const OnEachWorker& on_each) {
  std::vector<Balance*> all;
  for (const auto& one : all_) all.push_back(one.get());
  const auto review = millrace::update(all, effective(), [&](const auto& step) {
    return on_each([&](unsigned n) { step(*all_[n]); });
  });
  plan_ = all_.front()->plan();
  return review;
}

std::shared_ptr<const FunctionView> BalanceDeployment::view() const { return view_of(plan_); }

/// Returns the sums over all workers, which have the same services and backends in the same order.
/// A service's `established` is a count of all workers already.
std::vector<ServiceStatistics> BalanceDeployment::services() const {
  std::vector<ServiceStatistics> sum = all_.front()->statistics();
  for (std::size_t n = 1; n < all_.size(); ++n) {
    const auto one = all_[n]->statistics();
    for (std::size_t s = 0; s < sum.size(); ++s) {
      sum[s].limited += one[s].limited;
      sum[s].refused += one[s].refused;
      sum[s].collisions += one[s].collisions;
      sum[s].stateless += one[s].stateless;
      for (std::size_t b = 0; b < sum[s].backends.size(); ++b) {
        sum[s].backends[b].packets += one[s].backends[b].packets;
        sum[s].backends[b].bytes += one[s].backends[b].bytes;
        sum[s].backends[b].replies += one[s].backends[b].replies;
        sum[s].backends[b].reply_bytes += one[s].backends[b].reply_bytes;
        sum[s].backends[b].connections += one[s].backends[b].connections;
        sum[s].backends[b].live += one[s].backends[b].live;
        sum[s].backends[b].established += one[s].backends[b].established;
      }
    }
  }
  return sum;
}

Json BalanceDeployment::statistics() const {
  return to_json(services(), plan_->v4.settings.maglev->statistics());
}

std::string BalanceDeployment::table() const { return to_table(services()); }

Result<void> BalanceDeployment::check_invariants() const {
  for (const auto& one : all_) {
    if (auto ok = one->check_invariants(); !ok) return ok;
  }
  return {};
}

// --- another process takes over

/// Collects in `all` the names of services of which some worker may have served packets without an
/// entry lately. False: some worker no longer serves.
bool BalanceDeployment::find_overflowed(std::set<std::string>& all,
                                        const OnEachWorker& on_each) const {
  std::vector<std::set<std::string>> found(all_.size());
  const bool asked = on_each([&](unsigned n) {
    append_overflowed<KeyV4>(*all_[n], found[n]);
    append_overflowed<KeyV6>(*all_[n], found[n]);
  });
  for (auto& one : found) all.merge(one);
  return asked;
}

bool BalanceDeployment::tell_first(Json& to, const OnEachWorker& on_each) const {
  BalanceOffer offer{.services = {served_by(plan_->v4), served_by(plan_->v6)},
                     .overflowed = {},
                     .marked = marked_};
  if (!find_overflowed(offer.overflowed, on_each)) return false;
  append(to, offer);
  return true;
}

void BalanceDeployment::tell_last(Json& to, const OnEachWorker& on_each) const {
  std::set<std::string> overflowed;
  find_overflowed(overflowed, on_each);
  append_overflowed(to, overflowed);
}

void BalanceDeployment::take_last(const Json* said) {
  if (said != nullptr) overflowed_.merge(overflowed_from(*said));
  const auto keep = [&]<class K>(const PlanFor<K>& plan) {
    for (std::size_t i = 0; i < plan.services.size(); ++i) {
      if (!overflowed_.contains(to_string(plan.services[i]->spec))) continue;
      for (const auto& one : all_) one->template set_overflowed<K>(i);
    }
  };
  keep(plan_->v4);
  keep(plan_->v6);
}

}  // namespace millrace
