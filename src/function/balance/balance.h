// The load balancer: gives each new connection to a service a backend, and says how the
// connection's packets are rewritten. With `Forward::nat` clients' packets get the backend as
// destination, and the replies of a service with one virtual address get that address as source.
//
// Threads: the worker that owns a `Balance` makes all calls but these: `learn`, `let_go`,
// `live_on`, `parts`, `plan` and `statistics` are called by the thread that makes plans (plan.h),
// also while the worker serves. A plan holds what all workers have in common: services and
// backends' ids.
//
// Packets of one connection go to one backend, because:
//
// 1. A tracked connection's entry holds the id of its backend. No other backend gets that id while
//    a connection lives on that backend, so an update by itself moves no connection. If a
//    backend on which connections live is gone after an update (`is_gone`), the line asks for the
//    `fate` of all connections, and ends those that must leave their backend.
// 2. Without an entry, a TCP packet that is no SYN goes to the backend that Maglev chooses, under
//    any scheduler: another machine, or this one before a restart, may have sent its connection
//    there.
// 3. A service that has served packets without entries, for lack of room, schedules *every* packet
//    without an entry by Maglev until `quiet_ms` have passed since the last packet that found no
//    room. So a connection that began without an entry keeps its backend when it gets an entry,
//    also if its SYN is retransmitted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/counter.h"
#include "core/of_family.h"
#include "function/balance/backends_by_id.h"
#include "function/balance/maglev_tables.h"
#include "function/balance/overflow.h"
#include "function/balance/plan.h"
#include "function/balance/scheduler.h"
#include "function/balance/service.h"
#include "function/function.h"

namespace millrace {

struct BalanceConfig {
  Services services = default_services();
  BalanceKey key = kDefaultBalanceKey;
  std::uint32_t maglev_table_size = Maglev::kDefaultSize;
  /// Threads that make tables; 0: the worker that needs a table makes it.
  unsigned maglev_threads = 0;
  /// False: there are no entries; packets to services go by Maglev, and replies stay untouched.
  bool stateful = true;
  /// True: packets that find no room in the table go by Maglev; false: they are dropped.
  bool stateless_when_full = true;
  /// Time from the last packet that a service has served without an entry, for lack of room, until
  /// the service uses its own scheduler again. Must be at least the longest idle time after which a
  /// connection may still go on, and at least the time for which a SYN is retransmitted (127 s with
  /// Linux's six retransmissions).
  std::uint32_t quiet_ms = 600'000;
  bool shares_tables = false;  ///< true: the workers use the same connection tables
};

struct BackendStatistics {
  std::string address;  ///< address, with the port where one is configured
  std::uint32_t weight = 0;
  bool draining = false;      ///< no longer configured; still serves its live connections
  std::uint64_t packets = 0;  ///< packets sent to the backend
  std::uint64_t bytes = 0;    ///< bytes of `packets`, on the wire
  std::uint64_t replies = 0;  ///< rewritten packets from the backend
  std::uint64_t reply_bytes = 0;
  std::uint64_t connections = 0;  ///< opened by this process; abandoned ones do not count
  std::uint64_t live = 0;
  /// Connections that were proved, and that the two sides have not ended. One worker's count may be
  /// negative.
  std::int64_t established = 0;
};

struct ServiceStatistics {
  std::string service;  ///< "203.0.113.10:443/tcp"
  std::string scheduler;
  Forward forward = Forward::nat;
  bool draining = false;
  std::uint64_t established = 0;      ///< proved connections of all workers
  std::uint64_t max_connections = 0;  ///< limit of `established`; 0: no limit
  std::uint64_t limited = 0;          ///< how often the limit refused a connection or packet
  std::uint64_t refused = 0;     ///< connections, and packets without an entry, that got no backend
  std::uint64_t collisions = 0;  ///< reply keys that were taken by another connection
  std::uint64_t stateless = 0;   ///< packets served without an entry
  std::vector<BackendStatistics> backends;
};

template <class K>
class BalanceFor final : public FunctionFor<K> {
 public:
  using Address = typename K::Address;
  using Spec = ServiceSpec<Address>;

  using Plan = PlanFor<K>;

  BalanceFor(const BalanceConfig& config, unsigned worker);

  void learn(std::shared_ptr<const Plan> plan);
  void take_on();
  void let_go();
  void set_quiet_ms(std::uint32_t quiet_ms) { quiet_ms_ = quiet_ms; }
  /// Returns how many connections live on a backend, by this worker's count.
  std::uint64_t live_on(std::uint16_t id) const;
  void append_statistics(std::vector<ServiceStatistics>& all) const;
  Result<void> check_invariants() const;

  Part part() const override;
  Steered steer(std::span<const K> keys, const Steered& before) const override;
  std::uint64_t screen(Burst& burst, Lane<K>& lane, std::uint64_t unknown) override;
  void open(const Burst& burst, Opening<K>& opening) override;
  Verdict recognise_reply(const Burst& burst, unsigned packet, const K& reply_key,
                          K& originator) override;
  Verdict event(Event event, const K& key, const std::byte* state, bool is_proved) override;
  void serve(Burst& burst, std::uint64_t places, const States<K>& states) override;
  using typename FunctionFor<K>::Target;
  Target target(const K& key, const std::byte* state) const override;
  void write(const K& key, const std::byte* state, std::byte* image) const override;
  std::optional<Target> target_without_entry(const Burst& burst, unsigned packet,
                                             const K& key) override;
  Fate fate(const K& key, const Traversal<K>* traversal, const std::byte* state,
            bool is_answered) const override;
  void continue_from(const FunctionFor<K>& other) override;
  /// Returns true if packets of that service may have been served without an entry lately.
  bool is_overflowed(std::size_t service) const {
    return !stateful_ || services_[service]->overflow.is_there();
  }
  /// Returns false for an image (`write`) of a connection that goes to no service.
  static bool is_served(const std::byte* image) {
    Image is;
    std::memcpy(&is, image, sizeof(is));
    return is.address != Address{};
  }
  void set_overflowed(std::size_t service) { services_[service]->overflow.note({}); }

 private:
  // The state in both entries is the backend's id. The addresses to write into packets are read
  // from the backend: its cache line is needed for the counters anyway. So an IPv4 record has 32
  // bytes.
  using State = std::uint16_t;
  static constexpr State kUnconcerned = Plan::kMaxBackends;  // state of a connection to no service

  /// The image of a connection: its backend's address, and the port to which its packets are sent.
  struct Image {
    Address address;
    std::uint16_t port;
  };

  struct Service;
  /// One worker's part of a backend. Packets to the backend read one cache line. Replies of a
  /// service with a port read the same line with IPv4, and only the next line with IPv6 (hence the
  /// padding).
  // NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
  struct alignas(64) Backend {
    Address address;
    std::uint16_t port = 0;  ///< 0: packets keep their destination port
    Forward forward = Forward::nat;
    bool has_replies = false;  ///< replies pass through this process, and are rewritten
    Counter packets;
    Counter bytes;
    alignas(sizeof(Address) == 4 ? 4 : 64) Address virtual_address;  ///< address of the service
    std::uint16_t virtual_port = 0;  ///< port of the service; 0: any
    Counter replies;
    Counter reply_bytes;
    // Not read for packets of connections with entries:
    Counter connections;
    Counter live;
    Activity activity;
    Activity* activity_of_all = nullptr;  ///< replaces `activity` where workers share tables
    Service* service = nullptr;
    std::uint64_t since = 0;  ///< number of the plan that gave the backend this id
  };

  /// A service's scheduler and the backends that it chooses from. Kept from plan to plan as long as
  /// the scheduler, the backends and their weights stay the same.
  struct Pooled {
    std::vector<Candidate> candidates;
    std::unique_ptr<Scheduler> scheduler;
  };
  /// This worker's part of a service.
  struct Service {
    std::uint64_t identity = 0;
    std::shared_ptr<const typename Plan::Service> plan;  ///< the service's part of the plan in use
    std::shared_ptr<Pooled> pooled;
    const Maglev* maglev = nullptr;  ///< null: not used since the latest change, or not made yet
    Overflow overflow;
    Counter limited;
    Counter refused;
    Counter collisions;
    Counter stateless;
  };
  /// A service's part of the plan that is learned. `take_on` exchanges it with the part of the
  /// previous plan, which is kept until `let_go`.
  struct Coming {
    std::shared_ptr<Service> service;
    std::shared_ptr<const typename Plan::Service> plan;
    std::shared_ptr<Pooled> pooled;
  };

  /// Returns the service that takes a new connection with this key; null: none.
  Service* find(const K& key);

  void resume(Opening<K>& opening);
  void pass_over(Opening<K>& opening);
  Verdict prove(const std::byte* state);
  void close(const std::byte* state, bool proved);
  void abandon(const std::byte* state);
  void refuse(Opening<K>& opening, Service* service, Verdict why);
  /// True if the service's limit forbids one more connection; counts that in `limited`.
  static bool turns_away(Service& service);
  void count_active(const std::byte* state, std::int64_t more, bool is_proof = false);
  /// Returns this worker's count of established connections. Where workers share tables there is
  /// one count for all: the first worker returns it, the others return 0.
  std::int64_t established_on(const Backend& backend) const {
    if (backend.activity_of_all == nullptr) return backend.activity.active.difference();
    return worker_ == 0 ? backend.activity_of_all->active.difference() : 0;
  }
  /// Returns the service's Maglev table; null: it is being made.
  const Maglev* table_of(Service& service) {
    if (service.maglev == nullptr) [[unlikely]]
      service.maglev = plan_->settings.maglev->want(service.plan->maglev);
    return service.maglev;
  }
  /// Returns the place of a new connection's backend in the service's list; none if the Maglev
  /// table that chooses the backend is being made.
  std::optional<std::uint16_t> first_choice(Service& service, const Burst& burst,
                                            const Opening<K>& opening);
  std::uint16_t next_choice(const Service& service, const Opening<K>& opening);
  bool by_maglev(Service& service, const Burst& burst, const Opening<K>& opening) const;
  void accept(std::uint16_t id, Opening<K>& opening);
  void fill(std::uint16_t id, Opening<K>& opening) const;

  template <Side kSide>
  static void send(Burst& burst, Lane<K>& lane, unsigned i, Backend& backend, std::uint16_t port,
                   Verdict verdict);
  void serve_without_entry(Burst& burst, Lane<K>& lane, std::uint64_t places);
  template <bool kStateful>
  void serve_by_maglev(Burst& burst, Lane<K>& lane, unsigned i);
  void serve_answer(Burst& burst, Lane<K>& lane, unsigned i);

  static Target to_backend(const Backend& backend, const K& key);
  static Target from_backend(const Backend& backend, std::uint16_t port, const K& key);
  const Backend* backend_by_maglev(const K& key);

  static State state_at(const std::byte* at);
  static std::uint16_t port_for(const Backend& backend, const K& key);
  static std::uint16_t virtual_port(const Backend& backend, const K& reply_key, ConnId reply,
                                    const States<K>& states);

  std::shared_ptr<Pooled> pool_of(const Service& service, const typename Plan::Service& planned);

  Hasher hash_;
  unsigned worker_;
  std::uint32_t quiet_ms_;
  bool stateful_;
  bool stateless_when_full_;

  std::shared_ptr<const Plan> plan_;
  std::vector<std::shared_ptr<Service>> services_;  ///< in the order of the plan
  /// From `learn` to `take_on`, the plan that is learned; from `take_on` to `let_go`, the previous
  /// plan.
  std::shared_ptr<const Plan> coming_;
  std::vector<std::shared_ptr<Service>> coming_services_;
  std::vector<Coming> coming_changes_;
  BackendsById<Backend> backends_;

  using ReplySource = typename Plan::ReplySource;
  /// Returns the service and backend of a reply without an entry; null if there is none, if two are
  /// possible or if `waits` becomes true. Sets `waits` if a Maglev table that decides is being
  /// made. `originator` becomes the key of the packets that the reply answers.
  const ReplySource* find_reply_source(const Burst& burst, unsigned packet, const K& reply_key,
                                       K& originator, bool& waits);
};

class Balance final : public Function {
 public:
  /// Makes the first plan for `workers` workers. Errors (usage): a service or setting is wrong.
  static Result<std::shared_ptr<const BalancePlan>> plan(const BalanceConfig& config,
                                                         unsigned workers);
  /// Makes one worker's load balancer; `plan` must have been made from the same configuration.
  Balance(const BalanceConfig& config, std::shared_ptr<const BalancePlan> plan,
          unsigned worker = 0);
  /// Makes the load balancer of a single worker, with a plan of its own. Errors: as `plan`.
  static Result<std::unique_ptr<Balance>> create(const BalanceConfig& config);

  bool stateful() const override { return stateful_; }
  FunctionFor<KeyV4>& v4() override { return v4_; }
  FunctionFor<KeyV6>& v6() override { return v6_; }

  /// @name Another plan
  /// @{
  /// Prepares for the next plan: from now on this worker knows the ids of the plan's backends.
  /// Called by the thread that makes plans.
  void learn(std::shared_ptr<const BalancePlan> plan);
  /// Changes to the plan that was learned. Called by the worker, between two bursts. Connections
  /// stay where they are, also those of removed backends and services, which drain.
  void take_on();
  /// Frees the memory that only the previous plan needed. Called by the thread that makes plans.
  void let_go();
  /// Sets `BalanceConfig::quiet_ms`.
  void set_quiet_ms(std::uint32_t quiet_ms) {
    v4_.set_quiet_ms(quiet_ms);
    v6_.set_quiet_ms(quiet_ms);
  }
  /// @}
  const std::shared_ptr<const BalancePlan>& plan() const { return plan_; }
  /// Returns how many connections live on a backend, by this worker's count. Where connections move
  /// between workers, only the sum over all workers, modulo 2^64, has a meaning.
  template <class K>
  std::uint64_t live_on(std::uint16_t id) const {
    return of<K>().live_on(id);
  }
  /// True if the service at that place in the plan may have served packets without an entry lately.
  template <class K>
  bool is_overflowed(std::size_t service) const {
    return of<K>().is_overflowed(service);
  }
  template <class K>
  void set_overflowed(std::size_t service) {
    const_cast<BalanceFor<K>&>(of<K>()).set_overflowed(service);
  }

  /// Returns the statistics of every service, IPv4's first: in each family the configured services,
  /// in their order, then those that drain.
  std::vector<ServiceStatistics> statistics() const;

  Result<void> check_invariants() const;

 private:
  template <class K>
  const BalanceFor<K>& of() const {
    return of_family<K>(v4_, v6_);
  }

  bool stateful_;
  std::shared_ptr<const BalancePlan> plan_;
  std::shared_ptr<const BalancePlan> coming_;
  BalanceFor<KeyV4> v4_;
  BalanceFor<KeyV6> v6_;
};

/// Calls the given function with each worker's load balancer, between two of that worker's bursts.
/// Returns when all calls are done. False: some worker no longer serves.
using OnEachBalance = std::function<bool(const std::function<void(Balance&)>&)>;

/// Replaces all services and backends of `all`, the load balancers of all workers. Returns the
/// connections to review: all, if some live on a backend that this update has made gone
/// (`is_gone`); else those to no service, if a service was added. Called by the thread that makes
/// plans. Errors: a service is wrong, or would be the first two-way service, which needs reply
/// entries from the start (usage: nothing has changed); some worker no longer serves (failed: other
/// workers may have changed).
Result<Review> update(std::span<Balance* const> all, const Services& services,
                      const OnEachBalance& on_each);

}  // namespace millrace
