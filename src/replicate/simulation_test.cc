// The rules of copy.h in a simulated cluster, and in one with mistakes.
// MILLRACE_REPLICATE_STEPS: ticks to simulate (100,000).
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/test_seed.h"
#include "replicate/test_cluster.h"

namespace millrace::test {

bool Copy::tell(ShardCopy& copy, Tick now) {
  while (!changed_.empty()) {
    if (!copy.has_room()) return false;
    const std::uint32_t key = *changed_.begin();
    changed_.erase(changed_.begin());
    const auto is = connections.find(key);
    Record record{.key = key};
    if (is != connections.end()) record = {key, is->second.customer, is->second.port, 1};
    told_.emplace_back(copy.next(), record);
    copy.tell(std::as_bytes(std::span(&record, 1)), now);
  }
  return true;
}

void Copy::tell_all() {
  changed_.clear();
  told_.clear();
  for (const auto& [key, connection] : connections) {
    if (core.role() == CopyRole::master || own.contains(key)) changed_.insert(key);
  }
}

void Copy::apply(std::span<const std::byte> bytes) {
  if (world_.delivering != core.epoch())
    return world_.fail("a message of an older epoch changes something");
  Record record;
  if (bytes.size() != sizeof(record)) return world_.fail("a record came out different");
  std::memcpy(&record, bytes.data(), sizeof(record));
  if (world_.mistake == Mistake::acknowledged_early && core.role() == CopyRole::slave)
    return late_.emplace_back(world_.now + 30, record), void();
  stale_.erase(record.key);
  if (core.role() == CopyRole::master) {
    // The slave has opened it while packets came there. From now on it is this copy's.
    if (record.is_there == 0 || connections.contains(record.key)) return;
    changed_.insert(record.key);
  } else {
    own.erase(record.key);
  }
  if (record.is_there == 0) return end(record.key);
  connections[record.key] = {record.customer, record.port, world_.now};
}

void Copy::assign(const Assignment& to) {
  if (to.epoch <= core.epoch()) return;
  const bool was_slave = core.role() == CopyRole::slave;
  if (was_slave && to.role == CopyRole::master) {
    for (const std::uint32_t key : world_.kept[{shard_, member_, core.epoch()}]) {
      if (!connections.contains(key))
        world_.fail("a promoted slave lacks a connection that it had acknowledged");
    }
    late_.clear();
  }
  const bool goes_on = was_slave != (to.role == CopyRole::slave);
  world_.kept.erase({shard_, member_, core.epoch()});
  core.assign(to, world_.tick());
  if (goes_on && to.role == CopyRole::master) {
    for (auto& [key, connection] : connections) connection.seen = world_.now;
    own.clear();
  }
}

std::optional<std::uint32_t> Copy::free_port(std::uint32_t customer) {
  std::optional<std::uint32_t> found;
  for (const std::uint32_t grant : grants) {
    if (!core.may_use(grant) && world_.mistake != Mistake::grant_kept) continue;
    bool is_his = true;
    bool is_used = false;
    std::optional<std::uint32_t> port;
    for (const auto& [key, connection] : connections) {
      if (connection.port / kPortsOfGrant != grant) continue;
      is_his &= connection.customer == customer;
      is_used = true;
    }
    for (unsigned p = 0; p < kPortsOfGrant; ++p) {
      const std::uint32_t candidate = grant * kPortsOfGrant + p;
      const bool is_free = std::ranges::none_of(
          connections, [candidate](const auto& one) { return one.second.port == candidate; });
      is_his &= is_used || rests_until[candidate] <= world_.now;
      if (is_free && rests_until[candidate] <= world_.now) port = candidate;
    }
    if (is_his && port) found = port;
  }
  return found;
}

std::optional<std::uint32_t> Copy::serve(std::uint32_t key, std::uint32_t customer) {
  const auto is = connections.find(key);
  if (is != connections.end()) {
    is->second.seen = world_.now;
    return is->second.port;
  }
  const auto port = free_port(customer);
  if (!port) return std::nullopt;
  connections[key] = {customer, *port, world_.now};
  changed_.insert(key);
  if (core.role() == CopyRole::slave) own.insert(key);
  return port;
}

void Copy::end(std::uint32_t key) {
  const auto is = connections.find(key);
  if (is == connections.end()) return;
  rests_until[is->second.port] = world_.now + kRest;
  connections.erase(is);
  own.erase(key);
  if (core.role() != CopyRole::master) return;
  changed_.insert(key);
  world_.kept[{shard_, core.other(), core.epoch()}].erase(key);
}

void Copy::age() {
  for (auto at = late_.begin(); at != late_.end();) {
    if (at->first > world_.now) break;
    const Record record = at->second;
    at = late_.erase(at);
    if (record.is_there == 0) {
      end(record.key);
    } else {
      connections[record.key] = {record.customer, record.port, world_.now};
    }
  }
  if (core.role() != CopyRole::master && world_.mistake != Mistake::slave_ages) return;
  std::vector<std::uint32_t> idle;
  for (const auto& [key, connection] : connections) {
    if (world_.now - connection.seen > kIdle) idle.push_back(key);
  }
  for (const std::uint32_t key : idle) end(key);
}

/// Notes what the other copy has acknowledged, as it must not lose that.
void Copy::note_acknowledged() {
  const std::uint64_t until = core.acknowledged();
  auto& kept = world_.kept[{shard_, core.other(), core.epoch()}];
  const bool is_master = core.role() == CopyRole::master;
  std::erase_if(told_, [&](const auto& one) {
    if (one.first >= until) return false;
    if (is_master && one.second.is_there == 1 && connections.contains(one.second.key))
      kept.insert(one.second.key);
    return true;
  });
}

namespace {

int steps() {
  const char* const given = std::getenv("MILLRACE_REPLICATE_STEPS");
  return given != nullptr ? std::atoi(given) : 100'000;
}

TEST(Replication, KeepsItsRules) {
  SCOPED_TRACE(repeat());
  World world(seed(), Mistake::none);
  EXPECT_EQ(world.run(steps()), "");
  EXPECT_GT(world.served, 0U);
  EXPECT_GT(world.promotions, 0U);
}

TEST(Replication, MistakesAreFound) {
  SCOPED_TRACE(repeat());
  for (const Mistake mistake : {Mistake::epoch_unchecked, Mistake::acknowledged_early,
                                Mistake::grant_kept, Mistake::slave_ages}) {
    bool is_found = false;
    for (unsigned n = 0; n < 100 && !is_found; ++n)
      is_found = !World(seed() + n, mistake).run(20'000).empty();
    EXPECT_TRUE(is_found) << "mistake " << static_cast<unsigned>(mistake);
  }
}

}  // namespace
}  // namespace millrace::test
