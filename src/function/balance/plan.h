// What all workers of a load balancer have in common: its services, their backends by id, and the
// tables that find them.
//
// One thread makes plans, each from the one before; a plan never changes, and any thread reads it.
// Workers go from plan to plan each at its own time, in two steps (`Balance::learn`, `take_on`).
// Services that have not changed are the same objects in both plans, so the cost of a change
// depends on how much changes. So that none of them meets an id that it does not know, or takes one
// backend for another:
//
// 1. A backend keeps its id from plan to plan, as long as it is configured or a connection may live
//    on it.
// 2. An id is free once its backend was not configured in the plan before, which all workers have
//    taken on, and no connection lives on it with any of them: nobody gives it new ones.
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

/// What holds for all plans of a load balancer.
struct PlanSettings {
  Hasher hash;
  std::shared_ptr<MaglevTables> maglev;
  bool stateful = true;
  unsigned workers = 1;
  bool shares_tables = false;  ///< workers do: any may change the state of another's connection
};

template <class K>
struct PlanFor {
  using Address = typename K::Address;
  using Spec = ServiceSpec<Address>;

  static constexpr std::uint32_t kMaxBackends = 65535;  ///< one number stands for none
  static constexpr std::uint32_t kNoPlace = 0xffffffff;

  /// How many connections live on the backend with that id, with all workers.
  using LiveOn = std::function<std::uint64_t(std::uint16_t)>;

  struct Backend {
    Address address;
    std::uint16_t port = 0;
    Address virtual_address;
    std::uint16_t virtual_port = 0;
    Forward forward = Forward::nat;
    bool has_replies = false;        ///< they come this way, and are rewritten
    std::uint32_t weight = 0;        ///< 0 where it is not healthy
    std::uint32_t place = kNoPlace;  ///< in `listed`; none where it is configured no more
    bool is_healthy = true;
    std::uint64_t service = 0;  ///< the identity of its service
    std::uint64_t since = 0;    ///< the number of the plan that gave it its id

    /// Shared by all workers; null where each worker counts its own.
    std::shared_ptr<Activity> activity;

    /// True if it is configured no more, or not healthy.
    bool is_gone() const { return place == kNoPlace || !is_healthy; }
  };

  struct Service {
    Spec spec;
    std::uint64_t identity = 0;           ///< the same from plan to plan
    std::vector<std::uint16_t> listed;    ///< ids of its backends, in the configured order
    std::vector<std::uint16_t> draining;  ///< ids of former backends that have connections
    std::vector<std::uint16_t> in_order;  ///< of both, by address and port; listed ones first
    std::shared_ptr<MaglevTable> maglev;  ///< of `listed`
    unsigned willing = 0;                 ///< listed backends that have weight
    bool removed = false;                 ///< kept for the connections of `draining` only
    std::shared_ptr<ShardedCount> proved;

    /// True if no connection lives on one of its former backends any more: the next plan forgets
    /// that backend.
    bool forgets(const LiveOn& live) const {
      return std::ranges::any_of(draining, [&](std::uint16_t id) { return live(id) == 0; });
    }
  };

  /// A listed backend of a two-way service with a port: where replies come from that have no entry.
  struct Answering {
    std::uint32_t service;
    std::uint16_t backend;
  };
  /// The services' backends at one address, port and protocol.
  struct Serving {
    std::vector<Answering> answering;
    bool is_direct = false;  ///< packets from there that belong to no connection are routed
  };

  /// Without services: the plan before the first.
  explicit PlanFor(const PlanSettings& of) : settings(of) {}

  /// What forbids `next` with these. Errors (usage) say what is wrong.
  Result<void> check(const std::vector<Spec>& specs, const LiveOn& live) const;
  /// No worker is on its way to this one.
  PlanFor next(const std::vector<Spec>& specs, const LiveOn& live) const;
  /// True if the next plan forgets backends, whatever else it changes.
  bool forgets(const LiveOn& live) const;
  Result<void> check_invariants() const;

  /// The entry that a packet with this key meets; none: no service is concerned.
  std::optional<Side> side(const K& key) const;
  /// The service that takes what is new; null: none. One that drains does not hide a less specific
  /// one.
  const Service* service_for(const K& key) const {
    const std::uint32_t i = current_for(key);
    return i == kNone ? nullptr : services[i].get();
  }
  /// Returns a backend of the service at that address; without `port`, of whichever port.
  std::optional<std::uint16_t> backend_at(const Service& service, const Address& address,
                                          std::optional<std::uint16_t> port) const;
  /// The service of a connection with this key, also one that drains; null: none.
  const Service* serving(const K& key) const {
    const std::uint32_t i = serving_for(key);
    return i == kNone ? nullptr : services[i].get();
  }
  /// Returns the backends at the end from which a packet with this key comes; null: none.
  const Serving* serving_at(const K& reply_key) const {
    if (!has_ports(reply_key.protocol)) return nullptr;
    const std::uint32_t i =
        index->serving_ends.find(reply_key.source, reply_key.source_port, reply_key.protocol);
    return i == kNone ? nullptr : &index->serving_there[i];
  }
  /// Of a connection with this key, whose packets leave as `translated`: its backend as services
  /// name it, by a port only where it has one of its own.
  std::string backend_name(const K& key, const K& translated) const;
  /// Their places in `services`, or `kNone`.
  std::uint32_t current_for(const K& key) const { return find(index->current, key); }
  std::uint32_t serving_for(const K& key) const { return find(index->table, key); }
  static constexpr std::uint32_t kNone = DestinationTable<Address>::kNone;

  PlanSettings settings;
  std::uint64_t number = 0;
  std::uint64_t identities = 0;  ///< given to services so far
  std::vector<std::shared_ptr<const Service>> services;
  std::vector<Backend> backends;  ///< by id
  std::vector<std::uint16_t> free_ids;
  /// Places of services that are not the same object as in the plan before, or were not there.
  std::vector<std::uint32_t> changed;
  bool replies = false;  ///< there were two-way services at first

  /// The tables that find services and backends by a packet.
  struct Index {
    bool two_way = false;                     ///< some backend has replies
    bool mixed = false;                       ///< and some service is a prefix
    DestinationTable<Address> table;          ///< of all services: what concerns the balancer
    DestinationTable<Address> current;        ///< without removed ones: who gets what is new
    DestinationTable<Address> reply_sources;  ///< addresses of two-way services' backends
    DestinationTable<Address> serving_ends;
    std::vector<Serving> serving_there;  ///< by the index in `serving_ends`
  };
  std::shared_ptr<const Index> index = std::make_shared<const Index>();

 private:
  static std::uint32_t find(const DestinationTable<Address>& in, const K& key) {
    // What stands for a port without being one (an echo's identifier) must not match a service's.
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
