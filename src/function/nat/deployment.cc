#include "function/nat/deployment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>
#include <variant>

#include "core/address.h"
#include "core/grouped.h"
#include "core/json.h"
#include "core/parameters.h"
#include "function/command_done.h"
#include "function/grants.h"

namespace millrace {
namespace {

class NatView final : public FunctionView {
 public:
  /// `is_live`: the blocks are those of a run, not of a configuration alone.
  NatView(std::shared_ptr<const NatSettings> settings, std::shared_ptr<const PortBlocks> blocks,
          bool is_live)
      : settings_(std::move(settings)), blocks_(std::move(blocks)), is_live_(is_live) {}

  Explained explain(const AnyKey& key, const Flow* connection, bool) const override {
    Explained out;
    const auto* const of = std::get_if<KeyV4>(&key);
    if (of == nullptr) {
      const bool is_customers = std::get<KeyV6>(key).number_of_zone() != 0;
      return is_customers ? untranslated("NAT translates no IPv6")
                          : unchanged("NAT translates no IPv6");
    }
    if (connection == nullptr) return explain_first(*of);
    const auto& first = std::get<KeyV4>(connection->key);
    const auto& leaves = std::get<KeyV4>(connection->translated);
    if (!NatV4::is_translated(connection->image))
      return unchanged("no rule of NAT has its source, and no pool its destination");
    out.side = *of == first ? Side::originator : Side::reply;
    out.verdict = Verdict::tracked;
    out.why = fmt::format("it belongs to a session of {} to {}, which leaves as {} to {}",
                          with_port(first.source, first.source_port),
                          with_port(first.destination, first.destination_port),
                          with_port(leaves.source, leaves.source_port),
                          with_port(leaves.destination, leaves.destination_port));
    return out;
  }

  /// Appends the name of the session's customer, if he is a port's.
  void append_names(std::string& text, const Flow& connection) const override {
    const auto* const key = std::get_if<KeyV4>(&connection.key);
    if (key == nullptr) return;
    const Zone from = key->number_of_zone();
    const Zone to = std::get<KeyV4>(connection.translated).number_of_zone();
    if (const Zone customer = from != 0 ? from : to; customer != 0)
      text += ",\"customer\":" + Json(settings_->name_of(customer)).dump();
  }

 private:
  static constexpr const char* kNobodysOwnPort =
      "its destination is millrace's own address, and no customer is known to have that port";

  static Explained unchanged(std::string why) {
    Explained out;
    out.why = std::move(why);
    return out;
  }
  static Explained dropped(Verdict verdict, std::string why) {
    return {.side = Side::originator, .verdict = verdict, .why = std::move(why)};
  }
  /// Explains a packet of a port's customer that leaves with no public source.
  static Explained untranslated(const std::string& why) {
    return dropped(Verdict::untranslated, why + ", so replies would not find him");
  }

  /// Explains a packet that has no session.
  Explained explain_first(const KeyV4& of) const {
    const Zone zone = of.number_of_zone();
    const NatRule* const rule = settings_->rule_for(zone, of.source, of.destination);
    const bool is_hosts = settings_->is_hosts(zone, of.destination);
    if (zone != 0 && rule == nullptr) {
      const std::string why = "no rule of NAT for this customer has its source";
      return is_hosts ? unchanged(why) : untranslated(why);
    }
    const NatForwards& forwards = settings_->forwards;
    const bool is_public = blocks_->has(of.destination) || forwards.has(of.destination);
    if (rule != nullptr && is_hosts && !NatV4::is_taken(*settings_, *blocks_, of))
      return unchanged(is_public ? kNobodysOwnPort : "its destination is millrace's own address");
    if (rule != nullptr) {
      Explained out = explain_customers(*rule, of);
      if (is_public && !is_drop(out.verdict))
        out.why +=
            "; as its destination is public, too, it then comes in again, as if from outside";
      return out;
    }
    const auto* const to = forwards.to(of.destination, of.destination_port, of.protocol);
    if (to != nullptr) {
      Explained out{.side = Side::originator, .verdict = Verdict::tracked};
      if (zone_of(to->customer) == 0) out.sent_to = to->inside;
      out.why = fmt::format("it has no session yet, and goes to {}, as a forward says",
                            with_port(to->inside, to->in(of.destination_port)));
      return out;
    }
    if (!is_public) return unchanged(why_no_rule(of));
    const EndpointV4 end = destination_of(of);
    auto customer = blocks_->customer_at(end);
    if (!customer) customer = settings_->customer_by_place(end.address, end.port);
    if (!customer && is_hosts) return unchanged(kNobodysOwnPort);
    return dropped(Verdict::no_mapping, why_no_mapping(end, customer));
  }

  /// Says whose public port that is, as far as it is known.
  std::string why_no_mapping(const EndpointV4& to,
                             const std::optional<CustomerNumber>& customer) const {
    if (customer)
      return fmt::format(
          "its destination is a public port of {}, but it belongs to no session; the pool's "
          "filtering decides whether it begins one",
          settings_->name_of(*customer));
    const NatPool* const pool = settings_->pool_with(to.address);
    if (is_live_ || pool == nullptr || pool->is_deterministic)
      return "its destination is a public port that nobody has";
    return fmt::format(
        "unless a customer has its destination, a public port of the pool \"{}\"; the file does "
        "not "
        "say who: `millctl explain` does, and for the past the log",
        pool->name);
  }

  std::string why_no_rule(const KeyV4& of) const {
    if (settings_->rule_of(0, of.source) != nullptr)
      return "NAT's rule for its source leaves its destination out";
    if (settings_->is_ports_customers(of.source))
      return "NAT's rules for its source are for customers behind tunnels and in VLANs; say with "
             "--customer who sends it";
    return "no rule of NAT has its source";
  }

  /// Explains a packet that begins a session by that rule.
  Explained explain_customers(const NatRule& rule, const KeyV4& of) const {
    const Zone zone = of.number_of_zone();
    const NatPool& pool = settings_->pools[rule.pool];
    const CustomerNumber customer = NatSettings::customer_by(rule, zone, of.source);
    Explained out{.side = Side::originator, .verdict = Verdict::tracked, .keeps_destination = true};
    const auto* const from = settings_->forwards.from(zone, of.source, of.source_port, of.protocol);
    if (from != nullptr) {
      out.why = fmt::format("it has no session yet, and leaves as {}, as a forward says",
                            with_port(from->address, from->out(of.source_port)));
      return out;
    }
    out.verdict = blocks_->outlook({.inside = source_of(of),
                                    .remote = destination_of(of),
                                    .customer = customer,
                                    .protocol = of.protocol,
                                    .pool = rule.pool});
    if (out.verdict == Verdict::customer_limit) {
      out.why = fmt::format("{} has {} sessions, as many as sessions_per_customer allows",
                            settings_->name_of(customer), pool.sessions_per_customer);
      return out;
    }
    if (out.verdict == Verdict::no_port) {
      out.why = fmt::format("the pool \"{}\" has no free port for {}", pool.name,
                            settings_->name_of(customer));
      return out;
    }
    out.why =
        fmt::format("it has no session yet, and gets a public port of the pool \"{}\"", pool.name);
    if (const auto range = pool.range_of(customer))
      out.why +=
          fmt::format(": of {}, {} to {}", to_string(range->address), range->first, range->last);
    return out;
  }

  std::shared_ptr<const NatSettings> settings_;
  std::shared_ptr<const PortBlocks> blocks_;
  bool is_live_;
};

/// Returns the number up to which customers are those of the process that sent `offered`.
Zone same_in(const NatSettings& settings, const Json& offered) {
  const Customers& customers = *settings.customers;
  const Json theirs = offered.value("nat_customers", Json::array());
  const Json ours = settings.customers_as_json();
  for (std::size_t n = 0; n < ours.size(); ++n) {
    if (n >= theirs.size() || theirs[n] != ours[n]) return customers.first_of(n) - 1;
  }
  // Customers with greater numbers are there only in the other process.
  return customers.size();
}

/// Checks that each shard of a cluster gets addresses. Errors (usage): it does not.
Result<void> check_grants(const NatSettings& settings, const Grants& grants) {
  const auto wrong = [](const NatPool& pool, const std::string& what) {
    return std::unexpected(Error{"nat.pool " + pool.name + ": " + what, Error::Kind::usage});
  };
  for (const NatPool& pool : settings.pools) {
    for (const AddressV4& own : settings.own) {
      if (pool.has(own))
        return wrong(pool, "an address of a port, " + to_string(own) +
                               ", cannot be a pool's in a cluster: give addresses of no server");
    }
    std::vector<bool> has(pool.is_deterministic ? 0 : grants.shards());
    for (std::uint32_t n = 0; !has.empty() && n < pool.addresses(); ++n)
      has[grants.shard_of(pool.address_at(n))] = true;
    const auto lacks = std::ranges::count(has, false);
    if (lacks != 0)
      return wrong(pool, fmt::format("each of a cluster's {0} shards (spread.entries) needs an "
                                     "address, and {1} have none: give {0} addresses that follow "
                                     "one another, such as a prefix of {2} bits, or more",
                                     grants.shards(), lacks, 33 - std::bit_width(grants.shards())));
  }
  return {};
}

/// Checks that each server gets blocks of each address. Errors (usage): it does not.
Result<void> check_share(const NatSettings& settings, const Share& share) {
  if (share.grants) return check_grants(settings, *share.grants);
  for (const NatPool& pool : settings.pools) {
    if (pool.is_deterministic || pool.blocks_per_address() >= share.of) continue;
    return std::unexpected(
        Error{"nat.pool " + pool.name +
                  ": each address is one block of ports, and each server of a pair needs one: give "
                  "a smaller block_size",
              Error::Kind::usage});
  }
  return {};
}

/// Refuses a request for a parameter that is wrong.
std::unexpected<Refusal> wrong(std::string_view name, std::string_view value,
                               std::string_view what) {
  return std::unexpected(
      Refusal{Refusal::Kind::wrong, wrong_parameter(name, value, what).error().message});
}

}  // namespace

Result<std::unique_ptr<FunctionDeployment>> NatDeployment::create(
    std::shared_ptr<const FunctionSettings> settings, const FunctionRun& run) {
  auto is = std::static_pointer_cast<const NatSettings>(std::move(settings));
  if (auto ok = check_share(*is, run.share); !ok) return std::unexpected(ok.error());
  auto blocks = PortBlocks::create(is->pools, run.secret, run.is_live ? run.share : Share{});
  if (!blocks) return std::unexpected(blocks.error());
  std::shared_ptr<PortBlocks> shared = std::move(*blocks);
  std::unique_ptr<BlockLog> log;
  if (is->log.is_there() && (run.is_live || run.capture_ms != 0)) {
    auto opened = BlockLog::open(is, shared, run.capture_ms, run.offered != nullptr);
    if (!opened) return std::unexpected(opened.error());
    log = std::move(*opened);
    if (run.offered == nullptr) log->start();
  }
  return std::unique_ptr<FunctionDeployment>(
      new NatDeployment(std::move(is), std::move(shared), std::move(log), run));
}

NatDeployment::NatDeployment(std::shared_ptr<const NatSettings> settings,
                             std::shared_ptr<PortBlocks> blocks, std::unique_ptr<BlockLog> log,
                             const FunctionRun& run)
    : settings_(std::move(settings)),
      blocks_(std::move(blocks)),
      store_(blocks_->store()),
      log_(std::move(log)),
      all_(run.workers),
      is_live_(run.is_live) {
  if (run.offered != nullptr) same_customers_ = same_in(*settings_, *run.offered);
}

/// Tells which numbers customers have, since connections know customers by them.
bool NatDeployment::tell_first(Json& to, const OnEachWorker&) const {
  to["nat_customers"] = settings_->customers_as_json();
  return true;
}

/// The log of this process ends before that of the next one begins.
void NatDeployment::tell_last(Json&, const OnEachWorker&) const {
  if (log_ != nullptr) log_->finish(true);
}

void NatDeployment::take_last(const Json*) {
  for (const auto& one : all_) one->resume_up_to(Customers::kMost);
  if (log_ != nullptr) log_->start();
}

Function& NatDeployment::make(unsigned worker) {
  all_[worker] = std::make_unique<Nat>(settings_, blocks_);
  all_[worker]->resume_up_to(same_customers_);
  return *all_[worker];
}

Result<Review> NatDeployment::update(std::shared_ptr<const FunctionSettings> settings,
                                     const FunctionRun& run, const OnEachWorker& on_each) {
  auto is = std::static_pointer_cast<const NatSettings>(std::move(settings));
  if (auto ok = check_share(*is, run.share); !ok) return std::unexpected(ok.error());
  auto made = blocks_->changed_to(is->pools, settings_->forwards, is->forwards);
  if (!made) return std::unexpected(made.error());
  const std::shared_ptr<PortBlocks> blocks = std::move(*made);
  // First, so that the log knows each customer that gets a block.
  if (log_ != nullptr) log_->change_settings(is);
  std::vector each_settings(all_.size(), is);
  std::vector each_blocks(all_.size(), blocks);
  std::vector<Tick> ticks(all_.size());
  const auto change = [&](unsigned n) {
    ticks[n] = all_[n]->take_on(each_settings[n], each_blocks[n]);
  };
  if (!on_each(change))
    return std::unexpected(Error{"millrace is ending: nothing can change any more"});
  const auto is_before = [&](Tick one, Tick other) {
    return static_cast<std::int32_t>(one.ms - other.ms) < 0;
  };
  blocks->replace(*blocks_, *std::ranges::max_element(ticks, is_before));
  blocks_ = blocks;
  const bool has_same_ends = settings_->gives_same_ends(*is);
  settings_ = std::move(is);
  return has_same_ends ? Review::none : Review::all;
}

std::shared_ptr<const FunctionView> NatDeployment::view() const {
  return std::make_shared<const NatView>(settings_, blocks_, is_live_);
}

Json NatDeployment::pools(bool with_nearest) const {
  constexpr std::size_t kNearest = 5;
  Json list = Json::array();
  for (std::size_t n = 0; n < settings_->pools.size(); ++n) {
    const NatPool& pool = settings_->pools[n];
    const PoolUse is = blocks_->use_of(n);
    Json& one = list.emplace_back(Json{{"pool", pool.name},
                                       {"addresses", is.addresses},
                                       {"blocks", is.blocks},
                                       {"held", is.held},
                                       {"resting", is.resting},
                                       {"most_held", is.most_held},
                                       {"free_ports", (is.blocks - is.in_use()) * pool.block_size},
                                       {"nearly_empty", is.is_nearly_empty},
                                       {"customers", is.customers},
                                       {"sessions", is.sessions},
                                       {"mappings", is.mappings},
                                       {"no_port", is.no_port},
                                       {"over_limit", is.over_limit},
                                       {"no_record", is.no_record}});
    if (!with_nearest) continue;
    one["nearest"] = Json::array();
    for (const NearLimit& near : blocks_->nearest_to_limit(n, kNearest))
      one["nearest"].push_back({{"customer", settings_->name_of(near.customer)},
                                {"blocks", near.blocks},
                                {"ports", near.ports},
                                {"sessions", near.sessions},
                                {"percent", near.percent}});
  }
  return list;
}

std::vector<std::string> NatDeployment::alarms() const {
  std::vector<std::string> all;
  for (std::size_t n = 0; n < settings_->pools.size(); ++n) {
    if (blocks_->is_nearly_empty(n))
      all.push_back("the pool \"" + settings_->pools[n].name +
                    "\" of NAT is nearly empty: give it more addresses");
  }
  if (log_ != nullptr) std::ranges::move(log_->alarms(), std::back_inserter(all));
  return all;
}

Json NatDeployment::logs() const { return log_ != nullptr ? log_->statistics() : Json::array(); }

Json NatDeployment::statistics() const {
  std::uint64_t sessions = 0;
  std::uint64_t from_outside = 0;
  std::uint64_t live = 0;
  std::uint64_t out = 0;
  std::uint64_t in = 0;
  for (const auto& one : all_) {
    if (one == nullptr) continue;
    const NatCounters& of = one->counters();
    sessions += of.sessions.value();
    from_outside += of.from_outside.value();
    live += of.live.value();
    out += of.out_packets.value();
    in += of.in_packets.value();
  }
  return {{"nat",
           {{"sessions", sessions},
            {"from_outside", from_outside},
            {"live", live},
            {"out_packets", out},
            {"in_packets", in}}},
          {"nat_pools", pools(false)},
          {"nat_log", logs()}};
}

std::string NatDeployment::table() const {
  std::string text =
      fmt::format("\n{:<16}{:>10}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}\n", "pool", "addresses",
                  "blocks", "held", "customers", "sessions", "no port", "over limit");
  for (std::size_t n = 0; n < settings_->pools.size(); ++n) {
    const PoolUse is = blocks_->use_of(n);
    fmt::format_to(std::back_inserter(text), "{:<16}{:>10}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}\n",
                   settings_->pools[n].name, grouped(is.addresses), grouped(is.blocks),
                   grouped(is.held), grouped(is.customers), grouped(is.sessions),
                   grouped(is.no_port), grouped(is.over_limit));
  }
  return text;
}

/// Returns the blocks and the forwards of the customer that the parameters name.
CommandResult<Json> NatDeployment::customer(Parameters given) const {
  std::optional<CustomerNumber> is;
  for (const auto& [name, value] : given) {
    if (name != "customer") return wrong("the parameter", name, "is not known: give customer");
    is = settings_->customer_named(std::string(value));
    if (!is)
      return wrong("customer", value,
                   "is no customer: give an address or the prefix of one, or his name in "
                   "[[port]].customers");
  }
  if (!is)
    return std::unexpected(Refusal{Refusal::Kind::wrong,
                                   "the parameter customer is missing: give an address or a name"});
  Json list = Json::array();
  for (const HeldBlock& one : blocks_->held_by(*is)) {
    list.push_back({{"pool", *one.pool},
                    {"address", to_string(one.address)},
                    {"first_port", one.first_port},
                    {"last_port", one.last_port},
                    {"mappings", one.mappings},
                    {"sessions", one.sessions}});
    const auto pool = std::ranges::find(settings_->pools, *one.pool, &NatPool::name);
    if (pool == settings_->pools.end()) continue;  // a reload has taken it away
    list.back()["most_sessions"] = pool->sessions_per_customer;
    list.back()["most_blocks"] = pool->blocks_per_customer;
  }
  Json forwards = Json::array();
  for (const NatForward& one : settings_->forwards.all()) {
    if (one.customer == *is)
      forwards.push_back(
          {{"public", one.public_text()}, {"inside", with_port(one.inside, one.inside_port)}});
  }
  Json ranges = Json::array();
  for (const NatPool& pool : settings_->pools) {
    if (const auto range = pool.range_of(*is))
      ranges.push_back({{"pool", pool.name},
                        {"address", to_string(range->address)},
                        {"first_port", range->first},
                        {"last_port", range->last}});
  }
  return Json{{"customer", settings_->name_of(*is)},
              {"ranges", ranges},
              {"blocks", list},
              {"forwards", forwards}};
}

auto NatDeployment::command(std::string_view path, Parameters given, const OnEachWorker&)
    -> CommandResult<CommandDone> {
  if (path == "/nat/customer") {
    auto found = customer(given);
    if (!found) return std::unexpected(found.error());
    return CommandDone{.result = std::move(*found)};
  }
  if (!given.empty())
    return wrong("the parameter", given.front().first, "is not known: leave it out");
  return CommandDone{.result = path == "/nat/log" ? logs() : pools(true)};
}

}  // namespace millrace
