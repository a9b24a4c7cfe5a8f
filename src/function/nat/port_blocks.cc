#include "function/nat/port_blocks.h"

#include <algorithm>
#include <utility>

#include "core/address_numbers.h"
#include "core/elapsed.h"

namespace millrace {

// --- making

PortBlocks::PortBlocks(std::shared_ptr<BlockStore> store)
    : store_(std::move(store)), blocks_(*store_), hasher_(store_->hasher()) {}

Result<std::unique_ptr<PortBlocks>> PortBlocks::create(std::span<const NatPool> pools,
                                                       Secret secret, const Share& share) {
  std::size_t blocks = 0;
  for (const NatPool& pool : pools) {
    for (const Prefix<AddressV4>& prefix : pool.prefixes)
      blocks += std::size_t{addresses_in(prefix)} * pool.blocks_per_address();
  }
  auto store = BlockStore::create(blocks, secret);
  if (!store) return std::unexpected(store.error());
  (*store)->set_share(share);
  return make(pools, std::move(*store), nullptr);
}

/// Fills what is found by public addresses.
void PortBlocks::index() {
  for (std::uint32_t n = 0; n < pools_.size(); ++n) {
    Pool& pool = pools_[n];
    pool.by_group.resize(blocks_.groups());
    for (const std::uint32_t begin : pool.addresses)
      pool.by_group[group_of(blocks_.extent_of(begin).address_of(begin))].push_back(begin);
    std::uint32_t first = 0;
    for (const Prefix<AddressV4>& prefix : pool.is.prefixes) {
      all_prefixes_.push_back(prefix);
      prefix_at_.emplace_back(n, first);
      first += addresses_in(prefix);
    }
  }
  prefixes_ = PrefixTable<AddressV4>(all_prefixes_);
}

// --- places

auto PortBlocks::place_of(const AddressV4& address) const -> std::optional<Place> {
  const std::uint32_t at = prefixes_.find(address);
  if (at == prefixes_.kNone) return std::nullopt;
  const auto& [pool, first] = prefix_at_[at];
  const std::uint32_t n = number_of(address) - number_of(all_prefixes_[at].address);
  return Place{pool, pools_[pool].addresses[first + n]};
}

std::uint32_t PortBlocks::block_at(const Place& place, std::uint16_t port) const {
  const Pool& pool = pools_[place.pool];
  const std::uint32_t block = (port - std::uint32_t{pool.is.first_port}) / pool.is.block_size;
  return port < pool.is.first_port || block >= pool.per_address ? kNone : place.begin + block;
}

EndpointV4 PortBlocks::outside_of(const PortRef& ref) const {
  const BlockExtent& extent = blocks_.extent_of(ref.block());
  EndpointV4 is{extent.address_of(ref.block())};
  if (ref.offset() != PortRef::kNoPort)
    is.port = static_cast<std::uint16_t>(extent.first_port_of(ref.block()) + ref.offset());
  return is;
}

MappedEnds PortBlocks::ends_of(const Pool& pool, const Wanted& wanted) {
  MappedEnds ends{.inside = wanted.inside.address, .remote = {}, .inside_port = wanted.inside.port};
  if (pool.is.mapping != Dependence::endpoint_independent) ends.remote = wanted.remote.address;
  if (pool.is.mapping == Dependence::address_and_port_dependent)
    ends.remote_port = wanted.remote.port;
  return ends;
}

// --- customers and their blocks

/// Returns the first of the blocks that the customer has by that pool; `kNone` if he has none.
std::uint32_t PortBlocks::first_of(const Bucket& bucket, CustomerNumber customer,
                                   std::uint16_t pool) const {
  std::uint32_t first = bucket.first;
  while (first != kNone && (blocks_[first].customer.load(std::memory_order_relaxed) != customer ||
                            blocks_[first].pool != pool))
    first = blocks_[first].next_customer;
  return first;
}

/// Gives the customer a block that nobody has. Returns the block; `kNone` if somebody has it,
/// `kNoRecord` if it cannot be logged.
std::uint32_t PortBlocks::claim(Pool& pool, std::uint32_t block, CustomerNumber customer,
                                Tick now) {
  const auto [word, bit] = blocks_.extent_of(block).bit_of(block);
  if ((word.fetch_or(bit, std::memory_order_acquire) & bit) != 0) return kNone;
  blocks_[block].pool = pool.id;
  blocks_[block].customer.store(customer, std::memory_order_release);
  // A block that another server has given is in use, whether it can be logged here or not.
  if (is_logged(block) && !events().note(true, block, customer, now) &&
      blocks_.is_given_here(block)) {
    make_free(block);
    return kNoRecord;
  }
  const std::int64_t held = pool.counts->held.fetch_add(1, std::memory_order_relaxed) + 1;
  auto& most_held = pool.counts->most_held;
  std::int64_t most = most_held.load(std::memory_order_relaxed);
  while (held > most && !most_held.compare_exchange_weak(most, held, std::memory_order_relaxed)) {
  }
  return block;
}

/// Gives the customer a free block of the address whose first block is `begin`, if there is one.
std::uint32_t PortBlocks::claim_at(Pool& pool, std::uint32_t begin, CustomerNumber customer,
                                   Tick now) {
  BlockExtent& extent = blocks_.extent_of(begin);
  const auto* const words = extent.words_of(begin);
  for (unsigned n = 0; n < extent.words; ++n) {
    for (std::uint64_t free = ~words[n].load(std::memory_order_relaxed); free != 0;
         free &= free - 1) {
      const unsigned in_address = n * 64 + static_cast<unsigned>(std::countr_zero(free));
      if (in_address >= extent.per_address) break;
      if (!blocks_.is_usable(begin + in_address)) continue;
      const std::uint32_t block = claim(pool, begin + in_address, customer, now);
      if (block != kNone) return block;
    }
  }
  return kNone;
}

/// Gives the customer a free block that he may have. `first`: his first one; `kNone` if he is new.
std::uint32_t PortBlocks::claim_for(Pool& pool, std::uint32_t first, CustomerNumber customer,
                                    Tick now) {
  if (!pool.is.is_deterministic)
    return first == kNone ? claim_anywhere(pool, customer, now)
                          : claim_at(pool, blocks_.extent_of(first).begin_of(first), customer, now);
  const std::uint32_t begin = range_of(pool, customer);
  if (begin == kNone) return kNone;
  for (std::uint32_t n = 0; n < pool.is.blocks_per_customer; ++n) {
    const std::uint32_t block = claim(pool, begin + n, customer, now);
    if (block != kNone) return block;
  }
  return kNone;
}

std::uint32_t PortBlocks::range_of(const Pool& pool, CustomerNumber customer) const {
  const auto place = pool.is.places.place_of(customer);
  if (!place) return kNone;
  const std::uint32_t each = pool.is.ranges_per_address();
  return pool.addresses[*place / each] +
         static_cast<std::uint32_t>(*place % each) * pool.is.blocks_per_customer;
}

unsigned PortBlocks::group_of(CustomerNumber customer, std::uint16_t pool) const {
  const NatPool& is = pools_[pool].is;
  const auto range = is.is_deterministic ? is.range_of(customer) : std::nullopt;
  return range ? group_of(range->address) : group_of(customer);
}

/// Gives a new customer a free block of an address of his group that a hash chooses, or of one
/// behind it.
std::uint32_t PortBlocks::claim_anywhere(Pool& pool, CustomerNumber customer, Tick now) {
  constexpr std::size_t kMost = 16'384;  // addresses that are looked at, to bound the time
  const auto pool_number = static_cast<std::uint16_t>(&pool - pools_.data());
  const unsigned group = has_groups() ? group_of(customer, pool_number) : 0;
  const std::vector<std::uint32_t>& begins = pool.by_group[group];
  const std::size_t addresses = begins.size();
  Counts& counts = *pool.counts;
  if (counts.held.load(std::memory_order_relaxed) >= static_cast<std::int64_t>(pool.blocks()))
    return kNone;
  // Blocks that only rest are not held. Looks again only after some block has become free.
  const std::uint64_t freed = blocks_.freed();
  auto& none_free_at = counts.none_free_at[group];
  if (none_free_at.load(std::memory_order_relaxed) == freed) return kNone;
  const Hash hash =
      hasher_(KeyV4{.source = address_with(customer), .destination = {}, .protocol = 1});
  for (std::size_t n = 0; n < std::min(addresses, kMost); ++n) {
    const std::uint32_t block = claim_at(pool, begins[(hash + n) % addresses], customer, now);
    if (block != kNone) return block;
  }
  if (addresses <= kMost) none_free_at.store(freed, std::memory_order_relaxed);
  return kNone;
}

/// Adds a block that was claimed for a customer. `first`: his first block, `kNone` if he is new.
void PortBlocks::append(Bucket& bucket, std::uint32_t& first, std::uint32_t block) {
  Block& is = blocks_[block];
  is.next = kNone;
  is.sessions = 0;
  if (first == kNone) {
    is.next_customer = bucket.first;
    bucket.first = first = block;
    return;
  }
  std::uint32_t last = first;
  while (blocks_[last].next != kNone) last = blocks_[last].next;
  blocks_[last].next = block;
}

/// Takes a block from its customer. If it is his first one, the next takes its place.
void PortBlocks::remove(Bucket& bucket, std::uint32_t block) {
  Block& is = blocks_[block];
  Relaxed<std::uint32_t>* link = &bucket.first;
  for (; *link != block; link = &blocks_[*link].next_customer) {
    std::uint32_t before = *link;
    while (before != kNone && blocks_[before].next != block) before = blocks_[before].next;
    if (before == kNone) continue;
    blocks_[before].next = is.next;
    return;
  }
  *link = is.next != kNone ? is.next : is.next_customer;
  if (is.next == kNone) return;
  blocks_[is.next].next_customer = is.next_customer;
  blocks_[is.next].sessions = is.sessions;
}

void PortBlocks::give_back_tables(std::uint32_t block) {
  BlockExtent& extent = blocks_.extent_of(block);
  for (auto& table : blocks_[block].table) {
    if (table != 0) extent.tables.give_back(extent.table_size, table);
    table = 0;
  }
}

/// Lets a block that is in no customer's list be claimed.
void PortBlocks::make_free(std::uint32_t block) {
  blocks_[block].customer.store(0, std::memory_order_release);
  const auto [word, bit] = blocks_.extent_of(block).bit_of(block);
  word.fetch_and(~bit, std::memory_order_release);
  blocks_.note_freed();
}

/// Makes a block free that nobody has used for `kRestMs`; without `waits`, that nobody uses.
void PortBlocks::reclaim(Pool& pool, std::uint32_t block, Tick now, bool waits) {
  Block& is = blocks_[block];
  const CustomerNumber customer = is.customer.load(std::memory_order_acquire);
  if (customer == 0 || is.uses.load(std::memory_order_relaxed) != 0) return;
  if (customer == kNobody) return free_if_rested(block, now);
  Bucket& bucket = bucket_of(customer);
  const Guard guard(bucket);
  const bool rests = is.customer.load(std::memory_order_relaxed) == customer &&
                     is.uses.load(std::memory_order_relaxed) == 0;
  if (!rests || (waits && !blocks_.has_rested(block, is.idle_since, now))) return;
  if (is_logged(block) && !events().note(false, block, customer, now) &&
      blocks_.is_given_here(block))
    return;
  remove(bucket, block);
  give_back_tables(block);
  pool.counts->held.fetch_sub(1, std::memory_order_relaxed);
  make_free(block);
}

/// Makes blocks free that have rested: of the customer's address, or if he has none, of some
/// addresses in turn. At most once a millisecond, as it takes some microseconds. True: it was
/// done.
bool PortBlocks::reclaim_near(Pool& pool, CustomerNumber customer, Tick now) {
  constexpr std::size_t kAtOnce = 4;
  Counts& counts = *pool.counts;
  std::uint32_t before = counts.swept_at.load(std::memory_order_relaxed);
  if (before == now.ms + 1 || !counts.swept_at.compare_exchange_strong(before, now.ms + 1))
    return false;
  std::uint32_t first = kNone;
  if (pool.is.is_deterministic) {
    first = range_of(pool, customer);
    if (first == kNone) return false;
  } else {
    Bucket& bucket = bucket_of(customer);
    const Guard guard(bucket);
    first = first_of(bucket, customer, pool.id);
  }
  const auto reclaim_at = [&](std::uint32_t begin) {
    for (std::uint32_t n = 0; n < pool.per_address; ++n) reclaim(pool, begin + n, now);
  };
  if (first != kNone) {
    reclaim_at(blocks_.extent_of(first).begin_of(first));
  } else {
    const auto pool_number = static_cast<std::uint16_t>(&pool - pools_.data());
    const auto& begins = pool.by_group[has_groups() ? group_of(customer, pool_number) : 0];
    for (std::size_t n = 0; n < std::min(kAtOnce, begins.size()); ++n)
      reclaim_at(begins[counts.swept.fetch_add(1, std::memory_order_relaxed) % begins.size()]);
  }
  return true;
}

std::optional<CustomerNumber> PortBlocks::customer_at(const EndpointV4& at) const {
  const auto place = place_of(at.address);
  if (!place) return std::nullopt;
  const std::uint32_t block = block_at(*place, at.port);
  if (block == kNone) return std::nullopt;
  const CustomerNumber customer = blocks_[block].customer.load(std::memory_order_relaxed);
  return customer != 0 && customer != kNobody ? std::optional(customer) : std::nullopt;
}

}  // namespace millrace
