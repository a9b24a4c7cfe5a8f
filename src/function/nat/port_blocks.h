// The public ports of customers. Pools' ports are divided into blocks. A customer has some blocks
// of one public address (paired pooling, RFC 4787, REQ-2), and mappings in them.
//
// All workers share the blocks. A block's customer is an atomic, so any worker may ask for it at
// any time (`customer_at`). All else of a customer is under the lock of his bucket, which workers
// take for some 100 ns when a session begins or ends; as a customer's sessions have one worker,
// it is hardly ever contended. Without the lock, `prefetch` reads what is `Relaxed`, as hints.
//
// A block without mappings stays with its customer, to be used again at once. Another customer
// may have it after `kRestMs` (RFC 6888, REQ-8). A block's first mapping of a protocol gets it a
// table of mappings (table_memory.h), which it has until its customer changes.
//
// The pools of a configuration are one object. `changed_to` makes another one for other pools,
// around the same memory (block_store.h): first all workers change to it, then its `replace` takes
// their blocks from customers that may have them no longer. Meanwhile, workers with either
// object share the blocks. A block that a customer loses is his until his sessions have ended, and
// then nobody's until it has rested. If its ports are in other blocks by then, nobody has these
// blocks meanwhile.
//
// Nothing here allocates memory, blocks for long or throws, except `create`, `changed_to` and
// `replace`; but the first use of a table may wait for the kernel's pages (table_memory.h).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/prefix_table.h"
#include "core/verdict.h"
#include "function/nat/block_events.h"
#include "function/nat/block_store.h"
#include "function/nat/gone_forwards.h"
#include "function/nat/mappings.h"
#include "function/nat/settings.h"
#include "millrace/hash.h"
#include "millrace/types.h"

namespace millrace {

struct EndpointV4 {
  AddressV4 address;
  std::uint16_t port = 0;  ///< or the identifier of an ICMP query; 0 for protocols without ports

  friend bool operator==(const EndpointV4&, const EndpointV4&) = default;
};
inline EndpointV4 source_of(const KeyV4& key) { return {key.source, key.source_port}; }
inline EndpointV4 destination_of(const KeyV4& key) {
  return {key.destination, key.destination_port};
}

/// A public port that a session uses. Six bytes, as each session keeps one.
class PortRef {
 public:
  static constexpr std::uint16_t kNoPort = 0xffff;

  PortRef() = default;  ///< no port
  PortRef(std::uint32_t block, std::uint16_t offset)
      : block_{static_cast<std::uint16_t>(block), static_cast<std::uint16_t>(block >> 16)},
        offset_(offset) {}

  bool is_there() const { return block() != kNoBlock; }
  std::uint32_t block() const { return block_[0] | std::uint32_t{block_[1]} << 16; }
  /// Returns the port's place in its block; `kNoPort` if the protocol has no ports.
  std::uint16_t offset() const { return offset_; }

 private:
  static constexpr std::uint32_t kNoBlock = 0xffffffff;

  std::array<std::uint16_t, 2> block_{0xffff, 0xffff};
  std::uint16_t offset_ = kNoPort;
};
static_assert(sizeof(PortRef) == 6);

/// Numbers of one pool.
struct PoolUse {
  std::uint64_t addresses = 0;
  std::uint64_t blocks = 0;   ///< that there are
  std::uint64_t held = 0;     ///< blocks that customers have, also those without mappings
  std::uint64_t resting = 0;  ///< blocks without mappings among them
  /// Blocks in use that this server gives; all of them, if there is no other server.
  std::uint64_t given_in_use = 0;
  std::uint64_t customers = 0;  ///< with at least one session
  std::uint64_t sessions = 0;
  std::uint64_t mappings = 0;
  std::uint64_t most_held = 0;   ///< high-water mark of `held`
  std::uint64_t no_port = 0;     ///< sessions refused: no port or no block was free
  std::uint64_t over_limit = 0;  ///< sessions refused: their customer has as many as he may have
  std::uint64_t no_record = 0;   ///< sessions refused: the log cannot record the block they need
  /// True once customers use 90 % of the blocks, until they use less than 80 %. A deterministic
  /// pool has a part for each customer, and is never nearly empty.
  bool is_nearly_empty = false;

  std::uint64_t in_use() const { return held - std::min(held, resting); }  ///< blocks
};

/// How near a customer is to the limits of his pool.
struct NearLimit {
  CustomerNumber customer = 0;
  std::uint32_t blocks = 0;
  std::uint64_t ports = 0;  ///< mappings of the protocol that has the most
  std::uint32_t sessions = 0;
  std::uint32_t percent = 0;  ///< used: sessions, or ports of all the blocks that he may have
};

/// A block that a customer has.
struct HeldBlock {
  std::shared_ptr<const std::string> pool;  ///< the name
  AddressV4 address;
  std::uint16_t first_port = 0;
  std::uint16_t last_port = 0;
  std::uint64_t mappings = 0;
  std::uint32_t sessions = 0;  ///< the customer's, in all of his blocks of the pool
};

class PortBlocks {
 public:
  static constexpr std::uint32_t kRestMs = BlockStore::kRestMs;
  static constexpr std::size_t kMostBlocks = BlockStore::kMostBlocks;
  static constexpr std::size_t kMostPools = BlockStore::kMostExtents;

  /// There are at most `kMostPools`, with at most `kMostBlocks` blocks. Error (failed): no address
  /// space.
  static Result<std::unique_ptr<PortBlocks>> create(std::span<const NatPool> pools,
                                                    Secret secret = Secret::random(),
                                                    const Share& share = {});
  PortBlocks(const PortBlocks&) = delete;
  PortBlocks& operator=(const PortBlocks&) = delete;

  /// Notes what is known of the other server, if there is one. Any worker, with its tick.
  void note_copies(const CopiesState& state, Tick now) { store_->note_copies(state, now); }
  /// True if customers may get blocks, as of the last `note_copies`.
  bool may_give() const { return store_->may_give(); }

  /// Returns the memory of these blocks, and of all that are made from them.
  std::shared_ptr<const BlockStore> store() const { return store_; }

  /// @name Other pools
  /// One thread at a time calls these, which no worker is.
  /// @{
  /// Makes the blocks of other pools, around the same memory. Pools are the same if they have the
  /// same name. The ends of forwards that are in `was`, and not in `is`, rest. Errors, which change
  /// nothing: too many blocks (usage), no address space (failed).
  Result<std::unique_ptr<PortBlocks>> changed_to(std::span<const NatPool> pools,
                                                 const NatForwards& was = {},
                                                 const NatForwards& is = {}) const;
  /// Replaces the object that has made this one, once no worker uses that one any more.
  /// `now`: no earlier than any worker's tick before it changed to this object.
  void replace(const PortBlocks& before, Tick now);
  /// True if a session of the customer may keep that port: by that pool, he may have its block.
  bool may_keep(const PortRef& ref, std::uint16_t pool, CustomerNumber customer) const {
    const PortBlock& is = blocks_[ref.block()];
    return is.customer.load(std::memory_order_relaxed) == customer && is.pool == pools_[pool].id;
  }
  /// @}

  /// True if customers belong to groups, each of which has addresses of its own.
  bool has_groups() const { return blocks_.groups() > 1; }
  unsigned group_of(const AddressV4& address) const { return blocks_.group_of(address); }
  unsigned group_of(CustomerNumber customer) const { return blocks_.group_of(customer); }
  /// Returns the group of a customer of that pool. It changes only if the pool becomes
  /// deterministic, or is not any more.
  unsigned group_of(CustomerNumber customer, std::uint16_t pool) const;
  /// True if the address is one of a pool's.
  bool has(const AddressV4& address) const { return prefixes_.find(address) != prefixes_.kNone; }
  /// Returns the customer of that public port; none if nobody has it.
  std::optional<CustomerNumber> customer_at(const EndpointV4& at) const;

  /// A session that begins.
  struct Wanted {
    EndpointV4 inside;
    EndpointV4 remote;
    CustomerNumber customer = 0;  ///< at `inside`
    std::uint8_t protocol = 0;
    std::uint16_t pool = 0;
    Tick now;
    std::uint32_t attempt = 0;              ///< number of earlier attempts, whose ports do not suit
    const NatForwards* forwards = nullptr;  ///< nobody gets their ends; null: there are none
  };
  struct Taken {
    PortRef ref;
    EndpointV4 outside;
  };
  static constexpr std::size_t kSoon = 64;
  /// Prefetches what `take` will need for these sessions, at most `kSoon`. Sets `likely[n]` to the
  /// public end that the session `soon[n]` is likely to get; its port is 0 if none can be foreseen.
  void prefetch(std::span<const Wanted> soon, std::span<EndpointV4> likely) const;
  /// Gives a session from inside its public port. It counts for its customer, and holds its mapping
  /// open, until `release`.
  /// Errors: `no_port`, `customer_limit`; `no_record`, if it takes a block that cannot be logged.
  std::expected<Taken, Verdict> take(const Wanted& wanted);
  /// Returns `no_port` or `customer_limit` if `take` would refuse the session, otherwise `tracked`.
  /// Ports that rest, or are a forward's, count as free.
  Verdict outlook(const Wanted& wanted) const;
  /// Does what `take` does, or without `holds` what `enter` does, for a session that has that
  /// public end already, and whose mapping has these ends. Error: `no_port`, if the public end is
  /// not free for this customer.
  std::expected<Taken, Verdict> take_again(const Wanted& wanted, const EndpointV4& outside,
                                           const MappedEnds& ends, bool holds);
  /// Returns the ends by which the mapping of a session from inside is known.
  MappedEnds ends_of(const Wanted& wanted) const { return ends_of(pools_[wanted.pool], wanted); }
  /// Returns the ends of the mapping that a session uses; empty if its protocol has no ports.
  MappedEnds ends_at(const PortRef& ref, std::uint8_t protocol) const;

  /// A packet from outside.
  struct Arrived {
    EndpointV4 outside;
    EndpointV4 remote;
    std::uint8_t protocol = 0;
    Tick now;
  };
  struct Inside {
    PortRef ref;
    EndpointV4 inside;
    CustomerNumber customer = 0;
  };
  /// Returns the inside endpoint that the packet is for; with `takes`, its session uses the port
  /// until `release`. Error: `no_mapping`, also if the pool's filtering forbids the packet, or no
  /// session holds the mapping open.
  std::expected<Inside, Verdict> enter(const Arrived& arrived, bool takes);
  /// Lets a session from outside count for its customer, and hold its mapping open, from now on.
  /// False, only with `is_limited`: the customer has as many sessions as he may have.
  bool hold(const PortRef& ref, std::uint8_t protocol, const AddressV4& remote, bool is_limited);
  /// Takes back what `hold` has done.
  void let_go(const PortRef& ref, std::uint8_t protocol, const AddressV4& remote);

  /// True if a mapping has that public end.
  bool is_mapped(const EndpointV4& outside, std::uint8_t protocol) const;

  /// Ends a session's use of a port. `holds`: it counts for its customer.
  void release(const PortRef& ref, std::uint8_t protocol, const AddressV4& remote, Tick now,
               bool holds = true);

  PoolUse use_of(std::size_t pool) const;
  /// Returns `PoolUse::is_nearly_empty`, without a look at each block as long as few are held.
  bool is_nearly_empty(std::size_t pool) const;
  /// Returns at most so many of the pool's customers: those nearest to a limit, the nearest first.
  std::vector<NearLimit> nearest_to_limit(std::size_t pool, std::size_t most) const;
  std::vector<HeldBlock> held_by(CustomerNumber customer) const;

  /// @name For the log (block_log.h)
  /// @{
  BlockEvents& events() const { return store_->events(); }
  /// Held while blocks are named that were taken from `events`.
  std::mutex& naming() const { return store_->naming(); }
  /// Returns a number that is greater than those of all blocks, also of those that pools had
  /// earlier.
  std::uint32_t end() const { return blocks_.end(); }
  /// Returns the pool and the ports of a block, also of one that a pool had earlier; none if there
  /// is no such block.
  std::optional<HeldBlock> block(std::uint32_t number) const;
  /// Returns the number of the block's customer; 0 if nobody has it, or it is never logged. All its
  /// earlier records are in `events`.
  std::uint32_t customer_of(std::uint32_t block) const;
  /// @}

 private:
  static constexpr std::uint32_t kNone = PortBlock::kNone;
  static constexpr std::uint32_t kNoRecord = 0xfffffffe;  // a block that cannot be logged
  static constexpr CustomerNumber kNobody = PortBlock::kNobody;
  static constexpr std::uint16_t kLost = PortBlock::kLost;

  using Block = PortBlock;
  using Bucket = BlockStore::Bucket;
  struct Guard : BriefLock {
    explicit Guard(Bucket& bucket) : BriefLock(bucket.is_locked) {}
  };
  /// Numbers that a pool keeps while it changes.
  struct Counts {
    explicit Counts(unsigned groups) : none_free_at(groups) {}

    std::atomic<std::uint32_t> swept = 0;     // address from which resting blocks are looked for
    std::atomic<std::uint32_t> swept_at = 0;  // tick behind that of the latest look; 0: none
    /// For each group: the value of `BlockStore::freed` when it was last found to have no free
    /// block; 0: never, as new blocks count.
    std::vector<std::atomic<std::uint64_t>> none_free_at;
    std::atomic<std::int64_t> held = 0;
    std::atomic<std::int64_t> most_held = 0;
    std::atomic<std::uint64_t> no_port = 0;
    std::atomic<std::uint64_t> over_limit = 0;
    std::atomic<std::uint64_t> no_record = 0;
    std::atomic<bool> is_nearly_empty = false;
  };
  struct Pool {
    NatPool is;
    std::uint16_t id = 0;                              // no other pool has it at the same time
    std::uint32_t per_address = 0;                     // blocks
    std::vector<std::uint32_t> addresses;              // first block of each
    std::vector<std::vector<std::uint32_t>> by_group;  // those of each group's addresses
    std::shared_ptr<Counts> counts;

    std::uint64_t blocks() const { return std::uint64_t{addresses.size()} * per_address; }
  };
  struct Place {
    std::uint32_t pool;
    std::uint32_t begin;  // first block of the address
  };
  class BeginsOfAddresses;

  explicit PortBlocks(std::shared_ptr<BlockStore> store);
  static Result<std::unique_ptr<PortBlocks>> make(std::span<const NatPool> pools,
                                                  std::shared_ptr<BlockStore> store,
                                                  const PortBlocks* before);
  std::vector<AddressV4> take_blocks(Pool& pool, const BeginsOfAddresses& all,
                                     const PortBlocks* before);
  std::uint16_t free_id(const PortBlocks* before) const;
  void index();

  std::optional<Place> place_of(const AddressV4& address) const;
  /// Returns the block of a public port; `kNone` if it is in none.
  std::uint32_t block_at(const Place& place, std::uint16_t port) const;
  /// Returns an offset of the parity that a session's port should have.
  static std::uint16_t offset_like(const Pool& pool, const Wanted& wanted) {
    // Blocks begin at an even port, or at an odd one like the pool.
    return static_cast<std::uint16_t>(wanted.inside.port ^ pool.is.first_port);
  }
  static std::uint16_t offset_of(const Pool& pool, std::uint16_t port) {
    return static_cast<std::uint16_t>((port - pool.is.first_port) % pool.is.block_size);
  }
  EndpointV4 outside_of(const PortRef& ref) const;
  static Mappings mappings_in(const BlockExtent& extent, TableMemory::Place table,
                              const Hasher& hasher) {
    return {extent.tables.at(table), extent.kind, hasher};
  }
  /// Returns the mappings of a block and protocol, which were used before.
  Mappings mappings(std::uint32_t block, unsigned space) const {
    return mappings_in(blocks_.extent_of(block), blocks_[block].table[space], hasher_);
  }
  /// Returns the mappings of a block and protocol, in a new table if it has none.
  Mappings mappings_made(std::uint32_t block, unsigned space) {
    BlockExtent& extent = blocks_.extent_of(block);
    auto& table = blocks_[block].table[space];
    if (table == 0) table = extent.tables.take(extent.table_size);
    return mappings_in(extent, table, hasher_);
  }
  static MappedEnds ends_of(const Pool& pool, const Wanted& wanted);
  /// True if the public end is a forward's, or was another customer's by one and has to rest.
  bool is_kept(const Wanted& wanted, const EndpointV4& end) const {
    return (wanted.forwards != nullptr &&
            wanted.forwards->to(end.address, end.port, wanted.protocol) != nullptr) ||
           gone_.keeps(end.address, end.port, wanted.protocol, wanted.customer, wanted.now);
  }
  /// Does so for the public end of a port.
  bool is_kept(const Wanted& wanted, const PortRef& ref) const {
    const bool has_forwards = wanted.forwards != nullptr && !wanted.forwards->all().empty();
    return (has_forwards || !gone_.is_empty()) && is_kept(wanted, outside_of(ref));
  }

  std::uint64_t count_mappings(std::uint32_t block) const;

  /// Returns the first of the blocks that a deterministic pool gives the customer; `kNone` if it
  /// gives him none.
  std::uint32_t range_of(const Pool& pool, CustomerNumber customer) const;
  bool may_have(const Pool& pool, std::uint32_t block, CustomerNumber customer) const {
    return !pool.is.is_deterministic ||
           block - range_of(pool, customer) < pool.is.blocks_per_customer;
  }
  /// True if the log has records of the block: those of deterministic pools say nothing new.
  bool is_logged(std::uint32_t block) const {
    return !blocks_.extent_of(block).is.is_deterministic;
  }

  Bucket& bucket_of(CustomerNumber customer) const { return blocks_.bucket_of(customer); }
  std::uint32_t first_of(const Bucket& bucket, CustomerNumber customer, std::uint16_t pool) const;
  std::uint32_t claim(Pool& pool, std::uint32_t block, CustomerNumber customer, Tick now);
  std::uint32_t claim_at(Pool& pool, std::uint32_t begin, CustomerNumber customer, Tick now);
  std::uint32_t claim_for(Pool& pool, std::uint32_t first, CustomerNumber customer, Tick now);
  std::uint32_t claim_anywhere(Pool& pool, CustomerNumber customer, Tick now);
  void append(Bucket& bucket, std::uint32_t& first, std::uint32_t block);
  void remove(Bucket& bucket, std::uint32_t block);
  void give_back_tables(std::uint32_t block);
  void make_free(std::uint32_t block);
  void reclaim(Pool& pool, std::uint32_t block, Tick now, bool waits = true);
  bool reclaim_near(Pool& pool, CustomerNumber customer, Tick now);

  void look_at_others(const PortBlocks& before);
  void hold_back(std::uint32_t begin);
  void lose(const Pool& pool, std::uint32_t block, Tick now);
  void drop(Bucket& bucket, std::uint32_t block, Tick now);
  void free_if_rested(std::uint32_t block, Tick now);
  template <class Each>
  void for_each_with_ports_of(std::uint32_t block, std::uint32_t begin, Each&& each) const;
  void rest_others(std::uint32_t lost, Tick now) const;
  bool is_elsewhere(std::uint32_t block, bool by_customer) const;
  bool is_there(std::uint32_t block) const;
  bool may_have_now(std::uint32_t block) const;

  std::expected<Taken, Verdict> take_now(Pool& pool, const Wanted& wanted, bool& lacks_block);
  /// The mapping that a session needs.
  struct Sought {
    unsigned space;
    MappedEnds ends;
    Hash hash;
  };
  std::optional<PortRef> find(std::uint32_t first, const Sought& sought);
  std::optional<PortRef> take_in(Pool& pool, std::uint32_t block, const Wanted& wanted,
                                 const Sought& sought);
  std::optional<PortRef> share(Pool& pool, std::uint32_t first, const Wanted& wanted,
                               const Sought& sought);
  Taken count(std::uint32_t first, const PortRef& ref, const Wanted& wanted, bool holds = true);
  void count_for_customer(std::uint32_t first, const PortRef& ref, std::uint8_t protocol,
                          const AddressV4& remote);
  void uncount_for_customer(const Bucket& bucket, const PortRef& ref, std::uint8_t protocol,
                            const AddressV4& remote);

  std::shared_ptr<BlockStore> store_;
  BlockStore& blocks_;
  const Hasher& hasher_;
  std::vector<Pool> pools_;
  PrefixTable<AddressV4> prefixes_;
  std::vector<Prefix<AddressV4>> all_prefixes_;
  // Pool of a prefix, and the place of its first address in `Pool::addresses`.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> prefix_at_;
  // First blocks of addresses, each with one that the address has had by earlier pools; sorted.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> others_;
  std::vector<std::uint32_t> held_back_;    // first blocks of addresses, until `replace`
  std::vector<const BlockExtent*> unused_;  // extents to be removed by `replace`
  GoneForwards gone_;
};

}  // namespace millrace
