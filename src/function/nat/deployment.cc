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

namespace millrace {
namespace {

class NatView final : public FunctionView {
 public:
  NatView(std::shared_ptr<const NatSettings> settings, std::shared_ptr<const PortBlocks> blocks)
      : settings_(std::move(settings)), blocks_(std::move(blocks)) {}

  Explained explain(const AnyKey& key, const Flow* connection, bool) const override {
    Explained out;
    const auto* const of = std::get_if<KeyV4>(&key);
    if (of == nullptr) {
      out.why = "NAT translates no IPv6";
      return out;
    }
    if (connection != nullptr) {
      const auto& first = std::get<KeyV4>(connection->key);
      const auto& leaves = std::get<KeyV4>(connection->translated);
      if (!NatV4::is_translated(connection->image)) {
        out.why = "no rule of NAT has its source, and no pool its destination";
        return out;
      }
      out.side = *of == first ? Side::originator : Side::reply;
      out.verdict = Verdict::tracked;
      out.why = fmt::format("it belongs to a session of {} to {}, which leaves as {} to {}",
                            with_port(first.source, first.source_port),
                            with_port(first.destination, first.destination_port),
                            with_port(leaves.source, leaves.source_port),
                            with_port(leaves.destination, leaves.destination_port));
      return out;
    }
    const NatRule* const rule =
        settings_->rule_for(of->number_of_zone(), of->source, of->destination);
    if (of->number_of_zone() != 0 && rule == nullptr) {
      out.why = "no rule of NAT for this customer has its source";
      return out;
    }
    const NatForwards& forwards = settings_->forwards;
    const bool is_public = blocks_->has(of->destination) || forwards.has(of->destination);
    if (rule == nullptr && !is_public) {
      out.why = "no rule of NAT has its source, or its destination is exempt";
      return out;
    }
    out.side = Side::originator;
    out.verdict = Verdict::tracked;
    if (rule == nullptr) {
      explain_from_outside(*of, out);
      return out;
    }
    const auto* const from =
        forwards.from(of->number_of_zone(), of->source, of->source_port, of->protocol);
    out.why = from != nullptr
                  ? fmt::format("it has no session yet, and leaves as {}, as a forward says",
                                with_port(from->address, from->out(of->source_port)))
                  : fmt::format("it has no session yet, and gets a public port of the pool \"{}\"",
                                settings_->pools[rule->pool].name);
    const auto range = settings_->pools[rule->pool].range_of(
        NatSettings::customer_by(*rule, of->number_of_zone(), of->source));
    if (from == nullptr && range)
      out.why +=
          fmt::format(": of {}, {} to {}", to_string(range->address), range->first, range->last);
    if (is_public)
      out.why += "; as its destination is public, too, it then comes in again, as if from outside";
    return out;
  }

  /// Appends the name of the session's customer, if he is behind a tunnel.
  void append_names(std::string& text, const Flow& connection) const override {
    const auto* const key = std::get_if<KeyV4>(&connection.key);
    if (key == nullptr) return;
    const Zone from = key->number_of_zone();
    const Zone to = std::get<KeyV4>(connection.translated).number_of_zone();
    if (const Zone customer = from != 0 ? from : to; customer != 0)
      text += ",\"customer\":" + Json(settings_->name_of(customer)).dump();
  }

 private:
  /// Explains what becomes of a packet to a public address that has no session.
  void explain_from_outside(const KeyV4& of, Explained& out) const {
    const auto* const to = settings_->forwards.to(of.destination, of.destination_port, of.protocol);
    if (to != nullptr) {
      out.why = fmt::format("it has no session yet, and goes to {}, as a forward says",
                            with_port(to->inside, to->in(of.destination_port)));
      return;
    }
    auto customer = blocks_->customer_at({of.destination, of.destination_port});
    if (!customer) customer = settings_->customer_by_place(of.destination, of.destination_port);
    out.verdict = Verdict::no_mapping;
    out.why = customer ? fmt::format(
                             "its destination is a public port of {}, but it belongs to no "
                             "session; the pool's filtering decides whether it begins one",
                             settings_->name_of(*customer))
                       : std::string("its destination is a public port that nobody has");
  }

  std::shared_ptr<const NatSettings> settings_;
  std::shared_ptr<const PortBlocks> blocks_;
};

/// Returns a group of customers as another process is told of it.
Json told(const NatSettings& settings, const CustomerGroup& group) {
  const std::string& port = settings.ports[group.link];
  if (!group.vlans.is_empty())
    return {{"port", port}, {"vlans", to_string(group.vlans)}, {"name", group.name}};
  return {{"port", port},
          {"ends", to_string(group.ends)},
          {"key", group.key ? Json(*group.key) : Json()},
          {"name", group.name}};
}

/// Returns the number up to which customers are those of the process that sent `offered`.
Zone same_in(const NatSettings& settings, const Json& offered) {
  const Customers& customers = *settings.customers;
  const Json theirs = offered.value("nat_customers", Json::array());
  for (std::size_t n = 0; n < customers.groups().size(); ++n) {
    if (n >= theirs.size() || theirs[n] != told(settings, customers.groups()[n]))
      return customers.first_of(n) - 1;
  }
  // The rest are customers only there, without a tunnel here.
  return customers.size();
}

}  // namespace

Result<std::unique_ptr<FunctionDeployment>> NatDeployment::create(
    std::shared_ptr<const FunctionSettings> settings, const FunctionRun& run) {
  auto is = std::static_pointer_cast<const NatSettings>(std::move(settings));
  auto blocks = PortBlocks::create(is->pools, run.secret);
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
      log_(std::move(log)),
      all_(run.workers) {
  if (run.offered != nullptr) same_customers_ = same_in(*settings_, *run.offered);
}

/// Tells which numbers customers have, since connections know customers by them.
bool NatDeployment::tell_first(Json& to, const OnEachWorker&) const {
  Json groups = Json::array();
  for (const CustomerGroup& group : settings_->customers->groups())
    groups.push_back(told(*settings_, group));
  to["nat_customers"] = std::move(groups);
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
                                     const FunctionRun&, const OnEachWorker& on_each) {
  auto is = std::static_pointer_cast<const NatSettings>(std::move(settings));
  auto made = blocks_->changed_to(is->pools);
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
  return std::make_shared<const NatView>(settings_, blocks_);
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
                                       {"over_limit", is.over_limit}});
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
  const auto wrong = [](std::string_view name, std::string_view value, std::string_view what) {
    return std::unexpected(
        Refusal{Refusal::Kind::wrong, wrong_parameter(name, value, what).error().message});
  };
  std::optional<CustomerNumber> is;
  for (const auto& [name, value] : given) {
    if (name != "customer") return wrong("the parameter", name, "is not known: give customer");
    is = settings_->customer_named(std::string(value));
    if (!is)
      return wrong("customer", value,
                   "is no customer: give the address of one, or his name in [[port]].customers");
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
  return Json{{"ranges", ranges}, {"blocks", list}, {"forwards", forwards}};
}

auto NatDeployment::command(std::string_view path, Parameters given, const OnEachWorker&)
    -> CommandResult<CommandDone> {
  if (path == "/nat/customer") {
    auto found = customer(given);
    if (!found) return std::unexpected(found.error());
    return CommandDone{.result = std::move(*found)};
  }
  if (!given.empty())
    return std::unexpected(
        Refusal{Refusal::Kind::wrong,
                wrong_parameter("the parameter", given.front().first, "is not known: leave it out")
                    .error()
                    .message});
  return CommandDone{.result = path == "/nat/log" ? logs() : pools(true)};
}

}  // namespace millrace
