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
    for (auto& [port, ends] : leaving_) {
      const auto end = ends.find(key);
      if (end != ends.end() && is == connections.end()) end->second = copy.next();
    }
    copy.tell(std::as_bytes(std::span(&record, 1)), now);
  }
  return true;
}

void Copy::tell_all() {
  changed_.clear();
  told_.clear();
  for (auto& [port, ends] : leaving_) {
    for (auto& [key, told] : ends) told = core.next() - 1;  // not told again, so all must be
  }
  for (const auto& [key, connection] : connections) {
    if (core.role() == CopyRole::master || own.contains(key)) changed_.insert(key);
  }
}

auto Copy::apply(std::span<const std::byte> bytes) -> Applied {
  if (world_.delivering != core.epoch())
    return world_.fail("a message of an older epoch changes something"), Applied::malformed;
  Record record;
  if (bytes.size() != sizeof(record))
    return world_.fail("a record came out different"), Applied::malformed;
  std::memcpy(&record, bytes.data(), sizeof(record));
  if (world_.mistake == Mistake::acknowledged_early && core.role() == CopyRole::slave)
    return late_.emplace_back(world_.now + 30, record), Applied::done;
  stale_.erase(record.key);
  if (core.role() == CopyRole::master) {
    // The slave has opened it while packets came there. From now on it is this copy's.
    if (record.is_there == 0 || connections.contains(record.key)) return Applied::done;
    changed_.insert(record.key);
  } else {
    own.erase(record.key);
  }
  const auto is = connections.find(record.key);
  const bool is_other = is != connections.end() && is->second.port != record.port;
  if (record.is_there == 0 || is_other) end(record.key);
  if (record.is_there == 0) return Applied::done;
  connections[record.key] = {record.customer, record.port, world_.now};
  return Applied::done;
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
  if (to.role != core.role()) leaving_.clear();
  core.assign(to, world_.tick());
  if (goes_on && to.role == CopyRole::master) {
    for (auto& [key, connection] : connections) connection.seen = world_.now;
    own.clear();
  }
}

void Copy::get(std::uint32_t grant) {
  core.grant(grant);
  if (!core.has(grant) || !grants.insert(grant).second) return;
  for (unsigned p = 0; p < kPortsOfGrant; ++p) {
    const std::uint32_t port = grant * kPortsOfGrant + p;
    rests_until[port] = world_.now + kRest;
    last_customer_.erase(port);
  }
}

/// True if the customer may have the port, which no connection uses.
bool Copy::is_free(std::uint32_t port, std::uint32_t customer) {
  const auto last = last_customer_.find(port);
  if (last != last_customer_.end() && last->second == customer) return true;
  if (world_.mistake == Mistake::reused_early) return rests_until[port] <= world_.now;
  return leaving_[port].empty() && rests_until[port] <= world_.now &&
         unsure_at_ + kRest <= world_.now;
}

std::optional<std::uint32_t> Copy::free_port(std::uint32_t customer) {
  for (const std::uint32_t grant : grants) {
    if (!core.may_use(grant) && world_.mistake != Mistake::grant_kept) continue;
    std::set<std::uint32_t> used;
    bool is_his = true;
    for (const auto& [key, connection] : connections) {
      if (connection.port / kPortsOfGrant != grant) continue;
      is_his &= connection.customer == customer;
      used.insert(connection.port);
    }
    for (unsigned p = 0; p < kPortsOfGrant && is_his; ++p) {
      const std::uint32_t port = grant * kPortsOfGrant + p;
      if (!used.contains(port) && is_free(port, customer)) return port;
    }
  }
  return std::nullopt;
}

/// Hands grants back, most of them used by connections.
void Copy::hand_back(ShardRecord& record) {
  const bool is_early = world_.mistake == Mistake::handed_back_early;
  const std::size_t most = world_.chance(20) ? kMost / 2 : kMost;
  while ((core.is_in_sync() || is_early) && grants.size() > most) {
    auto at = grants.begin();
    std::advance(at, world_.below(static_cast<unsigned>(grants.size())));
    core.hand_back(*at);
    if (is_early) record.grants[*at] = {};
    grants.erase(at);
  }
  for (const std::uint32_t grant : core.handed_back()) record.grants[grant] = {};
  for (std::uint32_t grant = 0; grant < kGrants; ++grant) {
    if (core.leaves(grant) && record.grants[grant].holder != member_) core.withdraw(grant);
  }
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
  const auto [customer, port, seen] = is->second;
  rests_until[port] = world_.now + kRest;
  last_customer_[port] = customer;
  if (core.role() == CopyRole::master && core.other() != Member::none)
    leaving_[port].emplace(key, std::nullopt);
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
  auto& kept = world_.kept[{shard_, core.other(), core.epoch()}];
  const bool is_master = core.role() == CopyRole::master;
  std::erase_if(told_, [&](const auto& one) {
    if (!core.is_known(one.first)) return false;
    if (is_master && one.second.is_there == 1 && connections.contains(one.second.key))
      kept.insert(one.second.key);
    return true;
  });
  for (auto& [port, ends] : leaving_) {
    const auto known = std::erase_if(
        ends, [&](const auto& end) { return end.second && core.is_known(*end.second); });
    if (known > 0) rests_until[port] = world_.now + kRest;  // until now the other copy had it
  }
  const bool may_lack = core.role() == CopyRole::slave && !core.is_in_sync();
  if (!core.is_settled() || may_lack) unsure_at_ = world_.now;
}

std::string World::run(int ticks) {
  for (const int until = now + ticks; now < until && wrong.empty(); ++now) step(true);
  heal();
  for (const int until = now + 20'000; now < until && wrong.empty(); ++now) step(false);
  for (unsigned shard = 0; shard < kShards && wrong.empty(); ++shard) {
    const ShardRecord& record = store_[shard];
    const Copy* const master = copy_of(record.master, shard);
    const Copy* const slave = copy_of(record.slave, shard);
    if (master == nullptr || slave == nullptr || !master->core.is_in_sync() ||
        !slave->core.is_in_sync())
      fail("shard " + std::to_string(shard) + " has no two copies in sync at the end");
  }
  return wrong;
}

void World::send(Member to, const MessageHead& head, std::span<const std::byte> payload) {
  const unsigned copies = chance(5) ? 0 : chance(2) ? 2 : 1;
  for (unsigned n = 0; n < copies; ++n) {
    Sent sent{.from = sender, .to = to, .bytes = {}};
    const auto head_bytes = std::as_bytes(std::span(&head, 1));
    sent.bytes.assign(head_bytes.begin(), head_bytes.end());
    sent.bytes.insert(sent.bytes.end(), payload.begin(), payload.end());
    const unsigned takes = 1 + below(8) * (chance(3) ? 20 : 1);
    on_the_way_.emplace(now + static_cast<int>(takes), std::move(sent));
  }
}

void World::start(unsigned n) {
  servers_[n] = Server{};
  servers_[n].member = Member{++members_};
  servers_[n].copies.resize(kShards);
  is_server_of_[servers_[n].member] = n;
  // The predecessor is gone for sure: what it had, the masters get: they have its connections.
  for (unsigned shard = 0; shard < kShards; ++shard) {
    std::erase_if(store_[shard].unsettled,
                  [&](Member one) { return one != servers_[n].member && is_server_of_[one] == n; });
    for (GrantRecord& grant : store_[shard].grants) {
      if (grant.holder != Member::none && grant.holder != servers_[n].member &&
          is_server_of_[grant.holder] == n)
        give_back(shard, grant);
    }
  }
}

void World::give_back(unsigned shard, GrantRecord& grant) {
  const Member master = store_[shard].master;
  const bool goes_to_master = master != Member::none && master != grant.holder &&
                              servers_[is_server_of_[master]].member == master;
  grant.holder = goes_to_master ? master : Member::none;
  grant.waits = !goes_to_master;
}

void World::heal() {
  cuts_.clear();
  for (unsigned n = 0; n < kServers; ++n) {
    servers_[n].stopped_until = 0;
    if (!servers_[n].is_up) start(n);
  }
}

void World::step(bool with_faults) {
  if (with_faults) fault();
  deliver();
  for (unsigned n = 0; n < kServers; ++n) {
    if ((now + static_cast<int>(n)) % 10 == 0) follow_store(n);
  }
  if (now % 10 == 5) manage(with_faults);
  route();
  packets();
  for (unsigned n = 0; n < kServers; ++n) {
    if (!runs(n)) continue;
    for (const auto& copy : servers_[n].copies) {
      if (copy == nullptr) continue;
      copy->age();
      sender = servers_[n].member;
      copy->core.send(*this, tick());
      copy->note_acknowledged();
    }
  }
}

void World::fault() {
  if (below(400) != 0) return;
  const unsigned n = below(kServers);
  const int until = now + static_cast<int>(below(chance(30) ? 3000 : 400));
  switch (below(4)) {
    case 0:
      servers_[n].is_up = false;
      servers_[n].copies.clear();
      servers_[n].copies.resize(kShards);
      servers_[n].stopped_until = until;
      return;
    case 1:
      servers_[n].stopped_until = until;
      return;
    default: {
      const unsigned other = below(kServers + kSwitches + 1);
      if (other != n) cuts_[std::minmax(n, other)] = until;
    }
  }
}

void World::deliver() {
  for (auto at = on_the_way_.begin(); at != on_the_way_.end() && at->first <= now;) {
    const unsigned n = is_server_of_[at->second.to];
    if (servers_[n].is_up && servers_[n].stopped_until > now) {  // waits in the socket
      ++at;
      continue;
    }
    const Sent sent = std::move(at->second);
    at = on_the_way_.erase(at);
    const unsigned from = is_server_of_[sent.from];
    if (servers_[n].member != sent.to || !servers_[n].is_up || is_cut(n, from)) continue;
    receive(n, sent);
  }
  for (unsigned n = 0; n < kServers; ++n) {
    if (!servers_[n].is_up && servers_[n].stopped_until <= now) start(n);
  }
}

void World::receive(unsigned n, const Sent& sent) {
  std::span<const std::byte> left = sent.bytes;
  const auto taken = take_message(left);
  if (!taken || !left.empty()) return fail("a message cannot be read");
  Message message = *taken;
  const auto& copy = servers_[n].copies[message.head.shard];
  if (copy == nullptr) return;
  Member from = sent.from;
  delivering = message.head.epoch;
  if (mistake == Mistake::epoch_unchecked && delivering < copy->core.epoch()) {
    message.head.epoch = copy->core.epoch();
    from = copy->core.other();
  }
  copy->core.receive(from, message, tick());
  copy->note_acknowledged();
}

void World::follow_store(unsigned n) {
  if (!reaches_store(n) || chance(20)) return;
  Server& server = servers_[n];
  lease_[server.member] = now;
  for (unsigned shard = 0; shard < kShards; ++shard) {
    ShardRecord& record = store_[shard];
    const bool is_master = record.master == server.member;
    const bool is_slave = record.slave == server.member;
    auto& copy = server.copies[shard];
    if (is_master || is_slave) {
      if (copy == nullptr) copy = std::make_unique<Copy>(*this, server.member, shard);
    } else if (mistake != Mistake::grant_kept) {
      copy.reset();  // with its connections
    }
    record.unsettled.erase(server.member);
    const CopyRole role = is_master  ? CopyRole::master
                          : is_slave ? CopyRole::slave
                                     : CopyRole::none;
    const Member other = is_master ? record.slave : is_slave ? record.master : Member::none;
    if (copy != nullptr) {
      copy->assign({.epoch = record.epoch, .role = role, .other = other});
      if (record.unsettled.empty()) copy->core.settle(record.epoch);
    }
    if (is_master) record.is_in_sync = copy->core.is_in_sync();
    for (std::uint32_t g = 0; g < kGrants; ++g) {
      GrantRecord& grant = record.grants[g];
      if (is_master && grant.waits) grant = {.holder = server.member};
      if (grant.holder != server.member) continue;
      if (role == CopyRole::none) {
        give_back(shard, grant);
      } else {
        if (!copy->core.has(g)) judge_new_holder(shard, *copy, g);
        copy->get(g);
      }
    }
    if (is_master) copy->hand_back(record);
  }
}

/// A slave that gets a grant must know the connections of the master that use it. One that is not
/// in sync opens nothing for other customers yet.
void World::judge_new_holder(unsigned shard, const Copy& slave, std::uint32_t grant) {
  const Copy* const master = copy_of(store_[shard].master, shard);
  if (master == nullptr || slave.core.role() != CopyRole::slave || !slave.core.is_in_sync() ||
      master->core.role() != CopyRole::master || master->core.epoch() != slave.core.epoch())
    return;
  for (const auto& [key, connection] : master->connections) {
    if (connection.port / kPortsOfGrant == grant && !slave.connections.contains(key))
      fail("a slave gets a grant, and lacks a connection that uses it");
  }
}

void World::manage(bool moves) {
  const auto is_lost = [this](Member member) {
    return member == Member::none || lease_[member] + kLease < now;
  };
  for (unsigned shard = 0; shard < kShards; ++shard) {
    ShardRecord& record = store_[shard];
    const auto other_than = [&](Member taken) {
      const Member found = servers_[below(kServers)].member;
      return found == taken || is_lost(found) ? Member::none : found;
    };
    const bool had_both = record.is_in_sync;
    if (is_lost(record.master)) {
      if (!is_lost(record.slave) && had_both) {
        assign(record, record.slave, Member::none);
      } else if (record.master == Member::none || lease_[record.master] + 3000 < now) {
        const Member found = other_than(Member::none);
        if (found != Member::none) assign(record, found, Member::none);
      }
    } else if (record.slave == Member::none || (is_lost(record.slave) && chance(20))) {
      const Member found = other_than(record.master);
      if (found != record.slave) assign(record, record.master, found);
    } else if (moves && had_both && below(300) == 0) {
      assign(record, record.slave, record.master);
    } else if (moves && below(1000) == 0) {
      assign(record, record.master, Member::none);
    }
    for (const Member holder : {record.master, record.slave}) {
      if (is_lost(holder)) continue;
      const bool knows_all = holder == record.master || record.is_in_sync;
      if (!knows_all) continue;
      const Copy* const copy = copy_of(holder, shard);
      const auto unused = std::ranges::count_if(record.grants, [&](const GrantRecord& grant) {
        const auto g = static_cast<std::uint32_t>(&grant - record.grants.data());
        return grant.holder == holder && (copy == nullptr || !copy->uses(g));
      });
      for (GrantRecord& grant : record.grants) {
        if (unused >= kWanted) break;
        if (grant.holder != Member::none || grant.waits) continue;
        grant.holder = holder;
        break;
      }
    }
  }
}

void World::assign(ShardRecord& record, Member master, Member slave) {
  promotions += record.master != master ? 1 : 0;
  record.epoch += 1;
  for (const Member had : {record.master, record.slave}) {
    if (had != Member::none && servers_[is_server_of_[had]].member == had)
      record.unsettled.insert(had);
  }
  record.master = master;
  record.slave = slave;
  record.is_in_sync = false;
}

void World::route() {
  for (unsigned at = 0; at < kSwitches; ++at) {
    for (unsigned shard = 0; shard < kShards; ++shard) {
      if (below(30) != 0) continue;
      int best = 0;
      way_[at][shard] = kServers;
      for (unsigned n = 0; n < kServers; ++n) {
        const Copy* const copy = runs(n) ? servers_[n].copies[shard].get() : nullptr;
        if (copy == nullptr || is_cut(n, kSwitch) || is_cut(n, kSwitch + 1)) continue;
        const int preference = copy->core.role() == CopyRole::master ? 2
                               : copy->core.role() == CopyRole::slave && copy->core.is_in_sync()
                                   ? 1
                                   : 0;
        if (preference > best || (preference == best && best > 0 && chance(50))) {
          best = preference;
          way_[at][shard] = n;
        }
      }
    }
  }
}

void World::packets() {
  const unsigned shard = below(kShards);
  const std::uint32_t customer = below(kCustomers);
  auto& keys = alive_[shard][customer];
  if (keys.size() < 3 || (keys.size() < 6 && chance(2))) keys.push_back(++last_key_);
  const std::size_t which = below(static_cast<unsigned>(keys.size()));
  Copy* const copy = copy_on_way(0, shard);
  if (copy != nullptr) {
    const auto port = copy->serve(keys[which], customer);
    if (port) use(shard, *port, customer);
  }
  if (copy != nullptr && below(100) == 0) {  // the customer closes it, or falls silent
    if (copy->core.role() == CopyRole::master && chance(50)) copy->end(keys[which]);
    keys.erase(keys.begin() + static_cast<std::ptrdiff_t>(which));
  }
  Copy* const inbound = copy_on_way(1, shard);
  if (inbound == nullptr || inbound->connections.empty()) return;
  const std::uint32_t port = below(kGrants * kPortsOfGrant);
  for (const auto& [key, connection] : inbound->connections) {
    if (connection.port == port) use(shard, port, connection.customer);
  }
}

void World::use(unsigned shard, std::uint32_t port, std::uint32_t customer) {
  ++served;
  Use& last = uses_[shard][port];
  if (last.customer != customer && now - last.at < kLeast)
    fail("port " + std::to_string(port) + " of shard " + std::to_string(shard) +
         " has two customers");
  last = {customer, now};
}

}  // namespace millrace::test
