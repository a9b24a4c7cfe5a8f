// Pools that change while workers use their blocks. A part of PortBlocks.
#include <algorithm>
#include <memory>
#include <ranges>
#include <span>
#include <utility>

#include "core/address_numbers.h"
#include "core/elapsed.h"
#include "function/nat/port_blocks.h"

namespace millrace {
namespace {

/// Values of `PortBlock::uses` while a block is held back.
constexpr std::uint32_t kIsNew = 1;
constexpr std::uint32_t kRests = 2;

/// True if blocks and mappings of the one are as those of the other.
bool has_same_blocks(const NatPool& a, const NatPool& b) {
  return a.name == b.name && a.first_port == b.first_port && a.block_size == b.block_size &&
         a.blocks_per_address() == b.blocks_per_address() && a.mapping == b.mapping &&
         a.has_peers() == b.has_peers() && a.shares_ports() == b.shares_ports() &&
         a.is_deterministic == b.is_deterministic;
}

}  // namespace

/// The first blocks of each address, of all extents.
class PortBlocks::BeginsOfAddresses {
 public:
  explicit BeginsOfAddresses(const BlockStore& store) {
    for (const BlockExtent* extent : store.extents()) {
      for (std::uint32_t n = 0; n < extent->addresses.size(); ++n)
        all_.emplace_back(number_of(extent->addresses[n]),
                          extent->first_block + n * extent->per_address);
    }
    std::ranges::sort(all_);
  }
  auto of(const AddressV4& address) const {
    const auto found = std::ranges::equal_range(all_, number_of(address), {},
                                                &std::pair<std::uint32_t, std::uint32_t>::first);
    return found | std::views::values;
  }

 private:
  std::vector<std::pair<std::uint32_t, std::uint32_t>> all_;  // address, first block
};

Result<std::unique_ptr<PortBlocks>> PortBlocks::changed_to(std::span<const NatPool> pools,
                                                           const NatForwards& was,
                                                           const NatForwards& is) const {
  auto made = make(pools, store_, this);
  if (!made) return made;
  (*made)->look_at_others(*this);
  (*made)->gone_.find(was, gone_, is);
  return made;
}

/// Makes blocks for these pools, and takes those that `before` has already (null: there is none).
Result<std::unique_ptr<PortBlocks>> PortBlocks::make(std::span<const NatPool> pools,
                                                     std::shared_ptr<BlockStore> store,
                                                     const PortBlocks* before) {
  std::unique_ptr<PortBlocks> made(new PortBlocks(std::move(store)));
  BlockStore& blocks = *made->store_;
  const BeginsOfAddresses all(blocks);
  std::vector<const BlockExtent*> added;
  made->pools_.reserve(pools.size());
  for (const NatPool& is : pools) {
    Pool& pool = made->pools_.emplace_back();
    pool.is = is;
    pool.per_address = is.blocks_per_address();
    auto missing = made->take_blocks(pool, all, before);
    if (missing.empty()) continue;
    const auto extent = blocks.add(is, std::move(missing));
    if (!extent) {
      for (const BlockExtent* one : added) blocks.remove(*one);
      return std::unexpected(extent.error());
    }
    added.push_back(*extent);
    std::uint32_t next = (*extent)->first_block;
    for (std::uint32_t& begin : pool.addresses) {
      if (begin == kNone) begin = std::exchange(next, next + pool.per_address);
    }
  }
  made->index();
  return made;
}

/// Finds the blocks of earlier pools, with some ports of blocks that are new here, which nobody
/// gets before `replace`; and extents that have come to their end.
void PortBlocks::look_at_others(const PortBlocks& before) {
  for (const BlockExtent* extent : store_->extents()) {
    const auto is_used = [&](std::uint32_t block) {
      return blocks_[block].customer.load(std::memory_order_acquire) != 0 || is_there(block) ||
             before.is_there(block);
    };
    if (std::ranges::none_of(
            std::views::iota(extent->first_block, extent->first_block + extent->blocks()), is_used))
      unused_.push_back(extent);
  }
  const BeginsOfAddresses all(*store_);
  for (const Pool& pool : pools_) {
    for (const std::uint32_t begin : pool.addresses) {
      for (const std::uint32_t other : all.of(blocks_.extent_of(begin).address_of(begin))) {
        if (other != begin &&
            std::ranges::find(unused_, &blocks_.extent_of(other)) == unused_.end())
          others_.emplace_back(begin, other);
      }
    }
  }
  std::ranges::sort(others_);
  for (const Pool& pool : pools_) {
    for (const std::uint32_t begin : pool.addresses) {
      if (!before.is_there(begin)) held_back_.push_back(begin);
    }
  }
  for (const std::uint32_t begin : held_back_) hold_back(begin);
}

/// Fills all members of a pool but `is` and `per_address`. Returns the addresses that it has no
/// blocks of yet: `addresses` has `kNone` in their places.
std::vector<AddressV4> PortBlocks::take_blocks(Pool& pool, const BeginsOfAddresses& all,
                                               const PortBlocks* before) {
  const Pool* was = nullptr;
  if (before != nullptr) {
    const auto same = std::ranges::find(before->pools_, pool.is.name,
                                        [](const Pool& one) { return one.is.name; });
    if (same != before->pools_.end()) was = &*same;
  }
  pool.counts = was != nullptr ? was->counts : std::make_shared<Counts>(blocks_.groups());
  if (was != nullptr && !has_same_blocks(was->is, pool.is)) was = nullptr;
  pool.id = was != nullptr ? was->id : free_id(before);
  const auto is_nobodys = [&](std::uint32_t begin) {
    const auto blocks = std::views::iota(begin, begin + pool.per_address);
    return std::ranges::all_of(blocks, [&](std::uint32_t block) {
      const CustomerNumber is = blocks_[block].customer.load(std::memory_order_acquire);
      return is == 0 || is == kNobody;
    });
  };
  std::vector<AddressV4> missing;
  for (const Prefix<AddressV4>& prefix : pool.is.prefixes) {
    for (std::uint32_t n = 0; n < addresses_in(prefix); ++n) {
      const AddressV4 address = address_in(prefix, n);
      // Blocks that this pool has, or has had.
      std::uint32_t found = kNone;
      for (const std::uint32_t begin : all.of(address)) {
        const bool is_present = before->is_there(begin);
        if (is_present ? was != nullptr && blocks_.extent_of(begin).is.name == pool.is.name
                       : has_same_blocks(blocks_.extent_of(begin).is, pool.is) && is_nobodys(begin))
          found = begin;
        if (found != kNone && is_present) break;
      }
      pool.addresses.push_back(found);
      if (found == kNone) missing.push_back(address);
    }
  }
  return missing;
}

/// Returns a number that no pool has.
std::uint16_t PortBlocks::free_id(const PortBlocks* before) const {
  const auto has = [](const PortBlocks& all, std::uint16_t id, const Pool* but) {
    return std::ranges::any_of(all.pools_,
                               [&](const Pool& one) { return &one != but && one.id == id; });
  };
  std::uint16_t id = 0;
  while (has(*this, id, &pools_.back()) || (before != nullptr && has(*before, id, nullptr))) ++id;
  return id;
}

/// True if the block is in a pool, by which its present customer may have it.
bool PortBlocks::may_have_now(std::uint32_t block) const {
  const auto place = place_of(blocks_.extent_of(block).address_of(block));
  return place && may_have(pools_[place->pool], block,
                           blocks_[block].customer.load(std::memory_order_acquire));
}

/// True if a pool has the address with this block, and the block.
bool PortBlocks::is_there(std::uint32_t block) const {
  const BlockExtent& extent = blocks_.extent_of(block);
  const auto place = place_of(extent.address_of(block));
  return place && place->begin == extent.begin_of(block);
}

/// Lets nobody have the blocks of an address before `replace`.
void PortBlocks::hold_back(std::uint32_t begin) {
  const Guard guard(bucket_of(kNobody));
  BlockExtent& extent = blocks_.extent_of(begin);
  for (std::uint32_t block = begin; block < begin + extent.per_address; ++block) {
    Block& is = blocks_[block];
    const bool rests = is.customer.load(std::memory_order_relaxed) == kNobody;
    is.uses.store(rests ? kRests : kIsNew, std::memory_order_relaxed);  // so it is not reclaimed
    const auto [word, bit] = extent.bit_of(block);
    word.fetch_or(bit, std::memory_order_relaxed);
    is.customer.store(kNobody, std::memory_order_release);
  }
}

void PortBlocks::replace(const PortBlocks& before, Tick now) {
  {
    const std::lock_guard guard(naming());
    for (const BlockExtent* extent : std::exchange(unused_, {})) {
      if (events().is_empty()) store_->remove(*extent);
    }
  }
  gone_.begin(now);
  const auto for_each_held_back = [&](auto&& each) {
    for (const std::uint32_t begin : held_back_) {
      for (std::uint32_t n = 0; n < blocks_.extent_of(begin).per_address; ++n) {
        const Guard guard(bucket_of(kNobody));
        each(begin + n, blocks_[begin + n]);
      }
    }
  };
  for_each_held_back([&](std::uint32_t block, Block& is) {
    if (is.uses.load(std::memory_order_relaxed) == kRests && !is_elsewhere(block, false)) return;
    is.uses.store(kIsNew, std::memory_order_relaxed);
    is.idle_since = now;
  });
  for (const Pool& pool : before.pools_) {
    for (const std::uint32_t begin : pool.addresses) {
      if (is_there(begin) && !pool.is.is_deterministic) continue;
      for (std::uint32_t block = begin; block < begin + pool.per_address; ++block) {
        if (!is_there(block) || !may_have_now(block)) lose(pool, block, now);
      }
    }
  }
  for_each_held_back([&](std::uint32_t block, Block& is) {
    // A worker may claim a block, and count its uses, as soon as the block is free.
    const bool is_new = is.uses.load(std::memory_order_relaxed) == kIsNew;
    is.uses.store(0, std::memory_order_relaxed);
    // Blocks of an address that was a customer's alone rest as his ports do.
    const bool rests =
        is_elsewhere(block, false) || gone_.has_whole(blocks_.extent_of(block).address_of(block));
    if (is_new && !rests) make_free(block);
  });
  held_back_.clear();
  // Frees what has rested, so that extents which no pool has can be removed.
  for (const BlockExtent* extent : store_->extents()) {
    for (std::uint32_t n = 0; n < extent->blocks(); ++n)
      free_if_rested(extent->first_block + n, now);
  }
}

/// Makes a block free that is nobody's, and has rested. It has not while sessions go on in blocks
/// that an earlier pool has had, with some of its ports.
void PortBlocks::free_if_rested(std::uint32_t block, Tick now) {
  Block& is = blocks_[block];
  if (is.customer.load(std::memory_order_acquire) != kNobody) return;
  const Guard guard(bucket_of(kNobody));
  if (is.customer.load(std::memory_order_relaxed) == kNobody &&
      is.uses.load(std::memory_order_relaxed) == 0 &&
      blocks_.has_rested(block, is.idle_since, now) && !is_elsewhere(block, true))
    make_free(block);
}

/// Takes a block, and all others that he has by the pool, from its customer. Those with sessions
/// stay his until these have ended.
void PortBlocks::lose(const Pool& pool, std::uint32_t block, Tick now) {
  const CustomerNumber customer = blocks_[block].customer.load(std::memory_order_acquire);
  if (customer == 0 || customer == kNobody) return;
  Bucket& bucket = bucket_of(customer);
  const Guard guard(bucket);
  const bool is_his = blocks_[block].customer.load(std::memory_order_relaxed) == customer;
  if (!is_his || blocks_[block].pool != pool.id) return;
  const std::uint32_t first = first_of(bucket, customer, pool.id);
  for (std::uint32_t at = first; at != kNone; at = blocks_[at].next) {
    blocks_[at].pool = kLost;
    pool.counts->held.fetch_sub(1, std::memory_order_relaxed);
  }
  for (std::uint32_t at = first; at != kNone;) {
    const std::uint32_t next = blocks_[at].next;
    if (blocks_[at].uses.load(std::memory_order_relaxed) == 0) drop(bucket, at, now);
    at = next;
  }
}

/// Takes a lost block without sessions from its customer. It rests as long as it has to.
void PortBlocks::drop(Bucket& bucket, std::uint32_t block, Tick now) {
  Block& is = blocks_[block];
  remove(bucket, block);
  give_back_tables(block);
  if (is_logged(block)) events().note_loss(block, is.customer.load(std::memory_order_relaxed), now);
  if (!blocks_.has_rested(block, is.idle_since, now)) {
    is.customer.store(kNobody, std::memory_order_release);
  } else {
    make_free(block);
  }
}

/// Calls `each(other)` for the blocks of the address whose first block is `begin` that have ports
/// of this block.
template <class Each>
void PortBlocks::for_each_with_ports_of(std::uint32_t block, std::uint32_t begin,
                                        Each&& each) const {
  const BlockExtent& extent = blocks_.extent_of(block);
  const BlockExtent& other = blocks_.extent_of(begin);
  const auto size = static_cast<int>(other.is.block_size);
  const int from = extent.first_port_of(block) - other.is.first_port;
  const int to = std::min(extent.last_port_of(block) - other.is.first_port,
                          static_cast<int>(other.per_address) * size - 1);
  for (int n = std::max(from, 0) / size; n * size <= to; ++n)
    each(begin + static_cast<std::uint32_t>(n));
}

/// Lets blocks that have ports of this one, which was lost, rest from now on.
void PortBlocks::rest_others(std::uint32_t lost, Tick now) const {
  const auto place = place_of(blocks_.extent_of(lost).address_of(lost));
  if (!place) return;
  for_each_with_ports_of(lost, place->begin, [&](std::uint32_t block) {
    if (block == lost) return;
    const Guard guard(bucket_of(kNobody));
    if (blocks_[block].customer.load(std::memory_order_acquire) == kNobody)
      blocks_[block].idle_since = now;
  });
}

/// True if a block that a pool has had, with some of this one's ports, is somebody's or rests.
/// `by_customer`: it is somebody's.
bool PortBlocks::is_elsewhere(std::uint32_t block, bool by_customer) const {
  if (others_.empty()) return false;
  bool is = false;
  for (const auto& [_, begin] :
       std::ranges::equal_range(others_, blocks_.extent_of(block).begin_of(block), {},
                                &std::pair<std::uint32_t, std::uint32_t>::first)) {
    for_each_with_ports_of(block, begin, [&](std::uint32_t other) {
      const CustomerNumber customer = blocks_[other].customer.load(std::memory_order_acquire);
      is |= customer != 0 && (!by_customer || customer != kNobody);
    });
  }
  return is;
}

}  // namespace millrace
