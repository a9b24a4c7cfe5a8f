#include "function/balance/plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "core/address.h"
#include "function/balance/scheduler.h"

namespace millrace {
namespace {

std::unexpected<Error> wrong(const std::string& message) {
  return std::unexpected(Error{message, Error::Kind::usage});
}

/// True if `spec`, listed by that service, is this backend. A backend with another `forward` counts
/// as another backend, so that connections keep the `forward` with which they began.
template <class Backend, class Spec, class A>
bool is_same(const Backend& backend, const Spec& service, const BackendSpec<A>& spec) {
  return backend.address == spec.address && backend.port == spec.port &&
         backend.forward == service.forward;
}

template <class Backend, class Spec>
bool is_among(const Backend& backend, const Spec& service) {
  return std::ranges::any_of(service.backends,
                             [&](const auto& one) { return is_same(backend, service, one); });
}

/// True if both services have the same destination and `forward`, and backends at the same
/// addresses and ports in the same order.
template <class Spec>
bool lists_the_same(const Spec& one, const Spec& other) {
  return one.destination() == other.destination() && one.forward == other.forward &&
         std::ranges::equal(one.backends, other.backends, [](const auto& a, const auto& b) {
           return a.address == b.address && a.port == b.port;
         });
}

}  // namespace

template <class K>
Result<void> PlanFor<K>::check(const std::vector<Spec>& specs, const LiveOn& live) const {
  for (const Spec& spec : specs) {
    if (scheduler_named(spec.scheduler) == nullptr)
      return wrong("service " + to_string(spec) + ": no scheduler is called " + spec.scheduler);
  }
  const bool are_listed_as_before =
      std::ranges::equal(specs, services, [](const Spec& spec, const auto& service) {
        return !service->removed && lists_the_same(spec, service->spec);
      });
  if (are_listed_as_before) return {};
  std::set<Destination<Address>> all;
  std::size_t ids = 0;
  for (const Spec& spec : specs) {
    const std::string name = "service " + to_string(spec);
    if (!all.insert(spec.destination()).second) {
      return wrong(name + " is there twice: give each its own address, port or protocol");
    }
    if (number > 0 && settings.stateful && !replies && spec.two_way()) {
      return wrong(
          name +
          " would be the first whose replies are rewritten, and entries have no room for that: "
          "restart millrace");
    }
    std::set<std::pair<Address, std::uint16_t>> ends;
    for (const auto& backend : spec.backends) {
      if (!ends.emplace(backend.address, backend.port).second) {
        return wrong(name + ": backend " + with_port(backend.address, backend.port) +
                     " is there twice: give it a weight instead");
      }
    }
    if (ends.size() > settings.maglev->size()) {
      return wrong(
          name +
          " has more backends than the Maglev table takes: enlarge balance.maglev_table_size");
    }
    ids += ends.size();
  }
  if (ids + kept_beside(specs, live) > kMaxBackends) {
    return wrong(
        "more than 65535 backends of one address family, those that were listed before and those "
        "that drain included: list fewer, or change them in two steps");
  }
  return {};
}

template <class K>
std::optional<Side> PlanFor<K>::side(const K& key) const {
  const std::uint32_t found = serving_for(key);
  if (found == kNone) return index->two_way ? std::optional(Side::reply) : std::nullopt;
  if (!index->mixed || !services[found]->spec.is_prefix()) return Side::originator;
  // The clients of a two-way service may be within a prefix that is a service, too. Packets to them
  // from a backend are replies.
  return index->reply_sources.find(key.source, 0, 0) != kNone ? Side::reply : Side::originator;
}

template <class K>
std::string PlanFor<K>::backend_name(const K& key, const K& translated) const {
  const bool by_port = has_ports(translated.protocol);
  std::uint16_t port = by_port ? translated.destination_port : 0;
  const Service* service = serving(key);
  if (service == nullptr) return with_port(translated.destination, port);
  for (const auto* ids : {&service->listed, &service->draining}) {
    for (const std::uint16_t id : *ids) {
      const Backend& one = backends[id];
      if (one.address != translated.destination) continue;
      if (!by_port || one.port == translated.destination_port)
        return with_port(one.address, one.port);
      // A backend without a port keeps the packets' port: the name is its address alone, unless
      // another backend has that port.
      if (one.port == 0) port = 0;
    }
  }
  return with_port(translated.destination, port);
}

/// Returns how many backends keep their ids although `specs` no longer list them.
template <class K>
std::size_t PlanFor<K>::kept_beside(const std::vector<Spec>& specs, const LiveOn& live) const {
  using Known = std::tuple<Address, std::uint16_t, Forward>;
  std::map<Destination<Address>, std::set<Known>> wanted;
  for (const Spec& spec : specs) {
    for (const auto& backend : spec.backends)
      wanted[spec.destination()].emplace(backend.address, backend.port, spec.forward);
  }
  std::size_t kept = 0;
  for (const auto& service : services) {
    const auto& stay = wanted[service->spec.destination()];
    const auto is_left = [&](std::uint16_t id) {
      return !stay.contains({backends[id].address, backends[id].port, backends[id].forward});
    };
    for (const std::uint16_t id : service->listed) kept += is_left(id) ? 1 : 0;
    for (const std::uint16_t id : service->draining) kept += is_left(id) && live(id) > 0 ? 1 : 0;
  }
  return kept;
}

template <class K>
bool PlanFor<K>::forgets(const LiveOn& live) const {
  return std::ranges::any_of(services, [&](const auto& service) { return service->forgets(live); });
}

/// Returns each service of `specs` as it is in this plan; null for a new one.
template <class K>
auto PlanFor<K>::before(const std::vector<Spec>& specs) const
    -> std::vector<std::shared_ptr<const Service>> {
  std::vector<std::shared_ptr<const Service>> all(specs.size());
  std::map<Destination<Address>, std::shared_ptr<const Service>> elsewhere;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (i < services.size() && services[i]->spec.destination() == specs[i].destination()) {
      all[i] = services[i];
      continue;
    }
    if (elsewhere.empty()) {
      for (const auto& service : services) elsewhere.emplace(service->spec.destination(), service);
    }
    if (const auto at = elsewhere.find(specs[i].destination()); at != elsewhere.end())
      all[i] = at->second;
  }
  return all;
}

template <class K>
PlanFor<K> PlanFor<K>::next(const std::vector<Spec>& specs, const LiveOn& live) const {
  PlanFor plan(*this);
  plan.number = number + 1;
  plan.changed.clear();
  plan.services = before(specs);
  std::vector<std::shared_ptr<Service>> changing;  // by place in `plan.services`; null: unchanged
  std::set<const Service*> left;
  for (const auto& service : services) left.insert(service.get());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const auto& was = plan.services[i];
    left.erase(was.get());
    const bool stays =
        was != nullptr && !was->removed && was->spec == specs[i] && !was->forgets(live);
    auto& service = changing.emplace_back();
    if (stays) continue;
    service = was != nullptr ? std::make_shared<Service>(*was) : std::make_shared<Service>();
    if (was == nullptr) {
      service->identity = plan.identities++;
      service->proved = std::make_shared<ShardedCount>(settings.workers);
    }
    service->removed = false;
    service->spec = specs[i];
  }
  for (const auto& was : services) {
    if (!left.contains(was.get())) continue;
    plan.services.push_back(was);
    auto& service = changing.emplace_back();
    if (was->removed && !was->forgets(live)) continue;
    service = std::make_shared<Service>(*was);
    service->removed = true;
    service->spec.backends.clear();
  }
  // All services free ids before any service takes new ones, so that there are enough.
  for (const auto& service : changing) {
    if (service != nullptr) plan.unlist(*service, live);
  }
  for (std::size_t i = 0; i < changing.size(); ++i) {
    if (changing[i] != nullptr) plan.list(*changing[i]);
  }
  plan.take(std::move(changing));
  const auto finds_as = [](const auto& was, const auto& is) {
    return was == is || (was->identity == is->identity && was->removed == is->removed &&
                         was->spec.direct == is->spec.direct && was->listed == is->listed &&
                         was->draining == is->draining);
  };
  if (!std::ranges::equal(services, plan.services, finds_as)) plan.make_index();
  if (plan.number == 1) plan.replies = plan.index->two_way;
  return plan;
}

/// Puts the changed services into their places. Leaves out removed services without connections.
template <class K>
void PlanFor<K>::take(std::vector<std::shared_ptr<Service>> changing) {
  std::vector<std::shared_ptr<const Service>> all;
  for (std::size_t i = 0; i < changing.size(); ++i) {
    if (changing[i] == nullptr) {
      all.push_back(std::move(services[i]));
    } else if (!changing[i]->removed || !changing[i]->draining.empty()) {
      changed.push_back(static_cast<std::uint32_t>(all.size()));
      all.push_back(std::move(changing[i]));
    }
  }
  services = std::move(all);
}

/// Makes all of the service's backends draining ones, and frees the ids of backends that drained
/// before, have no connections left and are not listed again.
template <class K>
void PlanFor<K>::unlist(Service& service, const LiveOn& live) {
  std::erase_if(service.draining, [&](std::uint16_t id) {
    if (live(id) > 0 || is_among(backends[id], service.spec)) return false;
    free_ids.push_back(id);
    return true;
  });
  service.draining.insert(service.draining.end(), service.listed.begin(), service.listed.end());
  service.listed.clear();
  for (const std::uint16_t id : service.draining) backends[id].place = kNoPlace;
}

/// Lists the configured backends of the service. Backends that the service had in the previous plan
/// keep their ids.
template <class K>
void PlanFor<K>::list(Service& service) {
  service.willing = 0;
  for (const auto& wanted : service.spec.backends) {
    const std::uint16_t id = backend_for(service, wanted);
    backends[id].place = static_cast<std::uint32_t>(service.listed.size());
    backends[id].is_healthy = wanted.is_healthy;
    backends[id].weight = wanted.is_healthy ? wanted.weight : 0;
    service.willing += backends[id].weight > 0 ? 1 : 0;
    service.listed.push_back(id);
  }
  service.in_order = service.listed;
  service.in_order.insert(service.in_order.end(), service.draining.begin(), service.draining.end());
  std::ranges::stable_sort(service.in_order, {}, [this](std::uint16_t id) {
    return std::pair(backends[id].address, backends[id].port);
  });
  MaglevTable::Members members;
  for (const std::uint16_t id : service.listed) {
    const Backend& backend = backends[id];
    members.push_back(Maglev::member(settings.hash, backend.address, backend.port, backend.weight));
  }
  if (service.maglev != nullptr && members == service.maglev->members()) return;
  const bool is_used = service.maglev != nullptr && service.maglev->made() != nullptr;
  service.maglev = settings.maglev->of(std::move(members));
  if (is_used) settings.maglev->want(service.maglev);
}

template <class K>
std::optional<std::uint16_t> PlanFor<K>::backend_at(const Service& service, const Address& address,
                                                    std::optional<std::uint16_t> port) const {
  const auto place = [this](std::uint16_t id) {
    return std::pair(backends[id].address, backends[id].port);
  };
  const auto at =
      std::ranges::lower_bound(service.in_order, std::pair(address, port.value_or(0)), {}, place);
  const bool is_it = at != service.in_order.end() && backends[*at].address == address &&
                     (!port || backends[*at].port == *port);
  return is_it ? std::optional(*at) : std::nullopt;
}

/// Returns the id of the wanted backend. A backend in `draining` keeps its id, and is removed from
/// there; a new backend gets a new id.
template <class K>
std::uint16_t PlanFor<K>::backend_for(Service& service, const BackendSpec<Address>& wanted) {
  const auto at = std::ranges::find_if(service.draining, [&](std::uint16_t id) {
    return is_same(backends[id], service.spec, wanted);
  });
  if (at != service.draining.end()) {
    const std::uint16_t id = *at;
    service.draining.erase(at);
    return id;
  }
  const std::uint16_t id = new_id();
  backends[id] = {.address = wanted.address,
                  .port = wanted.port,
                  .virtual_address = service.spec.address,
                  .virtual_port = service.spec.port,
                  .forward = service.spec.forward,
                  .has_replies = settings.stateful && service.spec.two_way(),
                  .service = service.identity,
                  .since = number,
                  .activity = settings.shares_tables ? std::make_shared<Activity>() : nullptr};
  return id;
}

template <class K>
std::uint16_t PlanFor<K>::new_id() {
  if (free_ids.empty()) {
    backends.emplace_back();
    return static_cast<std::uint16_t>(backends.size() - 1);
  }
  const std::uint16_t id = free_ids.back();
  free_ids.pop_back();
  return id;
}

template <class K>
void PlanFor<K>::make_index() {
  Index of;
  std::vector<Destination<Address>> all;
  // Removed services are the last in `services`, so an index means the same service in both tables.
  std::vector<Destination<Address>> live;
  std::set<Address> sources;
  bool has_prefix = false;
  for (const auto& service : services) {
    all.push_back(service->spec.destination());
    if (!service->removed) live.push_back(service->spec.destination());
    has_prefix = has_prefix || service->spec.is_prefix();
    for (const auto* ids : {&service->listed, &service->draining}) {
      for (const std::uint16_t id : *ids) {
        if (backends[id].has_replies) sources.insert(backends[id].address);
      }
    }
  }
  of.two_way = !sources.empty();
  of.mixed = of.two_way && has_prefix;
  of.table.build(all);
  of.current.build(live);
  std::vector<Destination<Address>> hosts;
  for (const Address& address : sources) hosts.push_back({address});
  of.reply_sources.build(hosts);
  index_replies(of);
  index = std::make_shared<const Index>(std::move(of));
}

template <class K>
void PlanFor<K>::index_replies(Index& of) const {
  std::map<Destination<Address>, std::size_t> places;
  std::vector<Destination<Address>> ends;
  for (std::uint32_t at = 0; at < services.size(); ++at) {
    const Service& service = *services[at];
    if (service.spec.port == 0) continue;
    const auto serving_at = [&](std::uint16_t id) -> Serving& {
      const Backend& backend = backends[id];
      const Destination<Address> end{.address = backend.address,
                                     .port = backend.port != 0 ? backend.port : service.spec.port,
                                     .protocol = service.spec.protocol};
      const auto [place, fresh] = places.emplace(end, of.serving_there.size());
      if (fresh) {
        ends.push_back(end);
        of.serving_there.emplace_back();
      }
      Serving& serving = of.serving_there[place->second];
      serving.is_direct = serving.is_direct || service.spec.direct;
      return serving;
    };
    for (const std::uint16_t id : service.listed) {
      if (backends[id].has_replies) serving_at(id).reply_sources.push_back({at, id});
    }
    for (const std::uint16_t id : service.draining) {
      if (backends[id].has_replies) serving_at(id);
    }
  }
  of.serving_ends.build(ends);
}

template <class K>
Result<void> PlanFor<K>::check_invariants() const {
  const auto broken = [](const char* rule) { return std::unexpected(Error{rule}); };
  std::set<std::uint16_t> ids(free_ids.begin(), free_ids.end());
  if (ids.size() != free_ids.size()) return broken("an id is free twice");
  for (const auto& service : services) {
    for (std::size_t place = 0; place < service->listed.size(); ++place) {
      if (!ids.insert(service->listed[place]).second) return broken("two owners of one id");
      if (backends[service->listed[place]].place != place) return broken("a backend is misplaced");
    }
    for (const std::uint16_t id : service->draining) {
      if (!ids.insert(id).second) return broken("two owners of one id");
      if (backends[id].place != kNoPlace) return broken("a draining backend has a place");
    }
  }
  if (ids.size() != backends.size()) return broken("an id is lost");
  return {};
}

template struct PlanFor<KeyV4>;
template struct PlanFor<KeyV6>;

}  // namespace millrace
