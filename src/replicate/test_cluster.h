// A cluster, simulated: servers with copies of shards, a store and its manager, two switches, and
// customers. Messages are lost, doubled, delayed and reordered; servers crash, stop and return;
// links between any two parts are cut. The rules of copy.h are checked all the time, from outside.
//
// Time is in ticks of 1 ms.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "replicate/copy.h"

namespace millrace::test {

/// A mistake that is planted in the simulation.
enum class Mistake : std::uint8_t {
  none,
  epoch_unchecked,     // a copy takes messages of an older epoch for those of its own
  acknowledged_early,  // a record is acknowledged before it is applied
  grant_kept,          // a deposed member uses a grant that the store has taken back
  slave_ages,          // a slave ends connections that it thinks idle
};

constexpr unsigned kServers = 4;
constexpr unsigned kShards = 2;
constexpr unsigned kSwitches = 2;  // towards customers, towards the internet
constexpr unsigned kCustomers = 4;
constexpr unsigned kGrants = 24;       // of a shard
constexpr unsigned kPortsOfGrant = 4;  // all of one customer
constexpr unsigned kWanted = 3;        // grants that a copy should have unused
constexpr int kIdle = 900;             // ticks until a connection expires
constexpr int kRest = 300;             // ticks for which a server lets the ports of a customer rest
constexpr int kLeast = 250;            // ticks after which a port may have another customer at all
constexpr int kLease = 100;            // ticks until the store takes a silent member for lost

struct Connection {
  std::uint32_t customer = 0;
  std::uint32_t port = 0;
  int seen = 0;
};
struct Record {
  std::uint32_t key = 0;
  std::uint32_t customer = 0;
  std::uint32_t port = 0;
  std::uint32_t is_there = 0;
};

class World;

/// The copy of a shard at one process, with the connections of a simulated worker.
class Copy final : public ShardCopy::Records {
 public:
  Copy(World& world, Member member, unsigned shard)
      : world_(world), member_(member), shard_(shard), core(shard, *this) {}

  bool tell(ShardCopy& copy, Tick now) override;
  void tell_all() override;
  void begin_all() override {
    stale_.clear();
    for (const auto& [key, connection] : connections) stale_.insert(key);
  }
  void end_all() override {
    for (const std::uint32_t key : std::exchange(stale_, {})) end(key);
  }
  void apply(std::span<const std::byte> bytes) override;

  void assign(const Assignment& to);
  /// Serves a packet of a customer. Returns the public port, none if it is dropped.
  std::optional<std::uint32_t> serve(std::uint32_t key, std::uint32_t customer);
  void end(std::uint32_t key);
  void age();
  void note_acknowledged();
  bool uses(std::uint32_t grant) const {
    return std::ranges::any_of(
        connections, [grant](const auto& one) { return one.second.port / kPortsOfGrant == grant; });
  }

 private:
  std::optional<std::uint32_t> free_port(std::uint32_t customer);

  World& world_;
  Member member_;
  unsigned shard_;
  std::set<std::uint32_t> stale_;
  std::set<std::uint32_t> changed_;                     // keys to be told
  std::vector<std::pair<std::uint64_t, Record>> told_;  // by number
  std::vector<std::pair<int, Record>> late_;            // `acknowledged_early`

 public:
  ShardCopy core;
  std::map<std::uint32_t, Connection> connections;  // by key
  std::map<std::uint32_t, int> rests_until;         // by port: after its last use
  std::set<std::uint32_t> own;                      // opened as a slave, and not told back yet
  std::set<std::uint32_t> grants;
};

struct Server {
  Member member = Member::none;
  bool is_up = true;
  int stopped_until = 0;
  std::vector<std::unique_ptr<Copy>> copies;  // by shard; null: never assigned
};

struct GrantRecord {
  Member holder = Member::none;
  int rests_until = 0;
};
struct ShardRecord {
  Epoch epoch = 0;
  Member master = Member::none;
  Member slave = Member::none;
  bool is_in_sync = false;  // as the master has reported in this epoch
  std::array<GrantRecord, kGrants> grants;
};

class World final : public ShardCopy::Outbox {
 public:
  World(std::uint64_t seed, Mistake planted) : random(seed), mistake(planted) {
    for (unsigned n = 0; n < kServers; ++n) start(n);
  }

  /// Returns what went wrong; empty if nothing did.
  std::string run(int ticks) {
    for (const int until = now + ticks; now < until && wrong.empty(); ++now) step(true);
    heal();
    for (const int until = now + 20'000; now < until && wrong.empty(); ++now) step(false);
    for (unsigned shard = 0; shard < kShards && wrong.empty(); ++shard) {
      const ShardRecord& record = store[shard];
      const Copy* const master = copy_of(record.master, shard);
      const Copy* const slave = copy_of(record.slave, shard);
      if (master == nullptr || slave == nullptr || !master->core.is_in_sync() ||
          !slave->core.is_in_sync())
        fail("shard " + std::to_string(shard) + " has no two copies in sync at the end");
    }
    return wrong;
  }

  void send(Member to, const MessageHead& head, std::span<const std::byte> payload) override {
    const unsigned copies = chance(5) ? 0 : chance(2) ? 2 : 1;
    for (unsigned n = 0; n < copies; ++n) {
      Sent sent{.from = sender, .to = to, .bytes = {}};
      const auto head_bytes = std::as_bytes(std::span(&head, 1));
      sent.bytes.assign(head_bytes.begin(), head_bytes.end());
      sent.bytes.insert(sent.bytes.end(), payload.begin(), payload.end());
      const unsigned takes = 1 + below(8) * (chance(3) ? 20 : 1);
      on_the_way.emplace(now + static_cast<int>(takes), std::move(sent));
    }
  }

  void fail(const std::string& what) {
    if (wrong.empty()) wrong = what + " (tick " + std::to_string(now) + ")";
  }
  unsigned below(unsigned most) { return static_cast<unsigned>(random() % most); }
  bool chance(unsigned percent) { return below(100) < percent; }
  Tick tick() const { return {static_cast<std::uint32_t>(now)}; }

  std::mt19937_64 random;
  Mistake mistake;
  int now = 1;
  std::string wrong;
  Member sender = Member::none;
  Epoch delivering = 0;  // the epoch of the message that is being delivered
  // Connections of a shard that a member has acknowledged in an epoch, and must not lose.
  std::map<std::tuple<unsigned, Member, Epoch>, std::set<std::uint32_t>> kept;
  std::uint64_t served = 0;
  std::uint64_t promotions = 0;

 private:
  struct Sent {
    Member from;
    Member to;
    std::vector<std::byte> bytes;
  };
  struct Use {
    std::uint32_t customer = 0;
    int at = -1'000'000;
  };

  void start(unsigned n) {
    servers[n] = Server{};
    servers[n].member = Member{++members};
    servers[n].copies.resize(kShards);
    is_server_of[servers[n].member] = n;
    // The predecessor is gone for sure: what it had, the masters get: they have its connections.
    for (unsigned shard = 0; shard < kShards; ++shard) {
      for (GrantRecord& grant : store[shard].grants) {
        if (grant.holder != Member::none && grant.holder != servers[n].member &&
            is_server_of[grant.holder] == n)
          give_back(shard, grant);
      }
    }
  }

  /// A grant leaves its holder's hands for those of the master; else it rests.
  void give_back(unsigned shard, GrantRecord& grant) {
    const Member master = store[shard].master;
    const bool goes_to_master = master != Member::none && master != grant.holder &&
                                servers[is_server_of[master]].member == master;
    grant.holder = goes_to_master ? master : Member::none;
    grant.rests_until = now + kRest;
  }

  Copy* copy_of(Member member, unsigned shard) {
    if (member == Member::none) return nullptr;
    Server& server = servers[is_server_of[member]];
    return server.member == member && server.is_up ? server.copies[shard].get() : nullptr;
  }
  bool runs(unsigned n) const { return servers[n].is_up && servers[n].stopped_until <= now; }
  bool is_cut(unsigned part, unsigned other) const {
    const auto cut = cuts.find(std::minmax(part, other));
    return cut != cuts.end() && cut->second > now;
  }
  bool reaches_store(unsigned n) const { return runs(n) && !is_cut(n, kStore); }

  void heal() {
    cuts.clear();
    for (unsigned n = 0; n < kServers; ++n) {
      servers[n].stopped_until = 0;
      if (!servers[n].is_up) start(n);
    }
  }

  void step(bool with_faults) {
    if (with_faults) fault();
    deliver();
    for (unsigned n = 0; n < kServers; ++n) {
      if ((now + static_cast<int>(n)) % 10 == 0) follow_store(n);
    }
    if (now % 10 == 5) manage(with_faults);
    route();
    packets();
    for (unsigned n = 0; n < kServers; ++n) {
      if (!runs(n)) continue;
      for (const auto& copy : servers[n].copies) {
        if (copy == nullptr) continue;
        copy->age();
        sender = servers[n].member;
        copy->core.send(*this, tick());
        copy->note_acknowledged();
      }
    }
  }

  void fault() {
    if (below(400) != 0) return;
    const unsigned n = below(kServers);
    const int until = now + static_cast<int>(below(chance(30) ? 3000 : 400));
    switch (below(4)) {
      case 0:
        servers[n].is_up = false;
        servers[n].copies.clear();
        servers[n].copies.resize(kShards);
        servers[n].stopped_until = until;
        return;
      case 1:
        servers[n].stopped_until = until;
        return;
      default: {
        const unsigned other = below(kServers + kSwitches + 1);
        if (other != n) cuts[std::minmax(n, other)] = until;
      }
    }
  }

  void deliver() {
    for (auto at = on_the_way.begin(); at != on_the_way.end() && at->first <= now;) {
      const unsigned n = is_server_of[at->second.to];
      if (servers[n].is_up && servers[n].stopped_until > now) {  // waits in the socket
        ++at;
        continue;
      }
      const Sent sent = std::move(at->second);
      at = on_the_way.erase(at);
      const unsigned from = is_server_of[sent.from];
      if (servers[n].member != sent.to || !servers[n].is_up || is_cut(n, from)) continue;
      receive(n, sent);
    }
    for (unsigned n = 0; n < kServers; ++n) {
      if (!servers[n].is_up && servers[n].stopped_until <= now) start(n);
    }
  }

  void receive(unsigned n, const Sent& sent) {
    std::span<const std::byte> left = sent.bytes;
    const auto taken = take_message(left);
    if (!taken || !left.empty()) return fail("a message cannot be read");
    Message message = *taken;
    const auto& copy = servers[n].copies[message.head.shard];
    if (copy == nullptr) return;
    Member from = sent.from;
    delivering = message.head.epoch;
    if (mistake == Mistake::epoch_unchecked && delivering < copy->core.epoch()) {
      message.head.epoch = copy->core.epoch();
      from = copy->core.other();
    }
    copy->core.receive(from, message, tick());
    copy->note_acknowledged();
  }

  /// The agent of a server reads assignments, hands grants on, and reports.
  void follow_store(unsigned n) {
    if (!reaches_store(n) || chance(20)) return;
    Server& server = servers[n];
    lease[server.member] = now;
    for (unsigned shard = 0; shard < kShards; ++shard) {
      ShardRecord& record = store[shard];
      const bool is_master = record.master == server.member;
      const bool is_slave = record.slave == server.member;
      auto& copy = server.copies[shard];
      if (copy == nullptr) {
        if (!is_master && !is_slave) continue;
        copy = std::make_unique<Copy>(*this, server.member, shard);
      }
      copy->assign({.epoch = record.epoch,
                    .role = is_master  ? CopyRole::master
                            : is_slave ? CopyRole::slave
                                       : CopyRole::none,
                    .other = is_master  ? record.slave
                             : is_slave ? record.master
                                        : Member::none});
      if (is_master) record.is_in_sync = copy->core.is_in_sync();
      const bool leaves = !is_master && !is_slave;
      for (unsigned g = 0; g < kGrants; ++g) {
        GrantRecord& grant = record.grants[g];
        if (grant.holder == server.member && leaves) {
          if (mistake != Mistake::grant_kept) {
            copy->core.withdraw(g);
            copy->grants.erase(g);
          }
          give_back(shard, grant);
        } else if (grant.holder == server.member) {
          if (copy->grants.insert(g).second) {
            for (unsigned p = 0; p < kPortsOfGrant; ++p)
              copy->rests_until[g * kPortsOfGrant + p] = now + kRest;
          }
          copy->core.grant(g);
        }
      }
      if (leaves && mistake != Mistake::grant_kept) copy.reset();
    }
  }

  /// The manager assigns shards to the members that are not lost, and gives grants.
  void manage(bool moves) {
    const auto is_lost = [this](Member member) {
      return member == Member::none || lease[member] + kLease < now;
    };
    for (unsigned shard = 0; shard < kShards; ++shard) {
      ShardRecord& record = store[shard];
      const auto other_than = [&](Member taken) {
        const Member found = servers[below(kServers)].member;
        return found == taken || is_lost(found) ? Member::none : found;
      };
      const bool had_both = record.is_in_sync;
      if (is_lost(record.master)) {
        if (!is_lost(record.slave) && had_both) {
          assign(record, record.slave, Member::none);
        } else if (record.master == Member::none || lease[record.master] + 3000 < now) {
          const Member found = other_than(Member::none);
          if (found != Member::none) assign(record, found, Member::none);
        }
      } else if (record.slave == Member::none || (is_lost(record.slave) && chance(20))) {
        const Member found = other_than(record.master);
        if (found != record.slave) assign(record, record.master, found);
      } else if (moves && had_both && below(300) == 0) {
        assign(record, record.slave, record.master);
      } else if (moves && below(1000) == 0) {
        assign(record, record.master, Member::none);
      }
      for (const Member holder : {record.master, record.slave}) {
        if (is_lost(holder)) continue;
        const Copy* const copy = copy_of(holder, shard);
        const auto unused = std::ranges::count_if(record.grants, [&](const GrantRecord& grant) {
          const auto g = static_cast<std::uint32_t>(&grant - record.grants.data());
          return grant.holder == holder && (copy == nullptr || !copy->uses(g));
        });
        for (GrantRecord& grant : record.grants) {
          if (unused >= kWanted) break;
          if (grant.holder != Member::none || grant.rests_until > now) continue;
          grant.holder = holder;
          break;
        }
      }
    }
  }
  void assign(ShardRecord& record, Member master, Member slave) {
    promotions += record.master != master ? 1 : 0;
    record.epoch += 1;
    record.master = master;
    record.slave = slave;
    record.is_in_sync = false;
  }

  /// Each switch prefers a master's announcement to a slave's, and notices changes late.
  void route() {
    for (unsigned at = 0; at < kSwitches; ++at) {
      for (unsigned shard = 0; shard < kShards; ++shard) {
        if (below(30) != 0) continue;
        int best = 0;
        way[at][shard] = kServers;
        for (unsigned n = 0; n < kServers; ++n) {
          const Copy* const copy = runs(n) ? servers[n].copies[shard].get() : nullptr;
          if (copy == nullptr || is_cut(n, kSwitch) || is_cut(n, kSwitch + 1)) continue;
          const int preference = copy->core.role() == CopyRole::master ? 2
                                 : copy->core.role() == CopyRole::slave && copy->core.is_in_sync()
                                     ? 1
                                     : 0;
          if (preference > best || (preference == best && best > 0 && chance(50))) {
            best = preference;
            way[at][shard] = n;
          }
        }
      }
    }
  }

  Copy* copy_on_way(unsigned at, unsigned shard) {
    const unsigned n = way[at][shard];
    if (n >= kServers || !runs(n) || is_cut(n, kSwitch + at)) return nullptr;
    Copy* const copy = servers[n].copies[shard].get();
    return copy != nullptr && copy->core.role() != CopyRole::none ? copy : nullptr;
  }

  void packets() {
    const unsigned shard = below(kShards);
    const std::uint32_t customer = below(kCustomers);
    auto& keys = alive[shard][customer];
    if (keys.size() < 3 || (keys.size() < 6 && chance(2))) keys.push_back(++last_key);
    const std::size_t which = below(static_cast<unsigned>(keys.size()));
    Copy* const copy = copy_on_way(0, shard);
    if (copy != nullptr) {
      const auto port = copy->serve(keys[which], customer);
      if (port) use(shard, *port, customer);
    }
    if (copy != nullptr && below(100) == 0) {  // the customer closes it, or falls silent
      if (copy->core.role() == CopyRole::master && chance(50)) copy->end(keys[which]);
      keys.erase(keys.begin() + static_cast<std::ptrdiff_t>(which));
    }
    Copy* const inbound = copy_on_way(1, shard);
    if (inbound == nullptr || inbound->connections.empty()) return;
    const std::uint32_t port = below(kGrants * kPortsOfGrant);
    for (const auto& [key, connection] : inbound->connections) {
      if (connection.port == port) use(shard, port, connection.customer);
    }
  }

  void use(unsigned shard, std::uint32_t port, std::uint32_t customer) {
    ++served;
    Use& last = uses[shard][port];
    if (last.customer != customer && now - last.at < kLeast)
      fail("port " + std::to_string(port) + " of shard " + std::to_string(shard) +
           " has two customers");
    last = {customer, now};
  }

  static constexpr unsigned kSwitch = kServers;
  static constexpr unsigned kStore = kServers + kSwitches;

  std::uint64_t members = 0;
  std::array<Server, kServers> servers;
  std::map<Member, unsigned> is_server_of;
  std::array<ShardRecord, kShards> store;
  std::map<Member, int> lease;
  std::map<std::pair<unsigned, unsigned>, int> cuts;
  std::multimap<int, Sent> on_the_way;
  std::array<std::array<unsigned, kShards>, kSwitches> way{};
  std::array<std::array<std::vector<std::uint32_t>, kCustomers>, kShards> alive;  // keys
  std::uint32_t last_key = 0;
  std::array<std::map<std::uint32_t, Use>, kShards> uses;  // by port
};

}  // namespace millrace::test
