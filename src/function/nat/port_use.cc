// Numbers about pools and customers, for commands and for the log. A part of PortBlocks.
#include <algorithm>
#include <array>
#include <tuple>

#include "function/nat/port_blocks.h"

namespace millrace {
namespace {

// Notifications of RFC 7659 (natv2NotificationPoolUsageHigh) begin and end by marks, too.
constexpr std::uint64_t kAlarmPercent = 90;
constexpr std::uint64_t kOverPercent = 80;

}  // namespace

std::uint64_t PortBlocks::count_mappings(std::uint32_t block) const {
  const BlockExtent& extent = blocks_.extent_of(block);
  std::uint64_t count = 0;
  for (const auto& table : blocks_[block].table) {
    if (table != 0) count += mappings_in(extent, table, hasher_).in_use();
  }
  return count;
}

bool PortBlocks::is_mapped(const EndpointV4& outside, std::uint8_t protocol) const {
  const auto place = place_of(outside.address);
  const unsigned space = space_of(protocol);
  const std::uint32_t block = place && space != kNoSpace ? block_at(*place, outside.port) : kNone;
  if (block == kNone) return false;
  const CustomerNumber customer = blocks_[block].customer.load(std::memory_order_acquire);
  if (customer == 0) return false;
  const Guard guard(bucket_of(customer));
  return blocks_[block].customer.load(std::memory_order_relaxed) == customer &&
         blocks_[block].table[space] != 0 &&
         !mappings(block, space).is_free(offset_of(pools_[place->pool], outside.port));
}

std::vector<HeldBlock> PortBlocks::held_by(CustomerNumber customer) const {
  std::vector<HeldBlock> all;
  Bucket& bucket = bucket_of(customer);
  for (const Pool& pool : pools_) {
    const Guard guard(bucket);
    const std::uint32_t first = first_of(bucket, customer, pool.id);
    for (std::uint32_t block = first; block != kNone; block = blocks_[block].next) {
      HeldBlock& is = all.emplace_back(*this->block(block));
      is.mappings = count_mappings(block);
      is.sessions = blocks_[first].sessions;
    }
  }
  return all;
}

std::optional<HeldBlock> PortBlocks::block(std::uint32_t number) const {
  const BlockExtent* const extent = blocks_.find(number);
  if (extent == nullptr) return std::nullopt;
  return HeldBlock{.pool = extent->pool,
                   .address = extent->address_of(number),
                   .first_port = extent->first_port_of(number),
                   .last_port = extent->last_port_of(number)};
}

CustomerNumber PortBlocks::customer_of(std::uint32_t block) const {
  const auto& customer = blocks_[block].customer;
  if (!is_logged(block)) return 0;
  for (;;) {
    const CustomerNumber is = customer.load(std::memory_order_acquire);
    if (is == 0 || is == kNobody) return 0;
    // Under its customer's lock a block changes together with its record.
    const Guard guard(bucket_of(is));
    if (customer.load(std::memory_order_relaxed) == is) return is;
  }
}

PoolUse PortBlocks::use_of(std::size_t number) const {
  const Pool& pool = pools_[number];
  const Counts& counts = *pool.counts;
  PoolUse is{
      .addresses = pool.addresses.size(),
      .blocks = pool.blocks(),
      .held = static_cast<std::uint64_t>(counts.held.load(std::memory_order_relaxed)),
      .most_held = static_cast<std::uint64_t>(counts.most_held.load(std::memory_order_relaxed)),
      .no_port = counts.no_port.load(std::memory_order_relaxed),
      .over_limit = counts.over_limit.load(std::memory_order_relaxed),
      .no_record = counts.no_record.load(std::memory_order_relaxed)};
  std::uint64_t given = 0;
  for (const std::uint32_t begin : pool.addresses) {
    for (std::uint32_t block = begin; block < begin + pool.per_address; ++block) {
      const CustomerNumber customer = blocks_[block].customer.load(std::memory_order_acquire);
      const bool is_given = blocks_.is_given_here(block);
      given += is_given;
      if (customer == 0) continue;
      Bucket& bucket = bucket_of(customer);
      const Guard guard(bucket);
      if (blocks_[block].customer.load(std::memory_order_relaxed) != customer ||
          blocks_[block].pool != pool.id)
        continue;
      const bool rests = blocks_[block].uses.load(std::memory_order_relaxed) == 0;
      is.resting += rests;
      is.given_in_use += !rests && is_given;
      is.mappings += count_mappings(block);
      if (first_of(bucket, customer, pool.id) != block) continue;
      is.sessions += blocks_[block].sessions;
      is.customers += blocks_[block].sessions != 0;
    }
  }
  auto& alarm = pool.counts->is_nearly_empty;
  const std::uint64_t percent = is.given_in_use * 100;
  if (!pool.is.is_deterministic && given != 0 && percent >= kAlarmPercent * given)
    alarm.store(true, std::memory_order_relaxed);
  if (pool.is.is_deterministic || percent < kOverPercent * given)
    alarm.store(false, std::memory_order_relaxed);
  is.is_nearly_empty = alarm.load(std::memory_order_relaxed);
  return is;
}

Verdict PortBlocks::outlook(const Wanted& wanted) const {
  const Pool& pool = pools_[wanted.pool];
  const unsigned space = space_of(wanted.protocol);
  std::uint32_t first = kNone;
  {
    Bucket& bucket = bucket_of(wanted.customer);
    const Guard guard(bucket);
    first = first_of(bucket, wanted.customer, pool.id);
    if (first != kNone && blocks_[first].sessions >= pool.is.sessions_per_customer)
      return Verdict::customer_limit;
    if (first != kNone && (space == kNoSpace || pool.is.shares_ports())) return Verdict::tracked;
    const MappedEnds ends = ends_of(pool, wanted);
    std::uint32_t held = 0;
    for (std::uint32_t block = first; block != kNone; block = blocks_[block].next) {
      if (!blocks_.is_given_here(block)) continue;
      ++held;
      if (blocks_[block].table[space] == 0) return Verdict::tracked;
      const Mappings all = mappings(block, space);
      if (all.in_use() < pool.is.block_size || all.find(ends, ends.hash(hasher_)))
        return Verdict::tracked;
    }
    if (held >= pool.is.blocks_per_customer) return Verdict::no_port;
  }
  if (pool.is.is_deterministic)
    return range_of(pool, wanted.customer) != kNone ? Verdict::tracked : Verdict::no_port;
  // All of a customer's blocks are of one address.
  for (const std::uint32_t begin : pool.addresses) {
    if (first != kNone && first - begin >= pool.per_address) continue;
    for (std::uint32_t block = begin; block < begin + pool.per_address; ++block) {
      if (!blocks_.is_given_here(block)) continue;
      if (blocks_[block].customer.load(std::memory_order_acquire) == 0 ||
          blocks_[block].uses.load(std::memory_order_relaxed) == 0)
        return Verdict::tracked;
    }
  }
  return Verdict::no_port;
}

bool PortBlocks::is_nearly_empty(std::size_t number) const {
  const Pool& pool = pools_[number];
  const auto held = static_cast<std::uint64_t>(pool.counts->held.load(std::memory_order_relaxed));
  if (!pool.counts->is_nearly_empty.load(std::memory_order_relaxed) && !has_groups() &&
      held * 100 < kAlarmPercent * (pool.blocks() / blocks_.share().of))
    return false;
  return use_of(number).is_nearly_empty;
}

std::vector<NearLimit> PortBlocks::nearest_to_limit(std::size_t number, std::size_t most) const {
  const Pool& pool = pools_[number];
  std::vector<NearLimit> all;
  const auto is_nearer = [](const NearLimit& a, const NearLimit& b) {
    return std::tie(b.percent, a.customer) < std::tie(a.percent, b.customer);
  };
  const auto keep_nearest = [&] {
    std::ranges::sort(all, is_nearer);
    all.resize(std::min(all.size(), most));
  };
  for (const std::uint32_t begin : pool.addresses) {
    for (std::uint32_t first = begin; first < begin + pool.per_address; ++first) {
      const CustomerNumber customer = blocks_[first].customer.load(std::memory_order_acquire);
      if (customer == 0 || customer == kNobody) continue;
      const Guard guard(bucket_of(customer));
      if (first_of(bucket_of(customer), customer, pool.id) != first || blocks_[first].sessions == 0)
        continue;
      NearLimit is{.customer = customer, .sessions = blocks_[first].sessions};
      std::array<std::uint64_t, PortBlock::kSpaces> ports{};
      for (std::uint32_t block = first; block != kNone; block = blocks_[block].next) {
        ++is.blocks;
        for (unsigned space = 0; space < ports.size(); ++space) {
          if (blocks_[block].table[space] != 0) ports[space] += mappings(block, space).in_use();
        }
      }
      is.ports = *std::ranges::max_element(ports);
      is.percent = static_cast<std::uint32_t>(std::max(
          std::uint64_t{is.sessions} * 100 / pool.is.sessions_per_customer,
          is.ports * 100 / (std::uint64_t{pool.is.block_size} * pool.is.blocks_per_customer)));
      all.push_back(is);
    }
    if (all.size() > 1000 + most) keep_nearest();
  }
  keep_nearest();
  return all;
}

}  // namespace millrace
