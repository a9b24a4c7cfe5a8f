// The load balancer: gives each new connection a backend, and has its packets rewritten: the
// destination of clients' packets to the backend, the source of the backends' replies back to the
// virtual address.
//
// One worker owns a Balance and makes all calls, but for `learn`, `let_go` and `statistics`: those
// are of the thread that makes plans (plan.h), which hold what all workers have in common, services
// and backends' ids.
//
// What keeps packets of one connection together:
// - A tracked connection's record names its backend, and a backend's id is not given out again as
//   long as a connection lives on it, so no update moves a connection by itself. After an update
//   the line asks for the `fate` of each connection, and ends those that must leave their backend.
// - Without an entry, a packet that is no TCP SYN goes where Maglev says, under any scheduler: its
//   connection may be one that another machine, or this one before a restart, sent there.
// - A service that has served packets without entries (table full) schedules *everything* by Maglev
//   until `quiet_ms` have passed since the last of them: a connection that began without an entry
//   keeps its backend when it finds a place, a retransmitted SYN included.
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
  unsigned maglev_threads = 0;  ///< threads that make tables; 0: the worker that needs one does
  bool stateful = true;         ///< false: everything by Maglev, no entries, replies untouched
  bool stateless_when_full =
      true;  ///< serve what finds no place by Maglev; false: leave it dropped
  /// As long as the longest idle time after which a packet without entry counts as the beginning of
  /// a connection, and no shorter than a SYN's retransmissions (127 s with Linux's six).
  std::uint32_t quiet_ms = 600'000;
  bool shares_tables = false;  ///< the workers use the same connection tables
};

struct BackendStatistics {
  std::string address;  ///< with its port where one is configured
  std::uint32_t weight = 0;
  bool draining = false;      ///< no longer configured; serves the connections it has
  std::uint64_t packets = 0;  ///< sent to it
  std::uint64_t bytes = 0;    ///< of those, as they were on the wire
  std::uint64_t replies = 0;  ///< rewritten on their way back
  std::uint64_t reply_bytes = 0;
  std::uint64_t connections =
      0;  ///< given to it; what was given up before it opened is not counted
  std::uint64_t live = 0;
  std::int64_t established =
      0;  ///< proved, and not ended by the two sides; a worker's may be negative
};

struct ServiceStatistics {
  std::string service;  ///< "203.0.113.10:443/tcp"
  std::string scheduler;
  Forward forward = Forward::nat;
  bool draining = false;
  std::uint64_t established = 0;      ///< proved connections, of all workers that share its limit
  std::uint64_t max_connections = 0;  ///< of them, at most; 0: no limit
  std::uint64_t limited = 0;          ///< how often that refused one more
  std::uint64_t refused = 0;     ///< connections, and packets without entry, that got no backend
  std::uint64_t collisions = 0;  ///< answers that met another connection's reply
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
  /// Connections that live on a backend, by this worker's count.
  std::uint64_t live_on(std::uint16_t id) const;
  void append_statistics(std::vector<ServiceStatistics>& all) const;
  Result<void> check_invariants() const;

  Part part() const override;
  Steered steer(std::span<const K> keys) const override;
  std::uint64_t screen(Burst& burst, Lane<K>& lane, std::uint64_t unknown) override;
  void open(const Burst& burst, Opening<K>& opening) override;
  Verdict answers(const Burst& burst, unsigned packet, const K& reply_key, K& originator) override;
  Verdict event(Event event, const std::byte* state, bool is_proved) override;
  void serve(Burst& burst, std::uint64_t places, const States<K>& states) override;
  using typename FunctionFor<K>::Target;
  Target target(const K& key, const std::byte* state) const override;
  void write(const K& key, const std::byte* state, std::byte* image) const override;
  std::optional<Target> target_without_entry(const Burst& burst, unsigned packet,
                                             const K& key) override;
  Fate fate(const K& key, const std::byte* state, bool is_answered) const override;
  void follow(const FunctionFor<K>& other) override;
  /// Returns true if packets of that service may have been served without an entry lately.
  bool is_overflowed(std::size_t service) const {
    return !stateful_ || services_[service]->overflow.is_there();
  }
  /// Returns false for what `write` says of a connection that goes to no service.
  static bool is_served(const std::byte* image) {
    Image is;
    std::memcpy(&is, image, sizeof(is));
    return is.address != Address{};
  }
  void set_overflowed(std::size_t service) { services_[service]->overflow.note({}); }

 private:
  // A record's state, in both directions: an id. What to write into packets is read from the
  // backend, whose line is fetched for its counters anyway, so that an IPv4 record has 32 bytes.
  using State = std::uint16_t;
  static constexpr State kUnconcerned = Plan::kMaxBackends;  // of a connection to no service

  /// What another process is told of a connection: its backend as packets are sent there.
  struct Image {
    Address address;
    std::uint16_t port;
  };

  struct Service;
  /// One worker's part of a backend. Packets to it read one cache line, replies another one; with
  /// IPv4 both read the same. So with IPv6 there is padding on purpose.
  // NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
  struct alignas(64) Backend {
    Address address;
    std::uint16_t port = 0;  ///< 0: that of the packets to it
    Forward forward = Forward::nat;
    bool has_replies = false;  ///< they are rewritten
    Counter packets;
    Counter bytes;
    alignas(sizeof(Address) == 4 ? 4 : 64) Address virtual_address;  ///< of its service
    std::uint16_t virtual_port = 0;                                  ///< of its service; 0: any
    Counter replies;
    Counter reply_bytes;
    // Not read for packets of known connections:
    Counter connections;
    Counter live;
    Activity activity;
    Activity* activity_of_all = nullptr;  ///< instead, where workers share tables
    Service* service = nullptr;
    std::uint64_t since = 0;  ///< the plan's number
  };

  /// A service's scheduler and the backends that it sees; both go on as long as the backends stay.
  struct Pooled {
    std::vector<Candidate> candidates;
    std::unique_ptr<Scheduler> scheduler;
  };
  /// This worker's part of a service.
  struct Service {
    std::uint64_t identity = 0;
    std::shared_ptr<const typename Plan::Service>
        plan;  ///< of the plan that is taken on, or learned
    std::shared_ptr<Pooled> pooled;
    const Maglev* maglev = nullptr;  ///< null: not asked for, or not made yet
    Overflow overflow;
    Counter limited;
    Counter refused;
    Counter collisions;
    Counter stateless;
  };
  /// A service's part of the plan that is learned. When the worker takes it on, this becomes the
  /// part of the plan before, until `let_go`.
  struct Coming {
    std::shared_ptr<Service> service;
    std::shared_ptr<const typename Plan::Service> plan;
    std::shared_ptr<Pooled> pooled;
  };

  /// The service that takes what is new; null: none.
  Service* find(const K& key);

  void resume(Opening<K>& opening);
  void pass_over(Opening<K>& opening);
  Verdict prove(const std::byte* state);
  void close(const std::byte* state, bool proved);
  void abandon(const std::byte* state);
  void refuse(Opening<K>& opening, Service* service, Verdict why);
  /// Whether the limit forbids one more connection; counts that.
  static bool turns_away(Service& service);
  void count_active(const std::byte* state, std::int64_t more, bool is_proof = false);
  /// By this worker's count; where workers share tables the first one tells what all count.
  std::int64_t established_on(const Backend& backend) const {
    if (backend.activity_of_all == nullptr) return backend.activity.active.difference();
    return worker_ == 0 ? backend.activity_of_all->active.difference() : 0;
  }
  /// The service's Maglev table; null: it is being made.
  const Maglev* table_of(Service& service) {
    if (service.maglev == nullptr) [[unlikely]]
      service.maglev = plan_->settings.maglev->want(service.plan->maglev);
    return service.maglev;
  }
  /// Returns the backend's place in the list; none if the Maglev table that tells it is being made.
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
  std::vector<std::shared_ptr<Service>> services_;  ///< as in the plan
  std::shared_ptr<const Plan> coming_;              ///< learned, and not yet taken on
  std::vector<std::shared_ptr<Service>> coming_services_;
  std::vector<Coming> coming_changes_;
  BackendsById<Backend> backends_;

  using Answering = typename Plan::Answering;
  /// Returns the service and backend whose answer a reply without an entry is; null if it is none.
  /// Sets `waits` if that takes a Maglev table which is being made.
  const Answering* find_answering(const Burst& burst, unsigned packet, const K& reply_key,
                                  K& originator, bool& waits);
};

class Balance final : public Function {
 public:
  /// The first plan for so many workers. An error names the service or setting that is wrong.
  static Result<std::shared_ptr<const BalancePlan>> plan(const BalanceConfig& config,
                                                         unsigned workers);
  /// One of those workers'; `plan` is of the same configuration.
  Balance(const BalanceConfig& config, std::shared_ptr<const BalancePlan> plan,
          unsigned worker = 0);
  /// Alone, with a plan of its own. Errors: as `plan`.
  static Result<std::unique_ptr<Balance>> create(const BalanceConfig& config);

  bool stateful() const override { return stateful_; }
  FunctionFor<KeyV4>& v4() override { return v4_; }
  FunctionFor<KeyV6>& v6() override { return v6_; }

  /// @name Another plan
  /// @{
  /// Its backends' ids are known from now on; by the thread that makes plans.
  void learn(std::shared_ptr<const BalancePlan> plan);
  /// Goes by the plan that was learned from now on. The worker calls it, between two bursts.
  /// Connections stay where they are, also those of backends and services that are gone: these
  /// drain.
  void take_on();
  /// Forgets what was before; by the thread that makes plans.
  void let_go();
  /// As configured at first.
  void set_quiet_ms(std::uint32_t quiet_ms) {
    v4_.set_quiet_ms(quiet_ms);
    v6_.set_quiet_ms(quiet_ms);
  }
  /// @}
  const std::shared_ptr<const BalancePlan>& plan() const { return plan_; }
  /// Connections that live on a backend, by this worker's count: that of several may only have a
  /// meaning together, modulo 2^64.
  template <class K>
  std::uint64_t live_on(std::uint16_t id) const {
    return of<K>().live_on(id);
  }
  /// Services that have served packets without entries lately, by their places in the plan.
  template <class K>
  bool is_overflowed(std::size_t service) const {
    return of<K>().is_overflowed(service);
  }
  template <class K>
  void set_overflowed(std::size_t service) {
    const_cast<BalanceFor<K>&>(of<K>()).set_overflowed(service);
  }

  /// Every service in configured order, then those that drain.
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

/// Calls what it is given with each worker's function, between two of that worker's bursts; returns
/// when all have been called. False: some worker serves no more.
using OnEachBalance = std::function<bool(const std::function<void(Balance&)>&)>;

/// Replaces all services and backends of `all`, the functions of all workers. Returns whose `fate`
/// is to be asked for: of all connections, if some live on a backend that is gone now; of those to
/// no service, if there is a service that was not there. After an error nothing has changed. The
/// first two-way service cannot come by an update: it needs reply entries from the start. One
/// thread updates at a time; that thread may also ask for statistics.
Result<Review> update(std::span<Balance* const> all, const Services& services,
                      const OnEachBalance& on_each);

}  // namespace millrace
