// How the load balancer takes on services and backends, at start and later.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/address.h"
#include "function/balance/balance.h"

namespace millrace {
namespace {

std::unexpected<Error> wrong(const std::string& message) {
  return std::unexpected(Error{message, Error::Kind::usage});
}

}  // namespace

template <class K>
Result<void> BalanceFor<K>::check(const std::vector<Spec>& specs) const {
  std::set<Destination<Address>> services;
  std::size_t ids = 0;
  for (const Spec& spec : specs) {
    const std::string name = "service " + to_string(spec);
    if (!services.insert(spec.destination()).second) {
      return wrong(name + " is there twice: give each its own address, port or protocol");
    }
    if (scheduler_named(spec.scheduler) == nullptr) {
      return wrong(name + ": no scheduler is called " + spec.scheduler);
    }
    if (settled_ && stateful_ && !replies_ && spec.two_way()) {
      return wrong(name + " would be the first with replies, for which there is no table: restart");
    }
    std::set<std::pair<Address, std::uint16_t>> backends;
    for (const auto& backend : spec.backends) {
      if (!backends.emplace(backend.address, backend.port).second) {
        return wrong(name + ": backend " + with_port(backend.address, backend.port) +
                     " is there twice: give it a weight instead");
      }
    }
    if (backends.size() >= maglev_size_) {
      return wrong(name + " has more backends than the Maglev table entries: enlarge it");
    }
    ids += backends.size();
  }
  if (ids + draining_after(specs) > kMaxBackends) {
    return wrong("more than 65536 backends of one family, draining ones included: list fewer");
  }
  return {};
}

/// Backends with connections that are not among their service's in `specs`.
template <class K>
std::size_t BalanceFor<K>::draining_after(const std::vector<Spec>& specs) const {
  std::map<Destination<Address>, const Spec*> wanted;
  for (const Spec& spec : specs) wanted.emplace(spec.destination(), &spec);
  std::size_t draining = 0;
  for (const auto& service : services_) {
    std::set<std::pair<Address, std::uint16_t>> stay;
    if (const auto at = wanted.find(service->spec.destination()); at != wanted.end()) {
      for (const auto& backend : at->second->backends) stay.emplace(backend.address, backend.port);
    }
    for (const auto* ids : {&service->listed, &service->draining}) {
      for (const std::uint16_t id : *ids) {
        const Backend& backend = backends_[id];
        const bool stays = stay.contains({backend.address, backend.port});
        draining += !stays && backend.live.value() > 0 ? 1 : 0;
      }
    }
  }
  return draining;
}

template <class K>
void BalanceFor<K>::update(const std::vector<Spec>& specs) {
  std::map<Destination<Address>, std::unique_ptr<Service>> old;
  for (auto& service : services_) {
    const auto destination = service->spec.destination();
    old.emplace(destination, std::move(service));
  }
  services_.clear();
  for (const Spec& spec : specs) {
    auto node = old.extract(spec.destination());
    services_.push_back(node ? std::move(node.mapped()) : std::make_unique<Service>());
    services_.back()->removed = false;
    services_.back()->spec = spec;
    services_.back()->proved = counts_->of(spec);
  }
  for (auto& [destination, service] : old) {
    service->removed = true;
    service->spec.backends.clear();
    services_.push_back(std::move(service));
  }
  // All give up ids before any takes one, so that the ids suffice.
  for (auto& service : services_) unlist(*service);
  std::erase_if(services_, [](const auto& s) { return s->removed && s->draining.empty(); });
  for (auto& service : services_) list(*service);
  for (auto& service : services_) wire(*service);
  index_services();
}

/// Moves all of the service's backends to those that drain, and forgets those that have no
/// connections and are no longer configured.
template <class K>
void BalanceFor<K>::unlist(Service& service) {
  service.draining.insert(service.draining.end(), service.listed.begin(), service.listed.end());
  service.listed.clear();
  std::erase_if(service.draining, [&](std::uint16_t id) {
    Backend& backend = backends_[id];
    backend.place = kNoPlace;
    if (backend.live.value() > 0) return false;
    const bool wanted = std::ranges::any_of(
        service.spec.backends, [&](const auto& spec) { return is_same(backend, spec); });
    if (!wanted) free_ids_.push_back(id);
    return !wanted;
  });
}

/// Gives the service its configured backends: those it had keep their ids, connections, counters.
template <class K>
void BalanceFor<K>::list(Service& service) {
  for (const auto& wanted : service.spec.backends) {
    const std::uint16_t id = backend_for(service, wanted);
    backends_[id].place = static_cast<std::uint32_t>(service.listed.size());
    backends_[id].weight = wanted.weight;
    service.listed.push_back(id);
  }
}

template <class K>
bool BalanceFor<K>::is_same(const Backend& backend, const BackendSpec<Address>& spec) {
  return backend.address == spec.address && backend.port == spec.port;
}

/// The id of one that would drain otherwise, or a new one.
template <class K>
std::uint16_t BalanceFor<K>::backend_for(Service& service, const BackendSpec<Address>& wanted) {
  const auto at = std::ranges::find_if(
      service.draining, [&](std::uint16_t id) { return is_same(backends_[id], wanted); });
  if (at != service.draining.end()) {
    const std::uint16_t id = *at;
    service.draining.erase(at);
    return id;
  }
  const std::uint16_t id = new_id();
  backends_[id] = Backend{};
  backends_[id].address = wanted.address;
  backends_[id].virtual_address = service.spec.address;
  backends_[id].virtual_port = service.spec.port;
  backends_[id].port = wanted.port;
  backends_[id].service = &service;
  return id;
}

template <class K>
std::uint16_t BalanceFor<K>::new_id() {
  if (free_ids_.empty()) {
    backends_.emplace_back();
    return static_cast<std::uint16_t>(backends_.size() - 1);
  }
  const std::uint16_t id = free_ids_.back();
  free_ids_.pop_back();
  return id;
}

/// Points to the listed backends, once all have their final place in memory. Schedulers see the
/// candidates where they are, so as many as before stay in their place.
template <class K>
void BalanceFor<K>::refresh_candidates(Service& service) {
  service.candidates.resize(service.listed.size());
  service.willing = 0;
  for (std::size_t place = 0; place < service.listed.size(); ++place) {
    const Backend& backend = backends_[service.listed[place]];
    service.candidates[place] = {.weight = backend.weight, .live = &backend.live};
    if (backend.weight > 0) ++service.willing;
  }
}

/// Builds what schedules the service's connections; what has not changed goes on where it was.
template <class K>
void BalanceFor<K>::wire(Service& service) {
  refresh_candidates(service);
  std::vector<Maglev::Member> members;
  members.reserve(service.listed.size());
  for (const std::uint16_t id : service.listed) {
    const Backend& backend = backends_[id];
    members.push_back(Maglev::member(hash_, backend.address, backend.port, backend.weight));
  }
  const SchedulerKind* kind = scheduler_named(service.spec.scheduler);
  const bool changed = members != service.members;
  if (!changed && kind == service.kind) return;
  if (changed) service.maglev = Maglev::build(members, maglev_size_);
  service.members = std::move(members);
  service.kind = kind;
  service.scheduler.reset();
  if (service.willing > 0) service.scheduler = kind->create({service.candidates, service.maglev});
}

template <class K>
void BalanceFor<K>::index_services() {
  std::vector<Destination<Address>> all;
  std::vector<Destination<Address>>
      live;  // the first of `services_`, so that both tables' indexes agree
  std::set<Address> sources;
  bool one_way = false;
  two_way_ = false;
  for (const auto& service : services_) {
    all.push_back(service->spec.destination());
    if (!service->removed) live.push_back(service->spec.destination());
    const bool two_way = stateful_ && service->spec.two_way();
    (two_way ? two_way_ : one_way) = true;
    if (!two_way) continue;
    for (const std::uint16_t id : service->listed) sources.insert(backends_[id].address);
    for (const std::uint16_t id : service->draining) sources.insert(backends_[id].address);
  }
  mixed_ = two_way_ && one_way;
  if (!settled_) replies_ = two_way_;
  settled_ = true;
  table_.build(all);
  current_.build(live);
  std::vector<Destination<Address>> hosts;
  for (const Address& address : sources) hosts.push_back({address});
  reply_sources_.build(hosts);
  index_replies();
}

template <class K>
void BalanceFor<K>::index_replies() {
  std::map<Destination<Address>, std::size_t> places;
  std::vector<Destination<Address>> ends;
  answering_there_.clear();
  for (std::uint32_t at = 0; at < services_.size(); ++at) {
    const Service& service = *services_[at];
    if (service.removed || !stateful_ || !service.spec.two_way() || service.spec.port == 0)
      continue;
    for (const std::uint16_t id : service.listed) {
      const Backend& backend = backends_[id];
      const Destination<Address> end{.address = backend.address,
                                     .port = backend.port != 0 ? backend.port : service.spec.port,
                                     .protocol = service.spec.protocol};
      const auto [place, fresh] = places.emplace(end, answering_there_.size());
      if (fresh) {
        ends.push_back(end);
        answering_there_.emplace_back();
      }
      answering_there_[place->second].push_back({at, id});
    }
  }
  answering_.build(ends);
}

template <class K>
void BalanceFor<K>::append_statistics(std::vector<ServiceStatistics>& all) const {
  for (const auto& service : services_) {
    ServiceStatistics& out = all.emplace_back();
    out.service = to_string(service->spec);
    out.scheduler = service->spec.scheduler;
    out.draining = service->removed;
    out.established =
        static_cast<std::uint64_t>(std::max<std::int64_t>(service->proved->total(), 0));
    out.max_connections = service->spec.max_connections;
    out.limited = service->limited.value();
    out.refused = service->refused.value();
    out.collisions = service->collisions.value();
    out.stateless = service->stateless.value();
    const auto append = [&](std::uint16_t id, bool draining) {
      const Backend& backend = backends_[id];
      out.backends.push_back({.address = with_port(backend.address, backend.port),
                              .weight = backend.weight,
                              .draining = draining,
                              .packets = backend.packets.value(),
                              .replies = backend.replies.value(),
                              .connections = backend.connections.value(),
                              .live = backend.live.value()});
    };
    for (const std::uint16_t id : service->listed) append(id, false);
    for (const std::uint16_t id : service->draining) append(id, true);
  }
}

template <class K>
Result<void> BalanceFor<K>::check_invariants() const {
  const auto broken = [](const char* rule) { return std::unexpected(Error{rule}); };
  std::set<std::uint16_t> ids(free_ids_.begin(), free_ids_.end());
  if (ids.size() != free_ids_.size()) return broken("an id is free twice");
  for (const std::uint16_t id : free_ids_) {
    if (backends_[id].live.value() != 0) return broken("a free id has live connections");
  }
  for (const auto& service : services_) {
    for (std::size_t place = 0; place < service->listed.size(); ++place) {
      if (!ids.insert(service->listed[place]).second) return broken("two owners of one id");
      if (backends_[service->listed[place]].place != place) return broken("a backend is misplaced");
    }
    for (const std::uint16_t id : service->draining) {
      if (!ids.insert(id).second) return broken("two owners of one id");
      if (backends_[id].place != kNoPlace) return broken("a draining backend has a place");
    }
  }
  if (ids.size() != backends_.size()) return broken("an id is lost");
  return {};
}

Result<std::unique_ptr<Balance>> Balance::create(const BalanceConfig& config) {
  if (!is_prime(config.maglev_table_size) || config.maglev_table_size > Maglev::kMaxSize) {
    return wrong("the Maglev table size " + std::to_string(config.maglev_table_size) +
                 " is no prime up to " + std::to_string(Maglev::kMaxSize) + ": 65537 is");
  }
  BalanceConfig whole = config;
  if (whole.counts == nullptr) whole.counts = std::make_shared<ServiceCounts>(config.worker + 1);
  if (whole.worker >= whole.counts->workers()) {
    return wrong("there is no worker " + std::to_string(whole.worker) + " among " +
                 std::to_string(whole.counts->workers()));
  }
  std::unique_ptr<Balance> balance(new Balance(whole));
  if (auto ok = balance->update(config.services); !ok) return std::unexpected(ok.error());
  return balance;
}

Result<void> Balance::update(const Services& services) {
  // Both are checked before either changes.
  if (auto ok = v4_.check(services.v4); !ok) return ok;
  if (auto ok = v6_.check(services.v6); !ok) return ok;
  v4_.update(services.v4);
  v6_.update(services.v6);
  return {};
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
