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
  reused_early,        // a port goes to another customer though another server may use it
  handed_back_early,   // a grant is handed back before the slave knows the connections that use it
};

constexpr unsigned kServers = 4;
constexpr unsigned kShards = 2;
constexpr unsigned kSwitches = 2;  // towards customers, towards the internet
constexpr unsigned kCustomers = 4;
constexpr unsigned kGrants = 24;       // of a shard
constexpr unsigned kPortsOfGrant = 4;  // all of one customer
constexpr unsigned kWanted = 3;        // grants that a copy should have unused
constexpr unsigned kMost = 8;          // grants that a master keeps
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
struct ShardRecord;

/// The copy of a shard at one process, with the connections of a simulated worker.
class Copy final : public ShardCopy::Records {
 public:
  Copy(World& world, Member member, unsigned shard)
      : world_(world), member_(member), shard_(shard), core(shard, *this) {}

  bool tell(ShardCopy& copy, Tick now) override;
  void tell_all() override;
  void tell_unproved() override {}  // all are told anyway
  void goes_on() override {}
  void begin_all() override {
    stale_.clear();
    for (const auto& [key, connection] : connections) stale_.insert(key);
  }
  void end_all() override {
    for (const std::uint32_t key : std::exchange(stale_, {})) end(key);
  }
  Applied apply(std::span<const std::byte> bytes) override;

  void assign(const Assignment& to);
  /// Serves a packet of a customer. Returns the public port, none if it is dropped.
  std::optional<std::uint32_t> serve(std::uint32_t key, std::uint32_t customer);
  void end(std::uint32_t key);
  void age();
  void note_acknowledged();
  void get(std::uint32_t grant);
  void hand_back(ShardRecord& record);
  bool uses(std::uint32_t grant) const {
    return std::ranges::any_of(
        connections, [grant](const auto& one) { return one.second.port / kPortsOfGrant == grant; });
  }

 private:
  std::optional<std::uint32_t> free_port(std::uint32_t customer);
  bool is_free(std::uint32_t port, std::uint32_t customer);

  World& world_;
  Member member_;
  unsigned shard_;
  std::set<std::uint32_t> stale_;
  std::set<std::uint32_t> changed_;  // keys to be told
  // For each port, the records that tell the ends of its connections; none: they are still to be
  // told.
  std::map<std::uint32_t, std::map<std::uint32_t, std::optional<std::uint64_t>>> leaving_;
  std::map<std::uint32_t, std::uint32_t> last_customer_;  // by port
  int unsure_at_ =
      0;  // the last tick at which others may have had connections that are unknown here
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
  bool waits = false;  // for the next master: nobody has it, and connections may use its ports
};
struct ShardRecord {
  Epoch epoch = 0;
  Member master = Member::none;
  Member slave = Member::none;
  std::set<Member> unsettled;  // had a role, and may not know that they have it no more
  bool is_in_sync = false;     // as the master has reported in this epoch
  std::array<GrantRecord, kGrants> grants;
};

class World final : public ShardCopy::Outbox {
 public:
  World(std::uint64_t seed, Mistake planted) : random(seed), mistake(planted) {
    for (unsigned n = 0; n < kServers; ++n) start(n);
  }

  /// Returns what went wrong; empty if nothing did.
  std::string run(int ticks);

  void send(Member to, const MessageHead& head, std::span<const std::byte> payload) override;

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

  void start(unsigned n);

  /// A grant leaves its holder's hands for those of the master, or waits for the next one.
  void give_back(unsigned shard, GrantRecord& grant);

  Copy* copy_of(Member member, unsigned shard) {
    if (member == Member::none) return nullptr;
    Server& server = servers_[is_server_of_[member]];
    return server.member == member && server.is_up ? server.copies[shard].get() : nullptr;
  }
  bool runs(unsigned n) const { return servers_[n].is_up && servers_[n].stopped_until <= now; }
  bool is_cut(unsigned part, unsigned other) const {
    const auto cut = cuts_.find(std::minmax(part, other));
    return cut != cuts_.end() && cut->second > now;
  }
  bool reaches_store(unsigned n) const { return runs(n) && !is_cut(n, kStore); }

  void heal();

  void step(bool with_faults);

  void fault();

  void deliver();

  void receive(unsigned n, const Sent& sent);

  /// The agent of a server reads assignments, hands grants on, and reports.
  void follow_store(unsigned n);

  void judge_new_holder(unsigned shard, const Copy& slave, std::uint32_t grant);

  /// The manager assigns shards to the members that are not lost, and gives grants.
  void manage(bool moves);
  void assign(ShardRecord& record, Member master, Member slave);

  /// Each switch prefers a master's announcement to a slave's, and notices changes late.
  void route();

  Copy* copy_on_way(unsigned at, unsigned shard) {
    const unsigned n = way_[at][shard];
    if (n >= kServers || !runs(n) || is_cut(n, kSwitch + at)) return nullptr;
    Copy* const copy = servers_[n].copies[shard].get();
    return copy != nullptr && copy->core.role() != CopyRole::none ? copy : nullptr;
  }

  void packets();

  void use(unsigned shard, std::uint32_t port, std::uint32_t customer);

  static constexpr unsigned kSwitch = kServers;
  static constexpr unsigned kStore = kServers + kSwitches;

  std::uint64_t members_ = 0;
  std::array<Server, kServers> servers_;
  std::map<Member, unsigned> is_server_of_;
  std::array<ShardRecord, kShards> store_;
  std::map<Member, int> lease_;
  std::map<std::pair<unsigned, unsigned>, int> cuts_;
  std::multimap<int, Sent> on_the_way_;
  std::array<std::array<unsigned, kShards>, kSwitches> way_{};
  std::array<std::array<std::vector<std::uint32_t>, kCustomers>, kShards> alive_;  // keys
  std::uint32_t last_key_ = 0;
  std::array<std::map<std::uint32_t, Use>, kShards> uses_;  // by port
};

}  // namespace millrace::test
