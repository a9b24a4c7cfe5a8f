// Workers that serve packets in memory and move shards to each other: on threads of their own, or a
// few bursts at a time on the test's one thread, which then decides which worker is next. Each
// packet notes which worker is serving it. Tests check that each packet returns to the pool it came
// from.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "balance_workers.h"
#include "core/protocol.h"
#include "core/test_sanitizers.h"
#include "core/test_seed.h"
#include "parse/test_checksums.h"
#include "parse/test_packets.h"
#include "worker/exchange.h"
#include "worker/workers.h"

namespace millrace::test {

/// An end of a connection of either family.
struct End {
  bool is_v6 = false;
  std::array<std::uint8_t, 16> address{};  ///< an IPv4 address is the first four bytes
  std::uint16_t port = 0;

  friend bool operator==(const End&, const End&) = default;
};

inline End end_in(bool is_v6, std::uint8_t network, unsigned n, std::uint16_t port) {
  End end{.is_v6 = is_v6, .port = port};
  end.address[0] = is_v6 ? 0xfd : 10;
  end.address[is_v6 ? 7 : 1] = network;
  end.address[is_v6 ? 14 : 2] = static_cast<std::uint8_t>(n >> 8);
  end.address[is_v6 ? 15 : 3] = static_cast<std::uint8_t>(n);
  return end;
}
inline End backend_at(bool is_v6, unsigned n) { return end_in(is_v6, 0, n, 8080); }
inline End client_at(bool is_v6, unsigned n) {
  return end_in(is_v6, 1, n, static_cast<std::uint16_t>(1024 + n));
}
inline End service_at(bool is_v6) { return end_in(is_v6, 2, 10, 80); }
inline End router_at(bool is_v6) { return end_in(is_v6, 3, 1, 0); }
inline constexpr unsigned kBackends = 7;

inline Bytes ip_packet(const End& from, const End& to, unsigned protocol, const Bytes& payload) {
  const auto length = static_cast<unsigned>(payload.size());
  Bytes ip = from.is_v6 ? bytes({0x60, 0, 0, 0}) + be(length) + bytes({protocol, 64})
                        : bytes({0x45, 0}) + be(20 + length) + be(0) + be(0x4000) +
                              bytes({64, protocol, 0, 0});
  for (const End& end : {from, to}) {
    for (unsigned i = 0; i < (end.is_v6 ? 16 : 4); ++i) ip.push_back(std::byte{end.address[i]});
  }
  return ethernet(from.is_v6 ? 0x86dd : 0x0800) + ip + payload;
}
/// Returns a UDP datagram, or a TCP segment with the flag ACK whose sequence and acknowledgement
/// numbers are 0. Either has `data` bytes of data.
inline Bytes packet_between(const End& from, const End& to, std::uint8_t protocol,
                            unsigned data = 0) {
  const Bytes ports = be(from.port) + be(to.port);
  return ip_packet(from, to, protocol,
                   protocol == kProtocolTcp ? ports + zeros(8) + bytes({0x50, 16}) + zeros(6 + data)
                                            : ports + be(8 + data) + zeros(2 + data));
}

namespace detail {
inline constexpr unsigned kIp = 14;
inline End end_at(const std::byte* ip, bool is_source) {
  End end{.is_v6 = std::to_integer<unsigned>(ip[0]) >> 4 == 6};
  const unsigned bytes = end.is_v6 ? 16 : 4;
  const std::byte* const address = ip + (end.is_v6 ? 8 : 12) + (is_source ? 0 : bytes);
  std::memcpy(end.address.data(), address, bytes);
  const std::byte* const port = ip + (end.is_v6 ? 40 : 20) + (is_source ? 0 : 2);
  end.port = static_cast<std::uint16_t>(std::to_integer<unsigned>(port[0]) << 8 |
                                        std::to_integer<unsigned>(port[1]));
  return end;
}
/// Returns the packet that an ICMP error quotes.
inline const std::byte* quoted(const std::byte* error) {
  const std::byte* const ip = error + kIp;
  return ip + (std::to_integer<unsigned>(ip[0]) >> 4 == 6 ? 48 : 28);
}
}  // namespace detail

inline End source_of(const std::byte* packet) { return detail::end_at(packet + detail::kIp, true); }
inline End destination_of(const std::byte* packet) {
  return detail::end_at(packet + detail::kIp, false);
}
inline End quoted_source_of(const std::byte* error) {
  return detail::end_at(detail::quoted(error), true);
}
inline End quoted_destination_of(const std::byte* error) {
  return detail::end_at(detail::quoted(error), false);
}

/// Returns an ICMP error about `packet`, destination unreachable, from a router to the sender of
/// `packet`.
inline Bytes error_about(const Bytes& packet) {
  const End to = source_of(packet.data());
  const Bytes type = to.is_v6 ? bytes({1, 0, 0, 0}) : bytes({3, 1, 0, 0});
  const std::uint8_t protocol = to.is_v6 ? kProtocolIcmpV6 : kProtocolIcmp;
  const Bytes frame =
      ip_packet(router_at(to.is_v6), to, protocol,
                type + zeros(4) + Bytes(packet.begin() + detail::kIp, packet.end()));
  Bytes ip(frame.begin() + detail::kIp, frame.end());
  make_right(ip, {to.is_v6 ? 6U : 4U, to.is_v6 ? 40U : 20U, protocol});
  return ethernet(to.is_v6 ? 0x86dd : 0x0800) + ip;
}

/// A packet, in the pool of the port that has made it.
struct Packet {
  static constexpr unsigned kNobody = UINT32_MAX;
  std::atomic<bool> is_free{true};
  /// The worker that has kept the packet in its burst (`Port::filed`), and neither sent it nor
  /// passed it on since; or `kNobody`.
  unsigned filed_by = kNobody;
  bool is_misplaced = false;  ///< a step, from `take` to `give_back`, was missing or too early
  unsigned tag = 0;           ///< for the test's use
  unsigned phase = 0;
  std::uint32_t number = 0;
  std::uint16_t length = 0;
  std::array<std::byte, 384> bytes{};
};

/// Memory for a port's packets. A pool must outlive all ports, as other workers' rings may have
/// packets of a destroyed port.
class Pool {
 public:
  explicit Pool(unsigned packets) : packets_(packets) {}
  /// Takes a free packet; null if none is free. To be called by one thread.
  Packet* take() {
    for (std::size_t n = 0; n < packets_.size(); ++n) {
      Packet& packet = packets_[next_++ % packets_.size()];
      if (!packet.is_free.load(std::memory_order_acquire)) continue;
      packet.is_free.store(false, std::memory_order_relaxed);
      return &packet;
    }
    return nullptr;
  }
  static void give_back(Packet& packet) {
    if (packet.is_free.load() || packet.filed_by != Packet::kNobody) packet.is_misplaced = true;
    packet.is_free.store(true, std::memory_order_release);
  }
  /// @name Counts, to be called while no worker runs
  /// @{
  std::size_t on_their_way() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(packets_, [](const Packet& one) { return !one.is_free.load(); }));
  }
  std::size_t misplaced() const {
    return static_cast<std::size_t>(std::ranges::count(packets_, true, &Packet::is_misplaced));
  }
  /// @}

 private:
  std::vector<Packet> packets_;
  std::size_t next_ = 0;
};

class MemoryPort : public Port, private WorkersExchange::Packets {
 public:
  MemoryPort(Exchange& exchange, unsigned worker, std::shared_ptr<Pool> pool)
      : worker_(worker), pool_(std::move(pool)), exchange_(exchange, worker, *this) {}

  LinkType link_type() const final { return LinkType::ethernet; }
  bool receive(Burst& burst) final {
    burst.now = now();
    if (!is_stepped_) {
      exchange_.receive(burst);
      return fill(burst);
    }
    // `Line::run` serves the last two bursts after its last `between_bursts`, so no move can act on
    // these bursts: no packets from other workers' rings are added to them.
    if (--bursts_left_ < 2) {
      fill_last(burst);
    } else {
      exchange_.receive(burst);
      fill(burst);
    }
    return bursts_left_ > 0;
  }
  /// Hands packets over as `LivePort::filed` does, and notes that this worker serves the packets
  /// that stay in the burst.
  void filed(Burst& burst, const Steering& steering) final {
    exchange_.number_shards(burst, steering);
    exchange_.hand_over(burst);
    for (unsigned i = 0; i < burst.size; ++i) change(burst.handle[i], Packet::kNobody, worker_);
  }
  void send(const Burst& burst, std::uint64_t forward) final {
    for (unsigned i = 0; i < burst.size; ++i) {
      change(burst.handle[i], worker_, Packet::kNobody);
      served(packet_of(burst.handle[i]), burst, i, (forward >> i & 1) != 0);
      Pool::give_back(packet_of(burst.handle[i]));
    }
  }

  /// Makes the next run of the line end after `bursts` bursts, 3 or more. Packets from the rings to
  /// this worker are added to all of these bursts but the last two.
  void set_bursts(unsigned bursts) {
    is_stepped_ = true;
    bursts_left_ = bursts;
  }
  /// Makes the next run end when `fill` returns false.
  void run_until_told() { is_stepped_ = false; }
  WorkersExchange& exchange() { return exchange_; }
  const WorkersExchange& exchange() const { return exchange_; }
  unsigned worker() const { return worker_; }
  std::uint64_t dropped() const { return dropped_.value(); }

 protected:
  virtual Tick now() const = 0;
  /// Adds packets that arrive at this worker's queue. Returns false if the run must end.
  virtual bool fill(Burst& burst) = 0;
  /// Adds packets to a burst on which no move can act.
  virtual void fill_last(Burst&) {}
  virtual void served(Packet& packet, const Burst& burst, unsigned at, bool is_forwarded) = 0;

  Pool& pool() { return *pool_; }
  void add(Burst& burst, Packet& packet, const Bytes& bytes) {
    packet.length = static_cast<std::uint16_t>(bytes.size());
    std::ranges::copy(bytes, packet.bytes.begin() + kHeadroom);
    place(burst, burst.size++, std::bit_cast<Handle>(&packet));
  }

 private:
  static constexpr unsigned kHeadroom = 128;
  static Packet& packet_of(Handle handle) { return *std::bit_cast<Packet*>(handle); }
  static void change(Handle handle, unsigned from, unsigned to) {
    Packet& packet = packet_of(handle);
    if (std::exchange(packet.filed_by, to) != from) packet.is_misplaced = true;
  }

  void place(Burst& burst, unsigned at, Handle handle) final {
    Packet& packet = packet_of(handle);
    burst.data[at] = packet.bytes.data() + kHeadroom;
    burst.length[at] = packet.length;
    burst.wire_length[at] = packet.length;
    burst.handle[at] = handle;
  }
  void drop(Handle handle) final {
    dropped_.add(1);
    Pool::give_back(packet_of(handle));
  }
  void passed_on(Handle handle) final { change(handle, worker_, Packet::kNobody); }
  void hear(Handle) final {}

  unsigned worker_;
  std::shared_ptr<Pool> pool_;
  bool is_stepped_ = false;
  unsigned bursts_left_ = 0;
  Counter dropped_;
  WorkersExchange exchange_;  // last: its destructor, the first to run, gives packets back
};

/// Workers that run a load balancer, and whose shards can move.
struct Bed {
  static constexpr unsigned kShards = Indirection::kLeast;

  /// Throws std::bad_expected_access if the workers or the exchange cannot be made.
  Bed(unsigned count, const LineConfig& line, const BalanceConfig& balance)
      : workers(make_workers(count, line, balance, kShards).value()),
        owners(
            std::make_shared<Owners>(spread_named("keyed")->create(Secret::from_seed(seed() + 1)),
                                     Indirection(kShards, count), count)),
        exchange(Exchange::create(count, owners).value()) {}

  /// Returns a configuration whose services use round robin, so that a connection that opens twice
  /// most likely changes its backend.
  static BalanceConfig balance() {
    BalanceConfig config;
    config.services = {};
    for (const std::uint8_t protocol : {kProtocolTcp, kProtocolUdp}) {
      config.services.v4.push_back(service<AddressV4>(protocol));
      config.services.v6.push_back(service<AddressV6>(protocol));
    }
    return config;
  }
  static LineConfig line(const std::string& table, const std::string& ageing, std::size_t capacity,
                         std::uint32_t timeout_ms) {
    return {.table = table,
            .ageing = ageing,
            .capacity = capacity,
            .capacity_v6 = capacity,
            .timeouts = Timeouts::all(timeout_ms),
            .pages = Pages::small,
            .secret = Secret::from_seed(seed()),
            .source_limit = {.most = 1'000'000},
            .catch_up = true,  // time is simulated
            .shards_that_move = kShards};
  }

  template <class P>
  P& add(std::unique_ptr<P> port) {
    P& added = *port;
    ports.push_back(std::move(port));
    return added;
  }
  /// Makes the pool of the next port.
  std::shared_ptr<Pool> pool(unsigned packets) {
    return pools.emplace_back(std::make_shared<Pool>(packets));
  }
  /// Gives the lines to the ports; to be called after all ports were added. Lines begin at tick 0,
  /// so each line serves empty bursts, to learn the time before other workers' connections arrive.
  void connect() {
    std::vector<Line*> lines;
    for (unsigned n = 0; n < workers.count(); ++n) lines.push_back(&workers.line(n));
    for (const auto& port : ports) port->exchange().set_lines(lines);
    for (unsigned n = 0; n < workers.count(); ++n) step(n);
  }
  /// Serves `bursts` bursts of `worker` on this thread, 3 or more.
  void step(unsigned worker, unsigned bursts = 3) {
    ports[worker]->set_bursts(bursts);
    workers.line(worker).run(*ports[worker]);
  }
  bool is_at_rest() const {
    return !owners->moves().is_under_way() &&
           std::ranges::all_of(ports, [](const auto& p) { return p->exchange().is_at_rest(); });
  }
  unsigned shard_of(const End& client, std::uint8_t protocol) const {
    return client.is_v6 ? shard_of<KeyV6>(client, protocol) : shard_of<KeyV4>(client, protocol);
  }

  /// Expects that all counts equal the numbers of connections, and that no connection exists twice.
  /// To be called while the workers are at rest.
  void check() const {
    for (unsigned n = 0; n < workers.count(); ++n) {
      const auto whole = workers.line(n).check_invariants();
      EXPECT_TRUE(whole.has_value()) << whole.error().message;
    }
    EXPECT_TRUE(workers.function().check_invariants().has_value());
    const WorkerCounters counters = workers.counters();
    const std::uint64_t live = counters.opened.value() - counters.ended();
    EXPECT_EQ(workers.report_v4().live + workers.report_v6().live, live);
    std::uint64_t on_backends = 0;
    std::uint64_t proved = 0;
    for (const auto& service : services_of(workers)) {
      proved += service.established;
      for (const auto& backend : service.backends) on_backends += backend.live;
    }
    EXPECT_EQ(on_backends, live);
    EXPECT_EQ(workers.sources()->total(), proved);
    std::set<std::string> keys;
    workers.list([&](const WorkersConnection& one) {
      const std::string key = std::visit(
          [](const auto& of) {
            return std::string(reinterpret_cast<const char*>(&of), sizeof(of));
          },
          one.connection.key);
      EXPECT_TRUE(keys.insert(key).second) << "a connection is listed twice";
    });
    EXPECT_EQ(keys.size(), live);
    for (const auto& of_port : pools) EXPECT_EQ(of_port->misplaced(), 0U);
  }
  std::uint64_t ended(Ending how) const {
    return workers.counters().closed[static_cast<std::size_t>(how)].value();
  }
  std::uint64_t dropped() const {
    std::uint64_t all = 0;
    for (const auto& port : ports) all += port->dropped();
    return all;
  }
  std::uint64_t not_handed() const {
    std::uint64_t all = 0;
    for (const auto& port : ports) all += port->exchange().counters().not_handed.value();
    return all;
  }

  Workers workers;
  std::shared_ptr<Owners> owners;
  std::unique_ptr<Exchange> exchange;
  std::vector<std::shared_ptr<Pool>> pools;  // by worker
  std::vector<std::unique_ptr<MemoryPort>> ports;

  template <class K>
  static K key(const End& from, const End& to, std::uint8_t protocol) {
    K key;
    std::memcpy(key.source.bytes.data(), from.address.data(), K::Address::kBytes);
    std::memcpy(key.destination.bytes.data(), to.address.data(), K::Address::kBytes);
    key.source_port = from.port;
    key.destination_port = to.port;
    key.protocol = protocol;
    return key;
  }

 private:
  template <class K>
  unsigned shard_of(const End& client, std::uint8_t protocol) const {
    const K to_service = key<K>(client, service_at(client.is_v6), protocol);
    return *owners->shard_of(workers.steering().steer(std::span(&to_service, 1)), to_service);
  }
  template <class A>
  static ServiceSpec<A> service(std::uint8_t protocol) {
    constexpr bool kIsV6 = A::kBytes == 16;
    const auto address = [](const End& end) {
      A of;
      std::memcpy(of.bytes.data(), end.address.data(), A::kBytes);
      return of;
    };
    const End at = service_at(kIsV6);
    ServiceSpec<A> spec{
        .address = address(at), .port = at.port, .protocol = protocol, .backends = {}};
    spec.scheduler = "round-robin";
    for (unsigned n = 1; n <= kBackends; ++n) {
      const End backend = backend_at(kIsV6, n);
      spec.backends.push_back({address(backend), backend.port});
    }
    return spec;
  }
};

/// Returns the ageing scheme to test `table` with: three schemes are assigned to the tables in
/// turn.
inline std::string ageing_for(const std::string& table) {
  constexpr std::array<const char*, 3> kAgeing{"wheel", "scan", "lazy"};
  const auto tables = tables_for("sharded");
  const auto at = std::ranges::find(tables, table) - tables.begin();
  return kAgeing[static_cast<std::size_t>(at) % kAgeing.size()];
}
/// Skips `cuckoo` under the thread sanitizer. Several `cuckoo` tables are made at once, under a
/// lock within DPDK that the sanitizer does not see.
inline void skip_what_seems_a_race(const std::string& table) {
  if (kThreadSanitized && table == "cuckoo")
    GTEST_SKIP() << "the thread sanitizer does not see DPDK's locks";
}
inline std::string name_of_table(const testing::TestParamInfo<std::string>& of) {
  std::string name = of.param;
  std::ranges::replace(name, '+', 'p');
  std::erase(name, '-');
  return name;
}

}  // namespace millrace::test
