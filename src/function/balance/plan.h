// A plan: what all workers of a load balancer have in common, namely its services, their backends
// by id, and the tables that find them.
//
// One thread makes plans, each from the previous one. A plan never changes, so any thread may read
// it. Workers change from plan to plan at different times, in two steps (`Balance::learn`,
// `take_on`). Services that have not changed are the same objects in the old plan and in the new
// one, so the cost of a change depends on how much changes. These rules see to it that a worker
// knows every id that it reads, and that an id means one backend:
//
// 1. A backend keeps its id from plan to plan, as long as it is configured or a connection may live
//    on it.
// 2. An id becomes free only if its backend is not configured in the previous plan, which all
//    workers have taken on, and no connection of any worker lives on that backend. No worker gives
//    such a backend new connections.
// 3. No worker takes a plan on before all have learned it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/destination_table.h"
#include "core/of_family.h"
#include "core/protocol.h"
#include "core/sharded_count.h"
#include "function/balance/maglev_tables.h"
#include "function/balance/scheduler.h"
#include "function/balance/service.h"
#include "millrace/key.h"
#include "millrace/types.h"

namespace millrace {

/// Settings of a load balancer that are the same in all its plans.
struct PlanSettings {
  Hasher hash;
  std::shared_ptr<MaglevTables> maglev;
  bool stateful = true;
  unsigned workers = 1;
  bool shares_tables = false;  ///< true: a worker may count events of other workers' connections
};

template <class K>
struct PlanFor {
  using Address = typename K::Address;
  using Spec = ServiceSpec<Address>;

  static constexpr std::uint32_t kMaxBackends = 65535;  ///< the id 65535 stands for no backend
  static constexpr std::uint32_t kNoPlace = 0xffffffff;

  /// Returns how many connections of all workers live on the backend with that id.
  using LiveOn = std::function<std::uint64_t(std::uint16_t)>;

  struct Backend {
    Address address;
    std::uint16_t port = 0;
    Address virtual_address;
    std::uint16_t virtual_port = 0;
    Forward forward = Forward::nat;
    bool has_replies = false;        ///< replies pass through this process, and are rewritten
    std::uint32_t weight = 0;        ///< 0 if the backend is not healthy
    std::uint32_t place = kNoPlace;  ///< index in `listed`; `kNoPlace`: no longer configured
    bool is_healthy = true;
    std::uint64_t service = 0;  ///< identity of the backend's service
    std::uint64_t since = 0;    ///< number of the plan that gave the backend its id

    /// The activity that all workers count together; null if each worker counts its own.
    std::shared_ptr<Activity> activity;

    /// True if the backend is no longer configured, or not healthy.
    bool is_gone() const { return place == kNoPlace || !is_healthy; }
  };

  struct Service {
    Spec spec;
    std::uint64_t identity = 0;           ///< the same from plan to plan
    std::vector<std::uint16_t> listed;    ///< ids of the service's backends, in configured order
    std::vector<std::uint16_t> draining;  ///< ids of former backends that may have connections
    /// Both lists, sorted by address and port; of equal backends the listed one comes first.
    std::vector<std::uint16_t> in_order;
    std::shared_ptr<MaglevTable> maglev;  ///< table of `listed`
    unsigned willing = 0;                 ///< number of listed backends with a weight above 0
    bool removed = false;  ///< no longer configured; kept for the connections of `draining`
    std::shared_ptr<ShardedCount> proved;  ///< count of the service's proved connections

    /// True if a draining backend has no live connection: the next plan forgets that backend.
    bool forgets(const LiveOn& live) const {
      return std::ranges::any_of(draining, [&](std::uint16_t id) { return live(id) == 0; });
    }
  };

  /// A listed backend of a two-way service with a port. Replies without an entry may come from it.
  struct ReplySource {
    std::uint32_t service;  ///< place in `services`
    std::uint16_t backend;  ///< id of the backend
  };
  /// The services' backends at one address, port and protocol.
  struct Serving {
    std::vector<ReplySource> reply_sources;
    /// Packets from these backends that belong to no connection are routed.
    bool is_direct = false;
  };

  /// Makes a plan without services, from which `next` makes the first one.
  explicit PlanFor(const PlanSettings& of) : settings(of) {}

  /// Checks the services for `next`. Errors (usage): a service is wrong, or there are too many
  /// backends.
  Result<void> check(const std::vector<Spec>& specs, const LiveOn& live) const;
  /// Returns the plan after this one, with these services. `check` must have accepted the services,
  /// and all workers must have taken this plan on.
  PlanFor next(const std::vector<Spec>& specs, const LiveOn& live) const;
  /// True if the next plan will forget backends, whatever else it changes.
  bool forgets(const LiveOn& live) const;
  /// Checks the plan's invariants. Errors: the first rule that is broken.
  Result<void> check_invariants() const;

  /// Returns the direction of a packet with this key: the originator's if a service takes its
  /// destination; else the reply direction, if replies of some service are rewritten
  /// (`Index::two_way`); else none. One exception: a packet from a backend of a two-way service, to
  /// a destination that only a service with a prefix takes, is a reply. Other packets that are
  /// taken for replies need not come from a backend.
  std::optional<Side> side(const K& key) const;
  /// Returns the service that takes a new connection with this key; null: none. A service that
  /// drains does not hide a less specific one.
  const Service* service_for(const K& key) const {
    const std::uint32_t i = current_for(key);
    return i == kNone ? nullptr : services[i].get();
  }
  /// Returns the id of the service's backend at that address; without `port`, at any port. `port`
  /// 0: a backend without a port of its own.
  std::optional<std::uint16_t> backend_at(const Service& service, const Address& address,
                                          std::optional<std::uint16_t> port) const;
  /// Returns the service of a connection with this key, also one that drains; null: none.
  const Service* serving(const K& key) const {
    const std::uint32_t i = serving_for(key);
    return i == kNone ? nullptr : services[i].get();
  }
  /// Returns the backends at the source of a packet with this key; null: none.
  const Serving* serving_at(const K& reply_key) const {
    if (!has_ports(reply_key.protocol)) return nullptr;
    const std::uint32_t i =
        index->serving_ends.find(reply_key.source, reply_key.source_port, reply_key.protocol);
    return i == kNone ? nullptr : &index->serving_there[i];
  }
  /// Returns the name of the backend of a connection with this key, whose packets leave as
  /// `translated`. A backend without a port of its own is named by its address alone, unless
  /// another backend at that address has the packets' port.
  std::string backend_name(const K& key, const K& translated) const;
  /// Returns the place in `services` of the result of `service_for`, or `kNone`.
  std::uint32_t current_for(const K& key) const { return find(index->current, key); }
  /// Returns the place in `services` of the result of `serving`, or `kNone`.
  std::uint32_t serving_for(const K& key) const { return find(index->table, key); }
  static constexpr std::uint32_t kNone = DestinationTable<Address>::kNone;

  PlanSettings settings;
  std::uint64_t number = 0;
  std::uint64_t identities = 0;  ///< number of identities given to services so far
  std::vector<std::shared_ptr<const Service>> services;
  std::vector<Backend> backends;  ///< the id is the index
  std::vector<std::uint16_t> free_ids;
  /// Places in `services` of new services and of those that are another object than in the previous
  /// plan.
  std::vector<std::uint32_t> changed;
  bool replies = false;  ///< the first plan had two-way services, so there are reply entries

  /// The tables that find services and backends by a packet.
  struct Index {
    bool two_way = false;               ///< replies of some service are rewritten
    bool mixed = false;                 ///< `two_way`, and the address of some service is a prefix
    DestinationTable<Address> table;    ///< all services
    DestinationTable<Address> current;  ///< services that take new connections
    DestinationTable<Address> reply_sources;  ///< addresses of two-way services' backends
    /// Addresses, ports and protocols at which these backends serve, if their service has a port.
    DestinationTable<Address> serving_ends;
    std::vector<Serving> serving_there;  ///< found by an index from `serving_ends`
  };
  std::shared_ptr<const Index> index = std::make_shared<const Index>();

 private:
  static std::uint32_t find(const DestinationTable<Address>& in, const K& key) {
    // The identifier of an ICMP query stands in place of the ports, and must not match a service's
    // port.
    return in.find(key.destination, has_ports(key.protocol) ? key.destination_port : 0,
                   key.protocol);
  }
  std::vector<std::shared_ptr<const Service>> before(const std::vector<Spec>& specs) const;
  void take(std::vector<std::shared_ptr<Service>> changing);
  void unlist(Service& service, const LiveOn& live);
  void list(Service& service);
  std::uint16_t backend_for(Service& service, const BackendSpec<Address>& wanted);
  std::uint16_t new_id();
  void make_index();
  void index_replies(Index& of) const;
  std::size_t kept_beside(const std::vector<Spec>& specs, const LiveOn& live) const;
};

struct BalancePlan {
  PlanFor<KeyV4> v4;
  PlanFor<KeyV6> v6;

  template <class K>
  const PlanFor<K>& family() const {
    return of_family<K>(v4, v6);
  }
};

}  // namespace millrace
