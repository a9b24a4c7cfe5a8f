// The load balancer: gives each new connection a backend, and rewrites its packets: the destination
// of clients' packets to the backend, the source of the backends' replies back to the virtual
// address. ICMP errors about either go on to the backend or the client, and what they quote is
// rewritten to what that sent.
//
// One worker owns a Balance and makes all calls. `statistics` may also be called by other threads,
// except while `update` runs.
//
// What keeps packets of one connection together:
// - A tracked connection's record names its backend, and a backend's id is not given out again as
//   long as a connection lives on it, so no update moves a connection.
// - Without an entry, a packet that is no TCP SYN goes where Maglev says, under any scheduler: its
//   connection may be one that another machine, or this one before a restart, sent there.
// - A service that has served packets without entries (table full) schedules *everything* by Maglev
//   until `quiet_ms` have passed since the last of them: a connection that began without an entry
//   keeps its backend when it finds a place, a retransmitted SYN included.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/counter.h"
#include "core/destination_table.h"
#include "function/balance/maglev.h"
#include "function/balance/scheduler.h"
#include "function/balance/service.h"
#include "function/balance/service_counts.h"
#include "function/function.h"

namespace millrace {

struct BalanceConfig {
  Services services = default_services();
  BalanceKey key = kDefaultBalanceKey;
  std::uint32_t maglev_table_size = Maglev::kDefaultSize;
  bool stateful = true;  ///< false: everything by Maglev, no entries, replies untouched
  bool stateless_when_full =
      true;  ///< serve what finds no place by Maglev; false: leave it dropped
  /// As long as the longest idle time after which a packet without entry counts as the beginning of
  /// a connection, and no shorter than a SYN's retransmissions (127 s with Linux's six).
  std::uint32_t quiet_ms = 600'000;
  /// Where several workers' functions share the limits of services: which one this is for, and what
  /// they share. None: it is the only one.
  unsigned worker = 0;
  std::shared_ptr<ServiceCounts> counts;
};

struct BackendStatistics {
  std::string address;  ///< with its port where one is configured
  std::uint32_t weight = 0;
  bool draining = false;      ///< no longer configured; serves the connections it has
  std::uint64_t packets = 0;  ///< sent to it
  std::uint64_t replies = 0;  ///< rewritten on their way back
  std::uint64_t connections =
      0;  ///< given to it; what was given up before it opened is not counted
  std::uint64_t live = 0;
};

struct ServiceStatistics {
  std::string service;  ///< "203.0.113.10:443/tcp"
  std::string scheduler;
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

  explicit BalanceFor(const BalanceConfig& config);

  /// What forbids `update` with these. After the first update, `state_bytes().replies` is settled.
  Result<void> check(const std::vector<Spec>& specs) const;
  void update(const std::vector<Spec>& specs);
  void append_statistics(std::vector<ServiceStatistics>& all) const;
  Result<void> check_invariants() const;

  typename FunctionFor<K>::StateBytes state_bytes() const override;
  void sides(Burst& burst) override;
  void open(const Burst& burst, std::span<Opening<K>> openings) override;
  Verdict answers(const Burst& burst, unsigned packet, const K& reply_key, K& originator) override;
  Verdict proved(const std::byte* state) override;
  void unproved(const std::byte* state) override;
  void process(Burst& burst, const States<K>& originators, const States<K>& replies) override;
  void closed(const std::byte* state, bool proved) override;
  void abandoned(const std::byte* state) override;
  void adopted(const std::byte* state, bool proved) override;
  void follow(const FunctionFor<K>& other) override;

 private:
  static constexpr std::uint32_t kMaxBackends = 65536;
  static constexpr std::uint32_t kNoPlace = 0xffffffff;

  // A record's state, in both directions: an id. What to write into packets is read from the
  // backend, whose line is fetched for its counters anyway, so that an IPv4 record has 32 bytes.
  using State = std::uint16_t;

  struct Service;
  struct alignas(64) Backend {
    Address address;
    Address virtual_address;         ///< of its service
    std::uint16_t port = 0;          ///< 0: that of the packets to it
    std::uint16_t virtual_port = 0;  ///< of its service; 0: any
    Counter packets;
    Counter replies;
    // Not read for packets of known connections:
    Counter connections;
    Counter live;
    std::uint32_t weight = 0;
    std::uint32_t place = kNoPlace;  ///< in its service's list; none once it is configured no more
    Service* service = nullptr;
  };

  struct Service {
    Spec spec;
    std::vector<std::uint16_t> listed;    ///< ids of its backends, in the configured order
    std::vector<std::uint16_t> draining;  ///< ids of former backends that still have connections
    std::vector<Candidate> candidates;    ///< of `listed`
    std::vector<Maglev::Member> members;  ///< of `listed`
    Maglev maglev;                        ///< of `members`
    const SchedulerKind* kind = nullptr;  ///< of `scheduler`
    std::unique_ptr<Scheduler> scheduler;
    unsigned willing = 0;     ///< listed backends that have weight
    bool removed = false;     ///< kept for the connections of `draining` only
    bool overflowed = false;  ///< `quiet_ms` have not yet passed since `overflowed_at`
    Tick overflowed_at;
    std::shared_ptr<ShardedCount> proved;  ///< its connections that were proved
    Counter limited;
    Counter refused;
    Counter collisions;
    Counter stateless;
  };

  /// The side that the packet with this key meets; none: no service is concerned.
  std::optional<Side> side(const K& key) const;
  Service* find(const K& key);
  static std::uint32_t index_of(const DestinationTable<Address>& table, const K& key);

  void answer(const Burst& burst, Opening<K>& opening);
  void refuse(Opening<K>& opening, Service* service, Verdict why);
  /// Whether the limit forbids one more connection; counts that.
  static bool turns_away(Service& service);
  void count_proved(const std::byte* state, std::int64_t more);
  std::uint16_t first_choice(Service& service, const Burst& burst, const Opening<K>& opening);
  std::uint16_t next_choice(const Service& service, const Opening<K>& opening);
  bool by_maglev(Service& service, const Burst& burst, const Opening<K>& opening) const;
  void accept(const Service& service, std::uint16_t id, Opening<K>& opening);

  template <Side kSide>
  void send(Burst& burst, unsigned packet, Backend& backend, std::uint16_t port, Verdict verdict);
  void serve_by_maglev(Burst& burst, const K& key, unsigned packet);
  void serve_answer(Burst& burst, const K& key, unsigned packet);
  template <class Unconcerned>
  void sides(Lanes<K>& lanes, Unconcerned&& unconcerned) const;

  // ICMP errors (errors.h).
  void serve_errors(Burst& burst, const States<K>& originators, const States<K>& replies);
  const Backend* backend_by_maglev(const K& key);
  template <Side kSide>
  static void pass_on(Burst& burst, unsigned packet, const Backend& backend, std::uint16_t port);
  void index_replies();

  static State state_at(const std::byte* at);
  static std::uint16_t port_for(const Backend& backend, const K& key);
  static std::uint16_t virtual_port(const Backend& backend, const K& reply_key, ConnId reply,
                                    const States<K>& originators, const States<K>& replies);

  void unlist(Service& service);
  void list(Service& service);
  static bool is_same(const Backend& backend, const BackendSpec<Address>& spec);
  std::uint16_t backend_for(Service& service, const BackendSpec<Address>& wanted);
  std::uint16_t new_id();
  void wire(Service& service);
  void refresh_candidates(Service& service);
  std::size_t draining_after(const std::vector<Spec>& specs) const;
  void index_services();

  Hasher hash_;
  unsigned worker_;
  std::shared_ptr<ServiceCounts> counts_;
  std::uint32_t maglev_size_;
  std::uint32_t quiet_ms_;
  bool stateful_;
  bool stateless_when_full_;

  bool settled_ = false;  ///< there are services, so the tracker knows whether there are replies
  bool replies_ = false;  ///< `state_bytes().replies`
  bool two_way_ = false;  ///< some service has replies
  bool mixed_ = false;    ///< and some has none
  DestinationTable<Address> table_;          ///< of all services: what concerns the balancer
  DestinationTable<Address> current_;        ///< without removed ones: who gets what is new
  DestinationTable<Address> reply_sources_;  ///< backends' addresses, where `mixed_`
  /// Where replies come from that have no entry: listed backends of two-way services with a port.
  struct Answering {
    std::uint32_t service;
    std::uint16_t backend;
  };
  const Answering* find_answering(const Burst& burst, unsigned packet, const K& reply_key,
                                  K& originator) const;
  DestinationTable<Address> answering_;
  std::vector<std::vector<Answering>> answering_there_;  ///< by the index in `answering_`
  std::vector<std::unique_ptr<Service>> services_;
  std::vector<Backend> backends_;
  std::vector<std::uint16_t> free_ids_;
};

class Balance final : public Function {
 public:
  /// An error names the service or setting that is wrong.
  static Result<std::unique_ptr<Balance>> create(const BalanceConfig& config);

  bool stateful() const override { return stateful_; }
  FunctionFor<KeyV4>& v4() override { return v4_; }
  FunctionFor<KeyV6>& v6() override { return v6_; }

  /// Replaces all services and backends. Connections stay where they are, also those of backends
  /// and services that are gone: these drain. After an error nothing has changed. The first two-way
  /// service cannot come by an update: it needs reply entries from the start. Between two bursts;
  /// takes some 2 ms for each service whose backends change.
  Result<void> update(const Services& services);

  /// Every service in configured order, then those that drain.
  std::vector<ServiceStatistics> statistics() const;

  Result<void> check_invariants() const;

 private:
  explicit Balance(const BalanceConfig& config)
      : stateful_(config.stateful), v4_(config), v6_(config) {}

  bool stateful_;
  BalanceFor<KeyV4> v4_;
  BalanceFor<KeyV6> v6_;
};

}  // namespace millrace
