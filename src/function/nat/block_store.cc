#include "function/nat/block_store.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "core/address_numbers.h"

namespace millrace {

Result<std::shared_ptr<BlockStore>> BlockStore::create(std::size_t blocks, const Secret& secret) {
  constexpr std::size_t kFewest = std::size_t{1} << 14;  // pools may grow
  std::shared_ptr<BlockStore> made(new BlockStore(secret));
  if (auto ok = made->memory_.reserve(kMostBlocks * sizeof(PortBlock)); !ok)
    return std::unexpected(ok.error());
  made->blocks_ = reinterpret_cast<PortBlock*>(made->memory_.begin());
  made->buckets_ = std::vector<Bucket>(std::bit_ceil(std::max(blocks, kFewest)));
  return made;
}

/// Returns `is_given_here`, where there are other servers.
bool BlockStore::is_share(std::uint32_t block) const {
  const BlockExtent& extent = extent_of(block);
  // A part of a deterministic pool is one customer's, whichever server gives him a port.
  if (extent.is.is_deterministic) return true;
  if (share_.grants)
    return share_.grants->may_use(extent.address_of(block), extent.first_port_of(block),
                                  extent.last_port_of(block));
  return (block - extent.first_block) % extent.per_address % share_.of == share_.number;
}

/// True if no other server can have given the block to a customer since `kRestMs`.
bool BlockStore::has_been_here(std::uint32_t block) const {
  const BlockExtent& extent = extent_of(block);
  return !share_.grants || extent.is.is_deterministic ||
         share_.grants->have_rested(extent.address_of(block), extent.first_port_of(block),
                                    extent.last_port_of(block));
}

void BlockStore::note_copies(const CopiesState& state, Tick now) {
  if (share_.of == 1) return;
  if (state.has_settled && !has_settled_.load(std::memory_order_relaxed)) {
    settled_at_.store(now.ms, std::memory_order_relaxed);
    has_settled_.store(true, std::memory_order_release);
  }
  const bool opens = state.has_settled && state.both_are_new;
  if (!is_open_.load(std::memory_order_relaxed) && (opens || is_open(now)))
    is_open_.store(true, std::memory_order_release);
  if (state.is_sure) return;
  unsure_at_.store(now.ms, std::memory_order_relaxed);
  was_unsure_.store(true, std::memory_order_release);
}

BlockStore::~BlockStore() {
  for (auto& extent : extents_) delete extent.load(std::memory_order_relaxed);
}

std::vector<BlockExtent*> BlockStore::extents() const {
  std::vector<BlockExtent*> all;
  for (const auto& extent : extents_) {
    if (auto* const is = extent.load(std::memory_order_acquire)) all.push_back(is);
  }
  return all;
}

const BlockExtent* BlockStore::find(std::uint32_t block) const {
  if (block >= end()) return nullptr;
  const auto* const is = extents_[blocks_[block].extent].load(std::memory_order_acquire);
  return is != nullptr && block - is->first_block < is->blocks() ? is : nullptr;
}

/// Returns the first of so many numbers that no block has.
std::uint32_t BlockStore::gap_of(std::uint32_t blocks) const {
  auto all = extents();
  std::ranges::sort(all, {}, &BlockExtent::first_block);
  std::uint32_t begin = 0;
  for (const BlockExtent* is : all) {
    if (is->first_block - begin >= blocks) break;
    begin = is->first_block + is->blocks();
  }
  return begin;
}

auto BlockStore::add(const NatPool& pool, std::vector<AddressV4> addresses)
    -> Result<BlockExtent*> {
  auto extent = std::make_unique<BlockExtent>();
  BlockExtent& is = *extent;
  is.pool = std::make_shared<const std::string>(pool.name);
  is.is = pool;
  is.addresses = std::move(addresses);
  is.per_address = pool.blocks_per_address();
  is.kind = {.ports = pool.block_size,
             .has_remotes = pool.mapping != Dependence::endpoint_independent,
             .has_peers = pool.has_peers()};
  is.table_size.bytes = is.kind.bytes();
  is.words = (is.per_address + 63) / 64;
  is.taken = std::vector<std::atomic<std::uint64_t>>(std::size_t{is.words} * is.addresses.size());
  is.first_block = gap_of(is.blocks());
  auto* const free = std::ranges::find_if(
      extents_, [](const auto& one) { return one.load(std::memory_order_relaxed) == nullptr; });
  if (free == extents_.end() || std::size_t{is.first_block} + is.blocks() > kMostBlocks)
    return std::unexpected(Error{
        "nat.pool: earlier changes have left no room for more port blocks: give smaller pools, or "
        "have another process take over (millctl upgrade)",
        Error::Kind::usage});
  const std::size_t tables = std::size_t{is.blocks()} * PortBlock::kSpaces;
  if (auto ok = is.tables.reserve(tables * is.table_size.bytes, tables); !ok)
    return std::unexpected(ok.error());
  const std::uint32_t behind = is.first_block + is.blocks();
  for (; made_ < behind; ++made_) std::construct_at(&blocks_[made_]);
  for (std::uint32_t n = is.first_block; n < behind; ++n) {
    blocks_[n].extent = static_cast<std::uint16_t>(free - extents_.begin());
    for (unsigned space = 0; space < PortBlock::kSpaces; ++space) {
      const Hash hash = hasher_(KeyV4{.source = address_with(n),
                                      .destination = {},
                                      .source_port = static_cast<std::uint16_t>(space)});
      blocks_[n].from[space] = static_cast<std::uint16_t>(hash % pool.block_size);
    }
  }
  end_.store(std::max(end(), behind), std::memory_order_release);
  free->store(extent.get(), std::memory_order_release);
  note_freed();
  return extent.release();
}

void BlockStore::remove(const BlockExtent& extent) {
  for (auto& one : extents_) {
    if (one.load(std::memory_order_relaxed) != &extent) continue;
    delete one.exchange(nullptr, std::memory_order_acq_rel);
  }
}

}  // namespace millrace
