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
// Nothing here allocates memory, blocks for long or throws, except `create`; but the first use of a
// table may wait for the kernel's pages (table_memory.h).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <expected>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/prefix_table.h"
#include "core/relaxed.h"
#include "core/verdict.h"
#include "function/nat/block_events.h"
#include "function/nat/mappings.h"
#include "function/nat/settings.h"
#include "function/nat/table_memory.h"
#include "millrace/hash.h"
#include "millrace/types.h"

namespace millrace {

struct EndpointV4 {
  AddressV4 address;
  std::uint16_t port = 0;  ///< or the identifier of an ICMP query; 0 for protocols without ports

  friend bool operator==(const EndpointV4&, const EndpointV4&) = default;
};

/// A public port that a session uses. Six bytes, as each session keeps two.
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
  std::uint64_t blocks = 0;     ///< that there are
  std::uint64_t held = 0;       ///< blocks that customers have, also those without mappings
  std::uint64_t resting = 0;    ///< blocks without mappings among them
  std::uint64_t customers = 0;  ///< with at least one session
  std::uint64_t sessions = 0;
  std::uint64_t mappings = 0;
  std::uint64_t most_held = 0;   ///< high-water mark of `held`
  std::uint64_t no_port = 0;     ///< sessions refused: no port or no block was free
  std::uint64_t over_limit = 0;  ///< sessions refused: their customer has as many as he may have
};

/// A block that a customer has.
struct HeldBlock {
  std::size_t pool = 0;
  AddressV4 address;
  std::uint16_t first_port = 0;
  std::uint16_t last_port = 0;
  std::uint64_t mappings = 0;
  std::uint32_t sessions = 0;  ///< the customer's, in all of his blocks of the pool
};

class PortBlocks {
 public:
  static constexpr std::uint32_t kRestMs = 120'000;
  static constexpr std::size_t kMostBlocks = std::size_t{1} << 22;

  /// The pools have at most `kMostBlocks` blocks. Error (failed): no address space.
  static Result<std::unique_ptr<PortBlocks>> create(std::span<const NatPool> pools,
                                                    Secret secret = Secret::random());
  PortBlocks(const PortBlocks&) = delete;
  PortBlocks& operator=(const PortBlocks&) = delete;

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
  /// Gives a session from inside its public port; it counts for its customer until `release`.
  /// Errors: `no_port`, `customer_limit`; `no_record`, if it takes a block that cannot be logged.
  std::expected<Taken, Verdict> take(const Wanted& wanted);
  /// Does what `take` does, for a session that has that public end already, and whose mapping has
  /// these ends.
  /// Error: `no_port`, if the public end is not free for this customer.
  std::expected<Taken, Verdict> take_again(const Wanted& wanted, const EndpointV4& outside,
                                           const MappedEnds& ends);
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
  /// Returns the inside endpoint that the packet is for; with `takes`, its session counts for the
  /// customer until `release`. Errors: `no_mapping`, also if the pool's filtering forbids the
  /// packet; `customer_limit`.
  std::expected<Inside, Verdict> enter(const Arrived& arrived, bool takes);

  /// Ends a session's use of a port.
  void release(const PortRef& ref, std::uint8_t protocol, const AddressV4& remote, Tick now);

  PoolUse use_of(std::size_t pool) const;
  std::vector<HeldBlock> held_by(CustomerNumber customer) const;

  /// @name For the log (block_log.h)
  /// @{
  BlockEvents& events() { return events_; }
  /// Returns the number of blocks of all pools, which are numbered from 0 on.
  std::uint32_t blocks() const { return static_cast<std::uint32_t>(blocks_.size()); }
  /// Returns the pool and the ports of a block.
  HeldBlock block(std::uint32_t number) const;
  /// Returns the number of the block's customer; 0 if nobody has it. All its earlier records are
  /// in `events`.
  std::uint32_t customer_of(std::uint32_t block) const;
  /// @}

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  static constexpr std::uint32_t kNoRecord = 0xfffffffe;  // a block that cannot be logged
  static constexpr unsigned kSpaces = 6;  // protocols with port numbers of their own

  /// Under the bucket's lock of `customer`, except the atomics. (`uses` is written under the lock.)
  struct alignas(64) Block {
    std::atomic<CustomerNumber> customer = 0;      // 0: nobody
    Relaxed<std::uint32_t> next = kNone;           // the customer's next block
    Relaxed<std::uint32_t> next_customer = kNone;  // first block of the bucket's next customer
    std::uint32_t sessions = 0;                    // of the customer; valid in his first block
    std::atomic<std::uint32_t> uses = 0;           // of all ports, and by protocols without ports
    Tick idle_since;                               // valid if `uses` is 0
    // For each protocol, its mappings, 0 if the customer had none yet; and the offset from which a
    // free port is looked for.
    std::array<Relaxed<TableMemory::Place>, kSpaces> table{};
    std::array<Relaxed<std::uint16_t>, kSpaces> from{};
  };
  static_assert(sizeof(Block) == 64);
  struct Bucket {
    std::atomic<bool> is_locked = false;
    Relaxed<std::uint32_t> first = kNone;  // first block of the first customer
  };
  struct Guard : BriefLock {
    explicit Guard(Bucket& bucket) : BriefLock(bucket.is_locked) {}
  };
  struct Pool {
    NatPool is;
    std::uint32_t first_block = 0;
    std::uint32_t addresses = 0;
    std::uint32_t per_address = 0;  // blocks
    Mappings::Kind kind;            // of its tables
    TableMemory::Size table_size;
    unsigned words = 0;                             // of an address in `taken`
    std::vector<std::atomic<std::uint64_t>> taken;  // blocks of each address, a bit each
    std::atomic<std::uint32_t> swept = 0;     // address from which resting blocks are looked for
    std::atomic<std::uint32_t> swept_at = 0;  // tick behind that of the latest look; 0: none
    std::atomic<std::int64_t> held = 0;
    std::atomic<std::int64_t> most_held = 0;
    std::atomic<std::uint64_t> no_port = 0;
    std::atomic<std::uint64_t> over_limit = 0;
  };
  struct Place {
    std::uint32_t pool;
    std::uint32_t address;  // number in the pool
  };

  PortBlocks(std::span<const NatPool> pools, const Secret& secret);

  std::optional<Place> place_of(const AddressV4& address) const;
  AddressV4 address_of(const Pool& pool, std::uint32_t address) const;
  Pool& pool_of(std::uint32_t block) const;
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
  /// Returns the word of `Pool::taken` with the block's bit, and that bit.
  static std::pair<std::atomic<std::uint64_t>&, std::uint64_t> bit_of(Pool& pool,
                                                                      std::uint32_t block);
  EndpointV4 outside_of(const Pool& pool, const PortRef& ref) const;
  static bool is_of(const Pool& pool, std::uint32_t block) {
    return block - pool.first_block < pool.addresses * pool.per_address;
  }
  Mappings mappings_in(const Pool& pool, TableMemory::Place table) const {
    return {tables_.at(table), pool.kind, hasher_};
  }
  /// Returns the mappings of a block and protocol, which were used before.
  Mappings mappings(const Pool& pool, std::uint32_t block, unsigned space) const {
    return mappings_in(pool, blocks_[block].table[space]);
  }
  /// Returns the mappings of a block and protocol, in a new table if it has none.
  Mappings mappings_made(Pool& pool, std::uint32_t block, unsigned space) {
    auto& table = blocks_[block].table[space];
    if (table == 0) table = tables_.take(pool.table_size);
    return mappings_in(pool, table);
  }
  static MappedEnds ends_of(const Pool& pool, const Wanted& wanted);
  /// True if the public end is a forward's.
  static bool is_kept(const Wanted& wanted, const EndpointV4& end) {
    return wanted.forwards != nullptr &&
           wanted.forwards->to(end.address, end.port, wanted.protocol) != nullptr;
  }
  /// True if the public end of a port is a forward's.
  bool is_kept(const Pool& pool, const Wanted& wanted, const PortRef& ref) const {
    return wanted.forwards != nullptr && !wanted.forwards->all().empty() &&
           is_kept(wanted, outside_of(pool, ref));
  }

  std::uint64_t count_mappings(std::uint32_t block) const;

  Bucket& bucket_of(std::uint32_t customer) const;
  std::uint32_t first_of(const Bucket& bucket, std::uint32_t customer, const Pool& pool) const;
  std::uint32_t claim(Pool& pool, std::uint32_t block, std::uint32_t customer, Tick now);
  std::uint32_t claim_at(Pool& pool, std::uint32_t address, std::uint32_t customer, Tick now);
  std::uint32_t claim_anywhere(Pool& pool, std::uint32_t customer, Tick now);
  void append(Bucket& bucket, std::uint32_t& first, std::uint32_t block);
  void remove(Bucket& bucket, const Pool& pool, std::uint32_t block);
  void reclaim(Pool& pool, std::uint32_t block, Tick now);
  bool reclaim_near(Pool& pool, std::uint32_t customer, Tick now);

  std::expected<Taken, Verdict> take_now(Pool& pool, const Wanted& wanted, bool& lacks_block);
  /// The mapping that a session needs.
  struct Sought {
    unsigned space;
    MappedEnds ends;
    Hash hash;
  };
  std::optional<PortRef> find(const Pool& pool, std::uint32_t first, const Sought& sought);
  std::optional<PortRef> take_in(Pool& pool, std::uint32_t block, const Wanted& wanted,
                                 const Sought& sought);
  std::optional<PortRef> share(Pool& pool, std::uint32_t first, const Wanted& wanted,
                               const Sought& sought);
  Taken count(Pool& pool, std::uint32_t first, const PortRef& ref, const Wanted& wanted);

  Hasher hasher_;
  BlockEvents events_;
  std::deque<Pool> pools_;
  PrefixTable<AddressV4> prefixes_;
  std::vector<Prefix<AddressV4>> all_prefixes_;
  std::vector<Place> prefix_at_;  // pool of a prefix, and the number of its first address
  std::vector<Block> blocks_;
  mutable std::vector<Bucket> buckets_;  // a power of 2
  TableMemory tables_;
};

}  // namespace millrace
