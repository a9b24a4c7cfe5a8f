// Sessions that take ports of their customers' blocks, and give them back. A part of PortBlocks.
#include <algorithm>
#include <array>
#include <utility>

#include "core/address_numbers.h"
#include "function/nat/port_blocks.h"
#include "millrace/detail/prefetch.h"

namespace millrace {

// --- from inside

/// Prefetches in rounds: a session's cache line of one round says where that of the next one is.
void PortBlocks::prefetch(std::span<const Wanted> soon, std::span<EndpointV4> likely) const {
  std::array<const Bucket*, kSoon> buckets;
  std::array<std::uint32_t, kSoon> firsts;
  for (std::size_t n = 0; n < soon.size(); ++n) {
    buckets[n] = &bucket_of(soon[n].customer);
    detail::prefetch(buckets[n]);
  }
  for (std::size_t n = 0; n < soon.size(); ++n) {
    firsts[n] = buckets[n]->first;
    if (firsts[n] != kNone) detail::prefetch(&blocks_[firsts[n]]);
  }
  // Calls `act(mappings, block)` for the customer's blocks, until it returns true. Without the lock
  // they may change at any time, so the number of steps is bounded here.
  const auto for_blocks = [&](std::size_t n, auto&& act) {
    const Wanted& wanted = soon[n];
    const Pool& pool = pools_[wanted.pool];
    const unsigned space = space_of(wanted.protocol);
    std::uint32_t at = space == kNoSpace ? kNone : firsts[n];
    const auto is_his = [&] {
      return blocks_[at].customer.load(std::memory_order_relaxed) == wanted.customer &&
             blocks_[at].pool == pool.id;
    };
    unsigned left = 4;
    for (; left != 0 && at != kNone && !is_his(); --left) at = blocks_[at].next_customer;
    for (; left != 0 && at != kNone && is_his(); --left, at = blocks_[at].next) {
      const TableMemory::Place table = blocks_[at].table[space];
      if (table != 0 && act(mappings_in(blocks_.extent_of(at), table, hasher_), at, space)) return;
    }
  };
  for (std::size_t n = 0; n < soon.size(); ++n) {
    const Hash hash = ends_of(soon[n]).hash(hasher_);
    for_blocks(n, [&](const Mappings& all, std::uint32_t block, unsigned space) {
      all.prefetch(hash, blocks_[block].from[space]);
      return false;
    });
  }
  for (std::size_t n = 0; n < soon.size(); ++n) {
    const Pool& pool = pools_[soon[n].pool];
    likely[n] = {};
    for_blocks(n, [&](const Mappings& all, std::uint32_t block, unsigned space) {
      const auto offset = all.free_port(blocks_[block].from[space], offset_like(pool, soon[n]),
                                        [](std::uint16_t) { return false; });
      if (offset) likely[n] = outside_of({block, *offset});
      return offset.has_value();
    });
  }
}

/// Returns the port that the session's mapping has already, counted once more.
std::optional<PortRef> PortBlocks::find(std::uint32_t first, const Sought& sought) {
  for (std::uint32_t block = first; block != kNone; block = blocks_[block].next) {
    if (blocks_[block].table[sought.space] == 0) continue;
    const Mappings all = mappings(block, sought.space);
    const auto offset = all.find(sought.ends, sought.hash);
    if (!offset) continue;
    all.use(*offset);
    return PortRef{block, *offset};
  }
  return std::nullopt;
}

/// Gives the session a free port of that block.
std::optional<PortRef> PortBlocks::take_in(Pool& pool, std::uint32_t block, const Wanted& wanted,
                                           const Sought& sought) {
  const Mappings all = mappings_made(block, sought.space);
  auto& from = blocks_[block].from[sought.space];
  const auto offset = all.free_port(from, offset_like(pool, wanted), [&](std::uint16_t at) {
    return is_kept(wanted, PortRef{block, at});
  });
  if (!offset) return std::nullopt;
  all.insert(sought.ends, sought.hash, *offset);
  from = static_cast<std::uint16_t>((*offset + 1) % pool.is.block_size);
  return PortRef{block, *offset};
}

/// Gives the session a port that others use to other remote ends: one that a hash chooses, and for
/// each further attempt the next one.
std::optional<PortRef> PortBlocks::share(Pool& pool, std::uint32_t first, const Wanted& wanted,
                                         const Sought& sought) {
  constexpr std::uint32_t kMostAttempts = 16;
  if (!pool.is.shares_ports() || wanted.attempt >= kMostAttempts) return std::nullopt;
  const Hash hash = hasher_(KeyV4{.source = wanted.inside.address,
                                  .destination = wanted.remote.address,
                                  .source_port = wanted.inside.port,
                                  .destination_port = wanted.remote.port});
  const auto next_given = [&](std::uint32_t at) {
    while (at != kNone && !blocks_.is_usable(at)) at = blocks_[at].next;
    return at;
  };
  std::uint64_t ports = 0;
  for (std::uint32_t at = next_given(first); at != kNone; at = next_given(blocks_[at].next))
    ports += pool.is.block_size;
  if (ports == 0) return std::nullopt;
  std::uint64_t port = (hash % ports + wanted.attempt) % ports;
  std::uint32_t block = next_given(first);
  for (; port >= pool.is.block_size; port -= pool.is.block_size)
    block = next_given(blocks_[block].next);
  const Mappings all = mappings_made(block, sought.space);
  const auto offset = static_cast<std::uint16_t>(port);
  if (is_kept(wanted, PortRef{block, offset})) return std::nullopt;
  if (all.is_free(offset)) {
    // The previous attempt may have made the mapping.
    if (all.find(sought.ends, sought.hash)) return std::nullopt;
    all.insert(sought.ends, sought.hash, offset);
  } else {
    all.use(offset);
  }
  return PortRef{block, offset};
}

/// Counts a session that has its port.
auto PortBlocks::count(std::uint32_t first, const PortRef& ref, const Wanted& wanted, bool holds)
    -> Taken {
  auto& uses = blocks_[ref.block()].uses;
  uses.store(uses.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (holds) count_for_customer(first, ref, wanted.protocol, wanted.remote.address);
  return {ref, outside_of(ref)};
}

/// Counts a session for its customer, whose first block is `first` (`kNone`: he has lost the
/// block), and lets its remote end pass filters.
void PortBlocks::count_for_customer(std::uint32_t first, const PortRef& ref, std::uint8_t protocol,
                                    const AddressV4& remote) {
  if (first != kNone) ++blocks_[first].sessions;
  if (blocks_.extent_of(ref.block()).kind.has_peers && ref.offset() != PortRef::kNoPort)
    mappings(ref.block(), space_of(protocol)).admit(ref.offset(), remote);
}

void PortBlocks::uncount_for_customer(const Bucket& bucket, const PortRef& ref,
                                      std::uint8_t protocol, const AddressV4& remote) {
  const Block& block = blocks_[ref.block()];
  const CustomerNumber customer = block.customer.load(std::memory_order_relaxed);
  if (block.pool != kLost) --blocks_[first_of(bucket, customer, block.pool)].sessions;
  if (blocks_.extent_of(ref.block()).kind.has_peers && ref.offset() != PortRef::kNoPort)
    mappings(ref.block(), space_of(protocol)).dismiss(ref.offset(), remote);
}

/// Does what `take` does, with the blocks that are free now. `lacks_block`: another block would
/// help.
auto PortBlocks::take_now(Pool& pool, const Wanted& wanted, bool& lacks_block)
    -> std::expected<Taken, Verdict> {
  lacks_block = false;
  const CustomerNumber customer = wanted.customer;
  Bucket& bucket = bucket_of(customer);
  const Guard guard(bucket);
  std::uint32_t first = first_of(bucket, customer, pool.id);
  if (first != kNone && blocks_[first].sessions >= pool.is.sessions_per_customer)
    return std::unexpected(Verdict::customer_limit);
  std::optional<PortRef> ref;
  const bool may_claim = blocks_.is_open(wanted.now);
  if (first == kNone && !may_claim) return std::unexpected(Verdict::no_port);
  if (first == kNone) {
    const std::uint32_t block = claim_for(pool, first, customer, wanted.now);
    if (block == kNoRecord) return std::unexpected(Verdict::no_record);
    lacks_block = block == kNone;
    if (lacks_block) return std::unexpected(Verdict::no_port);
    append(bucket, first, block);
    blocks_[block].idle_since = wanted.now;
  }
  const unsigned space = space_of(wanted.protocol);
  if (space == kNoSpace) {
    if (wanted.attempt > 0) return std::unexpected(Verdict::no_port);
    return count(first, {first, PortRef::kNoPort}, wanted);
  }
  const MappedEnds ends = ends_of(pool, wanted);
  const Sought sought{space, ends, ends.hash(hasher_)};
  if (wanted.attempt == 0) {
    ref = find(first, sought);
    std::uint32_t held = 0;
    for (std::uint32_t block = first; !ref && block != kNone; block = blocks_[block].next) {
      if (!blocks_.is_usable(block)) continue;
      ref = take_in(pool, block, wanted, sought);
      ++held;
    }
    if (!ref && may_claim && held < pool.is.blocks_per_customer) {
      const std::uint32_t block = claim_for(pool, first, customer, wanted.now);
      if (block == kNoRecord) return std::unexpected(Verdict::no_record);
      lacks_block = block == kNone;
      if (!lacks_block) {
        append(bucket, first, block);
        ref = take_in(pool, block, wanted, sought);
      }
    }
  }
  if (!ref) ref = share(pool, first, wanted, sought);
  if (!ref) return std::unexpected(Verdict::no_port);
  return count(first, *ref, wanted);
}

auto PortBlocks::take(const Wanted& wanted) -> std::expected<Taken, Verdict> {
  Pool& pool = pools_[wanted.pool];
  bool lacks_block = false;
  auto taken = take_now(pool, wanted, lacks_block);
  if (!taken && lacks_block && reclaim_near(pool, wanted.customer, wanted.now))
    taken = take_now(pool, wanted, lacks_block);
  if (taken) return taken;
  Counts& counts = *pool.counts;
  auto& refused = taken.error() == Verdict::no_port     ? counts.no_port
                  : taken.error() == Verdict::no_record ? counts.no_record
                                                        : counts.over_limit;
  refused.fetch_add(1, std::memory_order_relaxed);
  return taken;
}

MappedEnds PortBlocks::ends_at(const PortRef& ref, std::uint8_t protocol) const {
  if (ref.offset() == PortRef::kNoPort) return {};
  const Guard guard(bucket_of(blocks_[ref.block()].customer.load(std::memory_order_relaxed)));
  return mappings(ref.block(), space_of(protocol)).ends_of(ref.offset());
}

auto PortBlocks::take_again(const Wanted& wanted, const EndpointV4& outside, const MappedEnds& ends,
                            bool holds) -> std::expected<Taken, Verdict> {
  const auto refused = std::unexpected(Verdict::no_port);
  const auto place = place_of(outside.address);
  if (!place || place->pool != wanted.pool || is_kept(wanted, outside)) return refused;
  Pool& pool = pools_[place->pool];
  const CustomerNumber customer = wanted.customer;
  const unsigned space = space_of(wanted.protocol);
  if (pool.is.is_deterministic) {
    const std::uint32_t own = range_of(pool, customer);
    if (own == kNone || blocks_.extent_of(own).begin_of(own) != place->begin) return refused;
  }
  const std::uint32_t block = space == kNoSpace ? kNone : block_at(*place, outside.port);
  // The other server has given its block to another customer: it has rested there.
  if (block != kNone && !blocks_.is_given_here(block) &&
      blocks_[block].customer.load(std::memory_order_relaxed) != customer)
    reclaim(pool, block, wanted.now, false);
  Bucket& bucket = bucket_of(customer);
  const Guard guard(bucket);
  std::uint32_t first = first_of(bucket, customer, pool.id);
  if (holds && first != kNone && blocks_[first].sessions == UINT16_MAX) return refused;
  if (space == kNoSpace) {
    if (first == kNone) {
      const std::uint32_t his = pool.is.is_deterministic
                                    ? claim_for(pool, first, customer, wanted.now)
                                    : claim_at(pool, place->begin, customer, wanted.now);
      if (his >= kNoRecord) return refused;
      append(bucket, first, his);
    }
    return count(first, {first, PortRef::kNoPort}, wanted);
  }
  if (block == kNone || !may_have(pool, block, customer)) return refused;
  if (blocks_[block].customer.load(std::memory_order_relaxed) != customer) {
    if (claim(pool, block, customer, wanted.now) >= kNoRecord) return refused;
    append(bucket, first, block);
  } else if (blocks_[block].pool != pool.id) {
    return refused;  // lost, or not yet his by this pool
  }
  const Mappings all = mappings_made(block, space);
  const PortRef ref{block, offset_of(pool, outside.port)};
  if (all.is_free(ref.offset())) {
    const Hash hash = ends.hash(hasher_);
    if (all.find(ends, hash)) return refused;  // the endpoint has another port by now
    all.insert(ends, hash, ref.offset(), holds);
  } else if (pool.is.shares_ports() || all.ends_of(ref.offset()) == ends) {
    all.use(ref.offset(), holds);
  } else {
    return refused;
  }
  return count(first, ref, wanted, holds);
}

// --- from outside

auto PortBlocks::enter(const Arrived& arrived, bool takes) -> std::expected<Inside, Verdict> {
  const auto refused = std::unexpected(Verdict::no_mapping);
  const auto place = place_of(arrived.outside.address);
  const unsigned space = space_of(arrived.protocol);
  if (!place || space == kNoSpace) return refused;
  Pool& pool = pools_[place->pool];
  const std::uint32_t block = block_at(*place, arrived.outside.port);
  if (block == kNone || pool.is.filtering == Dependence::address_and_port_dependent) return refused;
  const CustomerNumber customer = blocks_[block].customer.load(std::memory_order_acquire);
  if (customer == 0) return refused;
  Bucket& bucket = bucket_of(customer);
  const Guard guard(bucket);
  if (blocks_[block].customer.load(std::memory_order_relaxed) != customer ||
      blocks_[block].pool != pool.id || blocks_[block].table[space] == 0)
    return refused;
  const Mappings all = mappings(block, space);
  const auto offset = offset_of(pool, arrived.outside.port);
  if (all.is_free(offset) || !all.is_held(offset)) return refused;
  const MappedEnds ends = all.ends_of(offset);
  if (pool.is.filtering == Dependence::address_dependent) {
    const bool passes = pool.is.has_peers() ? all.is_admitted(offset, arrived.remote.address)
                                            : ends.remote == arrived.remote.address;
    if (!passes) return refused;
  }
  const Inside inside{{block, offset}, {ends.inside, ends.inside_port}, customer};
  if (!takes) return inside;
  all.use(offset, false);
  count(kNone, inside.ref, {}, false);
  return inside;
}

bool PortBlocks::hold(const PortRef& ref, std::uint8_t protocol, const AddressV4& remote,
                      bool is_limited) {
  const Block& block = blocks_[ref.block()];
  const CustomerNumber customer = block.customer.load(std::memory_order_relaxed);
  Bucket& bucket = bucket_of(customer);
  const Guard guard(bucket);
  const bool is_lost = block.pool == kLost;
  const std::uint32_t first = is_lost ? kNone : first_of(bucket, customer, block.pool);
  const auto pool = std::ranges::find(pools_, std::uint16_t{block.pool}, &Pool::id);
  if (is_limited && !is_lost && pool != pools_.end() &&
      blocks_[first].sessions >= pool->is.sessions_per_customer) {
    pool->counts->over_limit.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  mappings(ref.block(), space_of(protocol)).hold(ref.offset());
  count_for_customer(first, ref, protocol, remote);
  return true;
}

void PortBlocks::let_go(const PortRef& ref, std::uint8_t protocol, const AddressV4& remote) {
  Bucket& bucket = bucket_of(blocks_[ref.block()].customer.load(std::memory_order_relaxed));
  const Guard guard(bucket);
  uncount_for_customer(bucket, ref, protocol, remote);
  mappings(ref.block(), space_of(protocol)).let_go(ref.offset());
}

// --- the end of a session

void PortBlocks::release(const PortRef& ref, std::uint8_t protocol, const AddressV4& remote,
                         Tick now, bool holds) {
  Block& block = blocks_[ref.block()];
  Bucket& bucket = bucket_of(block.customer.load(std::memory_order_relaxed));
  {
    const Guard guard(bucket);
    if (holds) uncount_for_customer(bucket, ref, protocol, remote);
    if (ref.offset() != PortRef::kNoPort)
      mappings(ref.block(), space_of(protocol)).release(ref.offset(), holds);
    const std::uint32_t left = block.uses.load(std::memory_order_relaxed) - 1;
    block.uses.store(left, std::memory_order_relaxed);
    if (left == 0) block.idle_since = now;
    if (block.pool != kLost || left != 0) return;
  }
  // Other blocks with ports of a lost one rest from now on, before it stops to hold them back. A
  // lost block without sessions stays as it is until this thread drops it.
  rest_others(ref.block(), now);
  const Guard guard(bucket);
  drop(bucket, ref.block(), now);
}

}  // namespace millrace
