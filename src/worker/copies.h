// Copies of connections at other servers, as far as all workers of this one have it in common:
// which server has which copy of which shard (`Placement`), which servers are heard, and counters.
// WorkersCopies (workers_copies.h) is one worker's part.
//
// The two servers of a pair make the placement among themselves (replicate/pair.h): each has a copy
// of every shard. The servers of a cluster are told it by their agents.
//
// Any thread may call.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/counter.h"
#include "line/carried.h"
#include "millrace/types.h"
#include "replicate/copy.h"
#include "replicate/pair.h"
#include "replicate/seal.h"
#include "shard/owners.h"
#include "worker/placement.h"

namespace millrace {

/// Counters of copies. Each worker has its own.
struct alignas(64) CopiesCounters {
  Counter datagrams_in;  ///< from other servers, opened
  Counter datagrams_out;
  Counter not_sent;     ///< datagrams for which there was no memory, or no way
  Counter deferred;     ///< packets that have waited for the other copy, ...
  Counter sent_early;   ///< packets that may have left before it had their connection
  Counter hops_in;      ///< packets that other servers have sent here
  Counter hops_out;     ///< packets sent to other servers
  Counter hops_lost;    ///< packets that could not be sent, or for which there was no memory here
  Counter applied;      ///< records of other servers
  Counter other_epoch;  ///< messages of an older or a newer assignment
  /// Connections of other servers that found no place here, or that need a function which this
  /// process does not have.
  Counter no_place;
  Counter malformed;    ///< messages or records that mean nothing
  Counter stranger;     ///< messages of a process that has no copy
  Counter disagreeing;  ///< datagrams of a process whose records cannot be read here
  Counter anew;      ///< times that a shard was told anew, as the other server was too far behind
  Counter foreign;   ///< datagrams that no server with the same key has sealed
  Counter misled;    ///< datagrams that were sealed for another process
  Counter replayed;  ///< datagrams that came before
  Counter version;   ///< datagrams of another version
};

/// Names of the counters in statistics.
struct CopiesCounterKind {
  const char* name;
  Counter CopiesCounters::* counter;
};
inline constexpr std::array kCopiesCounterKinds{
    CopiesCounterKind{"datagrams_in", &CopiesCounters::datagrams_in},
    CopiesCounterKind{"datagrams_out", &CopiesCounters::datagrams_out},
    CopiesCounterKind{"not_sent", &CopiesCounters::not_sent},
    CopiesCounterKind{"deferred", &CopiesCounters::deferred},
    CopiesCounterKind{"sent_early", &CopiesCounters::sent_early},
    CopiesCounterKind{"hops_in", &CopiesCounters::hops_in},
    CopiesCounterKind{"hops_out", &CopiesCounters::hops_out},
    CopiesCounterKind{"hops_lost", &CopiesCounters::hops_lost},
    CopiesCounterKind{"applied", &CopiesCounters::applied},
    CopiesCounterKind{"no_place", &CopiesCounters::no_place},
    CopiesCounterKind{"anew", &CopiesCounters::anew},
    CopiesCounterKind{"other_epoch", &CopiesCounters::other_epoch},
    CopiesCounterKind{"stranger", &CopiesCounters::stranger},
    CopiesCounterKind{"disagreeing", &CopiesCounters::disagreeing},
    CopiesCounterKind{"malformed", &CopiesCounters::malformed},
    CopiesCounterKind{"foreign", &CopiesCounters::foreign},
    CopiesCounterKind{"misled", &CopiesCounters::misled},
    CopiesCounterKind{"replayed", &CopiesCounters::replayed},
    CopiesCounterKind{"version", &CopiesCounters::version}};

class Copies {
 public:
  /// Milliseconds without a datagram after which packets do not hop to a server of a cluster, ...
  static constexpr std::uint64_t kSilentMs = 150;
  /// ... and between two hellos: so many that an overload, in which half of all packets are lost,
  /// silences nobody.
  static constexpr std::int32_t kHello = 10;

  /// Returns the secret by which connections are spread over shards, which all servers must share.
  /// Errors (failed): the library for encryption does not work.
  static Result<Secret> spread_secret(const ClusterKey& key);
  struct Settings {
    unsigned number = 1;  ///< this server's
    ClusterKey key{};
    /// Ends of datagrams to the other server of a pair; in a cluster to no address.
    AnyKey ends;
    bool is_cluster = false;
    std::int32_t defer_ms = 0;  ///< for which packets wait at most; 0: they do not
    Secret spread{};            ///< `spread_secret`; in a cluster
    /// @name Of a pair
    /// @{
    bool is_active = false;    ///< at first
    bool has_settled = false;  ///< the process from which this one takes over had
    bool is_sure = false;      ///< `PairSettings::is_sure`
    /// @}
  };
  Copies(const Settings& settings, unsigned workers, std::shared_ptr<const Owners> owners);

  unsigned number() const { return settings_.number; }
  bool is_cluster() const { return settings_.is_cluster; }
  /// This process, for other servers.
  Member self() const { return self_; }
  /// Returns the ends of datagrams that come to this server from any address.
  const AnyKey& ends() const { return settings_.ends; }
  std::int32_t defer_ms() const { return settings_.defer_ms; }
  unsigned shards() const { return owners_->shards(); }
  /// Returns the digest of what all servers must have in common besides the layout of records.
  std::uint32_t agreement() const { return agreement_.load(std::memory_order_relaxed); }
  /// Sets that, by what the function and the ports say of their settings, and whether the function
  /// gives ports by grants (`FunctionFacts::needs_grants`).
  void set_settings(std::string_view settings, bool needs_grants);
  /// Sets the layout of this process's records (`Line::carried_parts`), before workers run.
  void set_layout(std::vector<CarriedPart> parts);
  /// True if the shard's copy here was in sync when it was looked at last.
  bool is_in_sync(unsigned shard) const {
    return in_sync_[shard].load(std::memory_order_relaxed) != 0;
  }
  unsigned shards_in_sync() const;
  /// True if no other server can have a connection that has ended here, but for a second at most.
  bool is_sure() const;
  /// Returns the sum over all workers so far of the counter.
  std::uint64_t count(Counter CopiesCounters::* counter) const;
  /// Returns how many packets of a shard were served here so far. Only in a cluster.
  std::uint64_t packets_of(unsigned shard) const;

  std::shared_ptr<const Placement> placement() const;
  /// Returns a number that changes whenever the placement does.
  std::uint64_t changes() const { return changes_.load(std::memory_order_acquire); }
  /// True if all workers follow the placement, and have no connection left of shards that have no
  /// copy here.
  bool is_followed() const;
  /// True if the process said hello within `kSilentMs`, that of a pair within `Pair::kSilent`.
  /// `hears`: and packets can hop there.
  bool has_heard(const Peer& peer) const;
  bool hears(const Peer& peer) const {
    return has_heard(peer) && peer.state->spreads_alike.load(std::memory_order_relaxed);
  }

  /// @name Of a pair
  /// @{
  void set_active(bool is_active);
  bool is_active() const { return is_active_.load(std::memory_order_acquire); }
  /// Does what `Pair::set_gone` does.
  bool set_gone();
  struct Status {
    Assignment assignment;
    bool is_active = false;
    bool is_in_sync = false;
    bool has_settled = false;
    bool hears_other = false;
    std::optional<Hello> other;    ///< its latest hello
    bool has_same_layout = false;  ///< the other server's records are laid out like those here
    std::string disagreement;      ///< why nothing is copied; empty: nothing differs
  };
  Status status() const;
  /// @}

  /// @name Of a cluster
  /// @{
  /// Returns the ends of datagrams to that address; none if it is not of the family of this
  /// server's own.
  std::optional<AnyKey> ends_to(const AnyAddress& address) const;
  /// Facts about another server by its hellos.
  struct Heard {
    /// Its records are laid out like those here, as it has the same functions; none: it was never
    /// heard.
    std::optional<bool> has_same_layout;
    std::string disagreement;  ///< why nothing is copied; empty: nothing differs
  };
  Heard heard_of(const Peer& peer) const;
  /// Makes the placement the one that workers follow. States of peers that stay are kept. A shard
  /// with epoch 0 has no copy here. A copy that was given up begins anew only in a newer epoch.
  /// Returns false, and changes nothing, if a shard's epoch goes back, or if this process has
  /// another part in an epoch than before.
  bool follow(Placement placement);
  /// Bytes of the largest frame that can hop: set before packets come.
  std::size_t most_hop() const { return most_hop_; }
  void set_most_hop(std::size_t bytes) { most_hop_ = bytes; }
  /// The ports that this server may give. Null in a pair.
  const std::shared_ptr<Grants>& grants() const { return grants_; }
  /// Number of grants of a shard that each copy should have.
  unsigned wanted() const {
    return needs_grants_.load(std::memory_order_relaxed) ? Grants::kOfShard / 2 : 0;
  }
  /// True if the copy of a shard here could give customers few ports as its master: most rest, or
  /// are with others.
  bool lacks_ports(unsigned shard) const { return grants_ && 2 * grants_->ready(shard) < wanted(); }
  /// True if the copy of a shard here is a slave that has refused connections.
  bool lacks_connections(unsigned shard) const {
    return lacks_connections_[shard].load(std::memory_order_relaxed);
  }
  /// Returns the grants of a shard that the store may give to another server by now.
  Grants::Bits handed_back(unsigned shard) const {
    return handed_back_[shard].load(std::memory_order_relaxed);
  }
  /// @}

 private:
  friend class WorkersCopies;
  struct alignas(64) OfWorker {
    std::atomic<std::uint64_t> followed = 0;  ///< `changes` of the placement that it follows
    std::atomic<std::uint64_t> alive_ms = 0;  ///< when it was last between two bursts
    std::vector<Counter> packets;             ///< served, for each shard
    CopiesCounters counters;
  };

  std::uint64_t now_ms() const;
  Pair::Ms now() const { return static_cast<Pair::Ms>(now_ms()); }
  /// Does something with the pair, and notes what has changed.
  template <class Act>
  auto with_pair(Act&& act);
  void place_pair();
  void tick();  ///< lets time pass for the pair
  void place(Placement placement);
  struct Greeting {
    std::vector<std::byte> payload;
    Epoch epoch = 0;
  };
  Greeting hello() const;
  void hear(Member from, Epoch epoch, const ToldHello& told, const Peer* peer);
  const std::string& unreadable(const ToldHello& told, Peer::State& of);
  Peer::State& state_in_pair(Member of);
  void note_in_sync();
  bool are_all_alive() const;

  Settings settings_;
  Member self_;
  std::shared_ptr<const Owners> owners_;
  std::chrono::steady_clock::time_point start_;
  std::atomic<std::uint32_t> agreement_ = 0;
  std::atomic<bool> needs_grants_ = false;
  std::vector<CarriedPart> parts_;  // the layout of records here
  std::uint32_t layout_ = 0;        // its digest
  mutable std::mutex mutex_;
  Pair pair_;      // of a pair
  Peer newcomer_;  // of a pair: the process that has said hello last, if it is not in `placement_`
  std::shared_ptr<const Placement> placement_;
  std::atomic<bool> is_active_;
  std::atomic<std::uint64_t> changes_ = 0;
  std::atomic<std::uint64_t> greeted_ = 0;  // the process of a server that has asked who is there
  std::size_t most_hop_ = 0;
  std::shared_ptr<Grants> grants_;
  std::vector<std::atomic<Grants::Bits>> handed_back_;  // by shard
  std::vector<std::atomic<bool>> lacks_connections_;    // by shard
  std::vector<std::atomic<Epoch>> in_sync_;  // for each shard: the epoch in which it is; 0: none
  std::vector<OfWorker> workers_;
};

}  // namespace millrace
