// The memory of port blocks (port_blocks.h), which outlives the pools of a configuration: while a
// pool has an address and divides its ports in the same way, its blocks keep their numbers, their
// customers and their mappings.
//
// An *extent* is the blocks of the addresses that a pool gets at a time. Their numbers follow one
// another. A number is used again once the pool has none of the extent's addresses any more, and
// nothing in the process names one of its blocks.
//
// One thread at a time adds and removes extents. Workers read blocks as port_blocks.h says.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/elapsed.h"
#include "core/relaxed.h"
#include "function/copies.h"
#include "function/grants.h"
#include "function/nat/block_events.h"
#include "function/nat/customer_number.h"
#include "function/nat/gone_forwards.h"
#include "function/nat/mappings.h"
#include "function/nat/settings.h"
#include "function/nat/table_memory.h"
#include "millrace/hash.h"
#include "millrace/types.h"

namespace millrace {

/// Under the bucket's lock of `customer`, except the atomics; `uses` is written under it, too.
struct alignas(64) PortBlock {
  static constexpr std::uint32_t kNone = 0xffffffff;
  static constexpr unsigned kSpaces = 6;  ///< protocols with port numbers of their own
  /// In place of a customer: nobody may have the block before it has rested. No host has this
  /// address.
  static constexpr CustomerNumber kNobody = 0xffffffff;
  /// In place of a pool: the customer has lost the block, and keeps it until his sessions end.
  static constexpr std::uint16_t kLost = 0xffff;

  std::atomic<CustomerNumber> customer = 0;      ///< 0: nobody
  Relaxed<std::uint32_t> next = kNone;           ///< the customer's next block
  Relaxed<std::uint32_t> next_customer = kNone;  ///< first block of the bucket's next customer
  std::uint32_t sessions = 0;                    ///< the customer's; valid in his first block
  std::atomic<std::uint32_t> uses = 0;           ///< sessions, at all ports and without ports
  Tick idle_since;                               ///< valid if `uses` is 0
  /// For each protocol, its mappings, 0 if the customer had none yet; and the offset from which a
  /// free port is looked for.
  std::array<Relaxed<TableMemory::Place>, kSpaces> table{};
  std::array<Relaxed<std::uint16_t>, kSpaces> from{};
  Relaxed<std::uint16_t> pool = kLost;  ///< number of the pool by which the customer has it
  Relaxed<std::uint16_t> extent = std::uint16_t{0};
};
static_assert(sizeof(PortBlock) == 64);

struct BlockExtent {
  std::shared_ptr<const std::string> pool;  ///< the name
  NatPool is;                               ///< how ports are divided, and mappings are kept
  std::vector<AddressV4> addresses;
  std::uint32_t first_block = 0;
  std::uint32_t per_address = 0;  ///< blocks
  Mappings::Kind kind;            ///< the kind of its tables
  TableMemory::Size table_size;
  TableMemory tables;
  unsigned words = 0;                             ///< number of words in `taken` for an address
  std::vector<std::atomic<std::uint64_t>> taken;  ///< a bit for each block; set: not to be claimed

  std::uint32_t blocks() const {
    return static_cast<std::uint32_t>(addresses.size()) * per_address;
  }
  /// Returns the first block of the address that has this block.
  std::uint32_t begin_of(std::uint32_t block) const {
    return block - (block - first_block) % per_address;
  }
  const AddressV4& address_of(std::uint32_t block) const {
    return addresses[(block - first_block) / per_address];
  }
  std::uint16_t first_port_of(std::uint32_t block) const {
    return static_cast<std::uint16_t>(is.first_port +
                                      (block - first_block) % per_address * is.block_size);
  }
  std::uint16_t last_port_of(std::uint32_t block) const {
    return static_cast<std::uint16_t>(first_port_of(block) + is.block_size - 1);
  }
  /// Returns the words of `taken` with the blocks of an address, by its first block.
  std::atomic<std::uint64_t>* words_of(std::uint32_t begin) {
    return &taken[std::size_t{(begin - first_block) / per_address} * words];
  }
  /// Returns the word of `taken` with the block's bit, and that bit.
  std::pair<std::atomic<std::uint64_t>&, std::uint64_t> bit_of(std::uint32_t block) {
    const std::uint32_t number = (block - first_block) % per_address;
    return {words_of(block)[number / 64], std::uint64_t{1} << number % 64};
  }
};

class BlockStore {
 public:
  static constexpr std::size_t kMostBlocks = std::size_t{1} << 22;
  static constexpr std::size_t kMostExtents = 4096;
  /// Time for which a port rests before another customer gets it (RFC 6888, REQ-8).
  static constexpr std::uint32_t kRestMs = GoneForwards::kRestMs;
  static_assert(kRestMs == Grants::kRestMs);

  struct Bucket {
    std::atomic<bool> is_locked = false;
    Relaxed<std::uint32_t> first = PortBlock::kNone;  ///< first block of the first customer
  };

  /// Makes an empty store, for `blocks` blocks at first. Error (failed): no address space.
  static Result<std::shared_ptr<BlockStore>> create(std::size_t blocks, const Secret& secret);
  ~BlockStore();
  BlockStore(const BlockStore&) = delete;
  BlockStore& operator=(const BlockStore&) = delete;

  /// Adds blocks of these addresses, which nobody has. Errors (usage): there are too many.
  Result<BlockExtent*> add(const NatPool& pool, std::vector<AddressV4> addresses);
  /// Removes an extent whose blocks nobody has, and which no worker may look at.
  void remove(const BlockExtent& extent);

  BlockExtent& extent_of(std::uint32_t block) const {
    return *extents_[blocks_[block].extent].load(std::memory_order_acquire);
  }
  PortBlock& operator[](std::uint32_t block) const { return blocks_[block]; }
  /// Returns a number that is greater than those of all blocks.
  std::uint32_t end() const { return end_.load(std::memory_order_acquire); }
  std::vector<BlockExtent*> extents() const;
  /// Returns the extent that has this block; null: there is no such block.
  const BlockExtent* find(std::uint32_t block) const;

  Bucket& bucket_of(CustomerNumber customer) const {
    const Hash hash = hasher_(KeyV4{.source = address_with(customer), .destination = {}});
    return buckets_[hash & (buckets_.size() - 1)];
  }
  /// Sets which blocks this server gives to customers, if other servers give the rest. Before
  /// any worker uses the store.
  void set_share(const Share& share) {
    share_ = share;
    is_open_.store(share.of == 1, std::memory_order_relaxed);
  }
  /// True if this server may give ports of the block, and no other server may.
  bool is_given_here(std::uint32_t block) const { return is_alone() || is_share(block); }
  /// True if its customer, or any if nobody has it, may use further ports of the block: also, if
  /// no session here uses it, no other server can have given it to somebody of late.
  bool is_usable(std::uint32_t block) const {
    return is_alone() ||
           (is_share(block) &&
            (blocks_[block].uses.load(std::memory_order_relaxed) != 0 || has_been_here(block)));
  }
  const Share& share() const { return share_; }
  /// Returns the number of groups of addresses, to one of which each customer belongs: in a cluster
  /// its shards, else 1.
  unsigned groups() const { return share_.grants ? share_.grants->shards() : 1; }
  unsigned group_of(const AddressV4& address) const {
    return share_.grants ? share_.grants->shard_of(address) : 0;
  }
  unsigned group_of(CustomerNumber customer) const {
    return share_.grants ? share_.grants->shard_of_customer(customer) : 0;
  }
  /// @name What is known of other servers
  /// @{
  void note_copies(const CopiesState& state, Tick now);
  bool may_give() const { return is_open_.load(std::memory_order_acquire); }
  /// True if customers may get blocks.
  bool is_open(Tick now) const {
    return is_open_.load(std::memory_order_acquire) ||
           (has_settled_.load(std::memory_order_acquire) &&
            elapsed_ms(Tick{settled_at_.load(std::memory_order_relaxed)}, now) >= kRestMs);
  }
  /// True if nobody can have used a port of the block any more since `kRestMs` whose last use here
  /// was then.
  bool has_rested(std::uint32_t block, Tick last, Tick now) const {
    if (elapsed_ms(last, now) < kRestMs) return false;
    if (share_.grants) return share_.grants->has_been_sure(extent_of(block).address_of(block), now);
    return !was_unsure_.load(std::memory_order_acquire) ||
           elapsed_ms(Tick{unsure_at_.load(std::memory_order_relaxed)}, now) >= kRestMs;
  }
  /// @}

  const Hasher& hasher() const { return hasher_; }
  /// Returns a number that grows when blocks become free, new ones included.
  std::uint64_t freed() const {
    return freed_.load(std::memory_order_acquire) + (share_.grants ? share_.grants->changes() : 0);
  }
  void note_freed() { freed_.fetch_add(1, std::memory_order_release); }
  BlockEvents& events() { return events_; }
  /// Held while numbers of blocks that were taken from `events` are turned into ports, and by
  /// `remove`'s caller.
  std::mutex& naming() { return naming_; }

 private:
  explicit BlockStore(const Secret& secret) : hasher_(secret) {}
  std::uint32_t gap_of(std::uint32_t blocks) const;
  bool is_alone() const { return share_.of == 1 && !share_.grants; }
  bool is_share(std::uint32_t block) const;
  bool has_been_here(std::uint32_t block) const;

  BlockEvents events_;
  Hasher hasher_;
  PortBlock* blocks_ = nullptr;
  std::atomic<std::uint64_t> freed_ = 0;
  ReservedMemory memory_;
  Share share_;
  mutable std::vector<Bucket> buckets_;  // a power of 2
  std::mutex naming_;
  std::array<std::atomic<BlockExtent*>, kMostExtents> extents_{};
  std::uint32_t made_ = 0;  // blocks below this number were constructed
  std::atomic<std::uint32_t> end_ = 0;
  std::atomic<std::uint32_t> settled_at_ = 0;  // a tick
  std::atomic<std::uint32_t> unsure_at_ = 0;   // the latest tick at which it was not sure
  std::atomic<bool> is_open_ = true;
  std::atomic<bool> has_settled_ = false;
  std::atomic<bool> was_unsure_ = false;
};

}  // namespace millrace
