#include "function/nat/port_blocks.h"

#include <algorithm>
#include <utility>

#include "core/address_numbers.h"
#include "core/elapsed.h"

namespace millrace {

// --- making

PortBlocks::PortBlocks(std::span<const NatPool> pools, const Secret& secret) : hasher_(secret) {
  std::uint32_t blocks = 0;
  for (const NatPool& is : pools) {
    Pool& pool = pools_.emplace_back();
    pool.is = is;
    pool.first_block = blocks;
    for (const Prefix<AddressV4>& prefix : is.prefixes) {
      all_prefixes_.push_back(prefix);
      prefix_at_.push_back({static_cast<std::uint32_t>(pools_.size() - 1), pool.addresses});
      pool.addresses += addresses_in(prefix);
    }
    pool.per_address = is.blocks_per_address();
    pool.words = (pool.per_address + 63) / 64;
    pool.taken = std::vector<std::atomic<std::uint64_t>>(std::size_t{pool.words} * pool.addresses);
    pool.kind = {.ports = is.block_size,
                 .has_remotes = is.mapping != Dependence::endpoint_independent,
                 .has_peers = is.has_peers()};
    pool.table_size.bytes = pool.kind.bytes();
    blocks += pool.addresses * pool.per_address;
  }
  prefixes_ = PrefixTable<AddressV4>(all_prefixes_);
  blocks_ = std::vector<Block>(blocks);
  for (std::uint32_t n = 0; n < blocks; ++n) {
    for (unsigned space = 0; space < kSpaces; ++space) {
      const Hash hash = hasher_(KeyV4{.source = address_with(n),
                                      .destination = {},
                                      .source_port = static_cast<std::uint16_t>(space)});
      blocks_[n].from[space] = static_cast<std::uint16_t>(hash % pool_of(n).is.block_size);
    }
  }
  buckets_ = std::vector<Bucket>(std::bit_ceil(std::max<std::size_t>(blocks, 64)));
}

Result<std::unique_ptr<PortBlocks>> PortBlocks::create(std::span<const NatPool> pools,
                                                       Secret secret) {
  std::unique_ptr<PortBlocks> made(new PortBlocks(pools, secret));
  std::size_t bytes = 0;
  std::size_t tables = 0;
  for (const Pool& pool : made->pools_) {
    const std::size_t own = std::size_t{pool.addresses} * pool.per_address * kSpaces;
    bytes += own * pool.table_size.bytes;
    tables += own;
  }
  if (const auto ok = made->tables_.reserve(bytes, tables); !ok) return std::unexpected(ok.error());
  return made;
}

// --- places

auto PortBlocks::place_of(const AddressV4& address) const -> std::optional<Place> {
  const std::uint32_t at = prefixes_.find(address);
  if (at == prefixes_.kNone) return std::nullopt;
  const Place& first = prefix_at_[at];
  return Place{first.pool,
               first.address + number_of(address) - number_of(all_prefixes_[at].address)};
}

AddressV4 PortBlocks::address_of(const Pool& pool, std::uint32_t address) const {
  for (const Prefix<AddressV4>& prefix : pool.is.prefixes) {
    if (address < addresses_in(prefix)) return address_in(prefix, address);
    address -= addresses_in(prefix);
  }
  return {};
}

auto PortBlocks::pool_of(std::uint32_t block) const -> Pool& {
  const auto behind = std::ranges::upper_bound(pools_, block, {}, &Pool::first_block);
  return const_cast<Pool&>(*std::prev(behind));
}

std::uint32_t PortBlocks::block_at(const Place& place, std::uint16_t port) const {
  const Pool& pool = pools_[place.pool];
  const std::uint32_t blocks = pool.per_address;
  const std::uint32_t block = (port - std::uint32_t{pool.is.first_port}) / pool.is.block_size;
  if (port < pool.is.first_port || block >= blocks) return kNone;
  return pool.first_block + place.address * blocks + block;
}

std::pair<std::atomic<std::uint64_t>&, std::uint64_t> PortBlocks::bit_of(Pool& pool,
                                                                         std::uint32_t block) {
  const std::uint32_t blocks = pool.per_address;
  const std::uint32_t number = block - pool.first_block;
  const std::size_t word = std::size_t{number / blocks} * pool.words + number % blocks / 64;
  return {pool.taken[word], std::uint64_t{1} << number % blocks % 64};
}

EndpointV4 PortBlocks::outside_of(const Pool& pool, const PortRef& ref) const {
  const std::uint32_t blocks = pool.per_address;
  const std::uint32_t number = ref.block() - pool.first_block;
  EndpointV4 is{address_of(pool, number / blocks)};
  if (ref.offset() != PortRef::kNoPort)
    is.port = static_cast<std::uint16_t>(pool.is.first_port + number % blocks * pool.is.block_size +
                                         ref.offset());
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

auto PortBlocks::bucket_of(std::uint32_t customer) const -> Bucket& {
  const Hash hash = hasher_(KeyV4{.source = address_with(customer), .destination = {}});
  return buckets_[hash & (buckets_.size() - 1)];
}

/// Returns the customer's first block in that pool; `kNone` if there is none.
std::uint32_t PortBlocks::first_of(const Bucket& bucket, std::uint32_t customer,
                                   const Pool& pool) const {
  std::uint32_t first = bucket.first;
  while (first != kNone && (blocks_[first].customer.load(std::memory_order_relaxed) != customer ||
                            !is_of(pool, first)))
    first = blocks_[first].next_customer;
  return first;
}

/// Gives the customer a block that nobody has. Returns the block; `kNone` if somebody has it,
/// `kNoRecord` if it cannot be logged.
std::uint32_t PortBlocks::claim(Pool& pool, std::uint32_t block, std::uint32_t customer, Tick now) {
  const auto [word, bit] = bit_of(pool, block);
  if ((word.fetch_or(bit, std::memory_order_acquire) & bit) != 0) return kNone;
  blocks_[block].customer.store(customer, std::memory_order_release);
  if (!events_.note(true, block, customer, now)) {
    blocks_[block].customer.store(0, std::memory_order_release);
    word.fetch_and(~bit, std::memory_order_release);
    return kNoRecord;
  }
  const std::int64_t held = pool.held.fetch_add(1, std::memory_order_relaxed) + 1;
  std::int64_t most = pool.most_held.load(std::memory_order_relaxed);
  while (held > most &&
         !pool.most_held.compare_exchange_weak(most, held, std::memory_order_relaxed)) {
  }
  return block;
}

/// Gives the customer a free block of that address, if there is one.
std::uint32_t PortBlocks::claim_at(Pool& pool, std::uint32_t address, std::uint32_t customer,
                                   Tick now) {
  const std::uint32_t blocks = pool.per_address;
  for (unsigned n = 0; n < pool.words; ++n) {
    const auto& word = pool.taken[std::size_t{address} * pool.words + n];
    for (std::uint64_t free = ~word.load(std::memory_order_relaxed); free != 0; free &= free - 1) {
      const unsigned in_address = n * 64 + static_cast<unsigned>(std::countr_zero(free));
      if (in_address >= blocks) break;
      const std::uint32_t block =
          claim(pool, pool.first_block + address * blocks + in_address, customer, now);
      if (block != kNone) return block;
    }
  }
  return kNone;
}

/// Gives a new customer a free block of an address that a hash chooses, or of one behind it.
std::uint32_t PortBlocks::claim_anywhere(Pool& pool, std::uint32_t customer, Tick now) {
  constexpr std::uint32_t kMost = 16'384;  // addresses that are looked at, to bound the time
  const std::int64_t blocks = std::int64_t{pool.addresses} * pool.per_address;
  if (pool.held.load(std::memory_order_relaxed) >= blocks) return kNone;
  const Hash hash =
      hasher_(KeyV4{.source = address_with(customer), .destination = {}, .protocol = 1});
  for (std::uint32_t n = 0; n < std::min(pool.addresses, kMost); ++n) {
    const auto address = static_cast<std::uint32_t>((hash + n) % pool.addresses);
    const std::uint32_t block = claim_at(pool, address, customer, now);
    if (block != kNone) return block;
  }
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
void PortBlocks::remove(Bucket& bucket, const Pool& pool, std::uint32_t block) {
  Block& is = blocks_[block];
  const std::uint32_t first = first_of(bucket, is.customer.load(std::memory_order_relaxed), pool);
  if (first != block) {
    std::uint32_t before = first;
    while (blocks_[before].next != block) before = blocks_[before].next;
    blocks_[before].next = is.next;
    return;
  }
  Relaxed<std::uint32_t>* link = &bucket.first;
  while (*link != block) link = &blocks_[*link].next_customer;
  *link = is.next != kNone ? is.next : is.next_customer;
  if (is.next == kNone) return;
  blocks_[is.next].next_customer = is.next_customer;
  blocks_[is.next].sessions = is.sessions;
}

/// Makes a block free whose customer has not used it for `kRestMs`.
void PortBlocks::reclaim(Pool& pool, std::uint32_t block, Tick now) {
  Block& is = blocks_[block];
  const std::uint32_t customer = is.customer.load(std::memory_order_acquire);
  if (customer == 0 || is.uses.load(std::memory_order_relaxed) != 0) return;
  Bucket& bucket = bucket_of(customer);
  const Guard guard(bucket);
  const bool rests = is.customer.load(std::memory_order_relaxed) == customer &&
                     is.uses.load(std::memory_order_relaxed) == 0;
  if (!rests || elapsed_ms(is.idle_since, now) < kRestMs) return;
  if (!events_.note(false, block, customer, now)) return;
  remove(bucket, pool, block);
  for (auto& table : is.table) {
    if (table != 0) tables_.give_back(pool.table_size, table);
    table = 0;
  }
  is.customer.store(0, std::memory_order_release);
  pool.held.fetch_sub(1, std::memory_order_relaxed);
  const auto [word, bit] = bit_of(pool, block);
  word.fetch_and(~bit, std::memory_order_release);
}

/// Makes blocks free that have rested: of the customer's address, or if he has none, of some
/// addresses in turn. At most once a millisecond, as it takes some microseconds. True: it was
/// done.
bool PortBlocks::reclaim_near(Pool& pool, std::uint32_t customer, Tick now) {
  constexpr std::uint32_t kAtOnce = 4;
  std::uint32_t before = pool.swept_at.load(std::memory_order_relaxed);
  if (before == now.ms + 1 || !pool.swept_at.compare_exchange_strong(before, now.ms + 1))
    return false;
  const std::uint32_t blocks = pool.per_address;
  std::uint32_t first = kNone;
  {
    Bucket& bucket = bucket_of(customer);
    const Guard guard(bucket);
    first = first_of(bucket, customer, pool);
  }
  const auto reclaim_at = [&](std::uint32_t address) {
    for (std::uint32_t n = 0; n < blocks; ++n)
      reclaim(pool, pool.first_block + address * blocks + n, now);
  };
  if (first != kNone) {
    reclaim_at((first - pool.first_block) / blocks);
  } else {
    for (std::uint32_t n = 0; n < std::min(kAtOnce, pool.addresses); ++n)
      reclaim_at(pool.swept.fetch_add(1, std::memory_order_relaxed) % pool.addresses);
  }
  return true;
}

std::optional<CustomerNumber> PortBlocks::customer_at(const EndpointV4& at) const {
  const auto place = place_of(at.address);
  if (!place) return std::nullopt;
  const std::uint32_t block = block_at(*place, at.port);
  if (block == kNone) return std::nullopt;
  const std::uint32_t customer = blocks_[block].customer.load(std::memory_order_relaxed);
  return customer != 0 ? std::optional(customer) : std::nullopt;
}

}  // namespace millrace
