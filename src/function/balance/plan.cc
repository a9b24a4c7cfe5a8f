#include "function/balance/plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "core/address.h"
#include "function/balance/scheduler.h"

namespace millrace {
namespace {

std::unexpected<Error> wrong(const std::string& message) {
  return std::unexpected(Error{message, Error::Kind::usage});
}

template <class Backend, class A>
bool is_same(const Backend& backend, const BackendSpec<A>& spec) {
  return backend.address == spec.address && backend.port == spec.port;
}

template <class Backend, class Spec>
bool is_among(const Backend& backend, const Spec& spec) {
  return std::ranges::any_of(spec.backends, [&](const auto& one) { return is_same(backend, one); });
}

}  // namespace

template <class K>
Result<void> PlanFor<K>::check(const std::vector<Spec>& specs, const LiveOn& live) const {
  std::set<Destination<Address>> all;
  std::size_t ids = 0;
  for (const Spec& spec : specs) {
    const std::string name = "service " + to_string(spec);
    if (!all.insert(spec.destination()).second) {
      return wrong(name + " is there twice: give each its own address, port or protocol");
    }
    if (scheduler_named(spec.scheduler) == nullptr) {
      return wrong(name + ": no scheduler is called " + spec.scheduler);
    }
    if (number > 0 && settings.stateful && !replies && spec.two_way()) {
      return wrong(name + " would be the first with replies, for which there is no table: restart");
    }
    std::set<std::pair<Address, std::uint16_t>> ends;
    for (const auto& backend : spec.backends) {
      if (!ends.emplace(backend.address, backend.port).second) {
        return wrong(name + ": backend " + with_port(backend.address, backend.port) +
                     " is there twice: give it a weight instead");
      }
    }
    if (ends.size() >= settings.maglev_table_size) {
      return wrong(name + " has more backends than the Maglev table entries: enlarge it");
    }
    ids += ends.size();
  }
  if (ids + kept_beside(specs, live) > kMaxBackends) {
    return wrong(
        "more than 65536 backends of one family, those that were and those that drain "
        "included: list fewer, or change them in two steps");
  }
  return {};
}

template <class K>
std::optional<Side> PlanFor<K>::side(const K& key) const {
  const std::uint32_t found = find(table, key);
  if (found == kNone) return two_way ? std::optional(Side::reply) : std::nullopt;
  if (!mixed || services[found].spec.two_way()) return Side::originator;
  // A prefix may take in the clients of a two-way service: what its backends send them are replies.
  return reply_sources.find(key.source, 0, 0) != kNone ? Side::reply : Side::originator;
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
      if (one.port == 0) port = 0;  // unless another one has that port for its own
    }
  }
  return with_port(translated.destination, port);
}

/// Backends that are not among their service's in `specs`, but keep their ids.
template <class K>
std::size_t PlanFor<K>::kept_beside(const std::vector<Spec>& specs, const LiveOn& live) const {
  std::map<Destination<Address>, std::set<std::pair<Address, std::uint16_t>>> wanted;
  for (const Spec& spec : specs) {
    for (const auto& backend : spec.backends)
      wanted[spec.destination()].emplace(backend.address, backend.port);
  }
  std::size_t kept = 0;
  for (const Service& service : services) {
    const auto& stay = wanted[service.spec.destination()];
    const auto is_left = [&](std::uint16_t id) {
      return !stay.contains({backends[id].address, backends[id].port});
    };
    for (const std::uint16_t id : service.listed) kept += is_left(id) ? 1 : 0;
    for (const std::uint16_t id : service.draining) kept += is_left(id) && live(id) > 0 ? 1 : 0;
  }
  return kept;
}

template <class K>
PlanFor<K> PlanFor<K>::next(const std::vector<Spec>& specs, const LiveOn& live) const {
  PlanFor plan(settings);
  plan.number = number + 1;
  plan.identities = identities;
  plan.backends = backends;
  plan.free_ids = free_ids;
  plan.replies = replies;
  std::map<Destination<Address>, Service> old;
  for (const Service& service : services) old.emplace(service.spec.destination(), service);
  for (const Spec& spec : specs) {
    auto node = old.extract(spec.destination());
    Service& service = plan.services.emplace_back(node ? std::move(node.mapped()) : Service{});
    if (!node) {
      service.identity = plan.identities++;
      service.proved = std::make_shared<ShardedCount>(settings.workers);
    }
    service.removed = false;
    service.spec = spec;
  }
  for (auto& [destination, service] : old) {
    service.removed = true;
    service.spec.backends.clear();
    plan.services.push_back(std::move(service));
  }
  // All give up ids before any takes one, so that the ids suffice.
  for (Service& service : plan.services) plan.unlist(service, live);
  std::erase_if(plan.services,
                [](const Service& one) { return one.removed && one.draining.empty(); });
  for (Service& service : plan.services) plan.list(service);
  for (Service& service : plan.services) plan.wire(service);
  plan.index_services();
  return plan;
}

/// Moves all of the service's backends to those that drain, and forgets those that drained before
/// and have no connections left.
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

/// Gives the service its configured backends: those it had keep their ids.
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
}

/// The id of one that would drain otherwise, or a new one.
template <class K>
std::uint16_t PlanFor<K>::backend_for(Service& service, const BackendSpec<Address>& wanted) {
  const auto at = std::ranges::find_if(
      service.draining, [&](std::uint16_t id) { return is_same(backends[id], wanted); });
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
                  .service = service.identity,
                  .since = number,
                  .active = settings.shares_tables ? std::make_shared<Counter>() : nullptr};
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
void PlanFor<K>::wire(Service& service) const {
  std::vector<Maglev::Member> members;
  members.reserve(service.listed.size());
  for (const std::uint16_t id : service.listed) {
    const Backend& backend = backends[id];
    members.push_back(Maglev::member(settings.hash, backend.address, backend.port, backend.weight));
  }
  if (service.maglev != nullptr && members == service.members) return;
  service.maglev =
      std::make_shared<const Maglev>(Maglev::build(members, settings.maglev_table_size));
  service.members = std::move(members);
}

template <class K>
void PlanFor<K>::index_services() {
  std::vector<Destination<Address>> all;
  // The first of `services`, so that both tables' indexes agree.
  std::vector<Destination<Address>> live;
  std::set<Address> sources;
  bool one_way = false;
  for (const Service& service : services) {
    all.push_back(service.spec.destination());
    if (!service.removed) live.push_back(service.spec.destination());
    const bool has_replies = settings.stateful && service.spec.two_way();
    (has_replies ? two_way : one_way) = true;
    if (!has_replies) continue;
    for (const auto* ids : {&service.listed, &service.draining}) {
      for (const std::uint16_t id : *ids) sources.insert(backends[id].address);
    }
  }
  mixed = two_way && one_way;
  if (number == 1) replies = two_way;
  table.build(all);
  current.build(live);
  std::vector<Destination<Address>> hosts;
  for (const Address& address : sources) hosts.push_back({address});
  reply_sources.build(hosts);
  index_replies();
}

template <class K>
void PlanFor<K>::index_replies() {
  std::map<Destination<Address>, std::size_t> places;
  std::vector<Destination<Address>> ends;
  for (std::uint32_t at = 0; at < services.size(); ++at) {
    const Service& service = services[at];
    if (!settings.stateful || !service.spec.two_way() || service.spec.port == 0) continue;
    const auto serving_at = [&](std::uint16_t id) -> Serving& {
      const Backend& backend = backends[id];
      const Destination<Address> end{.address = backend.address,
                                     .port = backend.port != 0 ? backend.port : service.spec.port,
                                     .protocol = service.spec.protocol};
      const auto [place, fresh] = places.emplace(end, serving_there.size());
      if (fresh) {
        ends.push_back(end);
        serving_there.emplace_back();
      }
      Serving& serving = serving_there[place->second];
      serving.is_direct = serving.is_direct || service.spec.direct;
      return serving;
    };
    for (const std::uint16_t id : service.listed) serving_at(id).answering.push_back({at, id});
    for (const std::uint16_t id : service.draining) serving_at(id);
  }
  serving_ends.build(ends);
}

template <class K>
Result<void> PlanFor<K>::check_invariants() const {
  const auto broken = [](const char* rule) { return std::unexpected(Error{rule}); };
  std::set<std::uint16_t> ids(free_ids.begin(), free_ids.end());
  if (ids.size() != free_ids.size()) return broken("an id is free twice");
  for (const Service& service : services) {
    for (std::size_t place = 0; place < service.listed.size(); ++place) {
      if (!ids.insert(service.listed[place]).second) return broken("two owners of one id");
      if (backends[service.listed[place]].place != place) return broken("a backend is misplaced");
    }
    for (const std::uint16_t id : service.draining) {
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
