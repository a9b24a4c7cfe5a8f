#include "function/nat/deployment.h"

#include <fmt/format.h>

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
      if (first == leaves) {
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
    if (blocks_->has(of->destination)) {
      const auto customer = blocks_->customer_at({of->destination, of->destination_port});
      out.side = Side::originator;
      out.verdict = Verdict::no_mapping;
      out.why = customer ? fmt::format(
                               "its destination is a public port of {}, but it belongs to no "
                               "session; the pool's filtering decides whether it begins one",
                               to_string(*customer))
                         : std::string("its destination is a public port that nobody has");
      return out;
    }
    const NatRule* const rule = settings_->rule_for(of->source, of->destination);
    if (rule == nullptr) {
      out.why = "no rule of NAT has its source, or its destination is exempt";
      return out;
    }
    out.side = Side::originator;
    out.verdict = Verdict::tracked;
    out.why = fmt::format("it has no session yet, and gets a public port of the pool \"{}\"",
                          settings_->pools[rule->pool].name);
    return out;
  }

 private:
  std::shared_ptr<const NatSettings> settings_;
  std::shared_ptr<const PortBlocks> blocks_;
};

}  // namespace

Result<std::unique_ptr<FunctionDeployment>> NatDeployment::create(
    std::shared_ptr<const FunctionSettings> settings, const FunctionRun& run) {
  auto is = std::static_pointer_cast<const NatSettings>(std::move(settings));
  auto blocks = PortBlocks::create(is->pools, run.secret);
  if (!blocks) return std::unexpected(blocks.error());
  return std::unique_ptr<FunctionDeployment>(
      new NatDeployment(std::move(is), std::move(*blocks), run.workers));
}

Function& NatDeployment::make(unsigned worker) {
  all_[worker] = std::make_unique<Nat>(settings_, blocks_);
  return *all_[worker];
}

Result<Review> NatDeployment::update(std::shared_ptr<const FunctionSettings> settings,
                                     const FunctionRun&, const OnEachWorker& on_each) {
  auto is = std::static_pointer_cast<const NatSettings>(std::move(settings));
  std::vector<std::shared_ptr<const NatSettings>> each(all_.size(), is);
  if (!on_each([&](unsigned n) { all_[n]->take_on(each[n]); }))
    return std::unexpected(Error{"millrace is ending: nothing can change any more"});
  settings_ = std::move(is);
  return Review::none;
}

std::shared_ptr<const FunctionView> NatDeployment::view() const {
  return std::make_shared<const NatView>(settings_, blocks_);
}

Json NatDeployment::pools() const {
  Json list = Json::array();
  for (std::size_t n = 0; n < settings_->pools.size(); ++n) {
    const PoolUse is = blocks_->use_of(n);
    list.push_back({{"pool", settings_->pools[n].name},
                    {"addresses", is.addresses},
                    {"blocks", is.blocks},
                    {"held", is.held},
                    {"resting", is.resting},
                    {"most_held", is.most_held},
                    {"customers", is.customers},
                    {"sessions", is.sessions},
                    {"mappings", is.mappings},
                    {"no_port", is.no_port},
                    {"over_limit", is.over_limit}});
  }
  return list;
}

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
          {"nat_pools", pools()}};
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

/// Returns the blocks of the customer whose address the parameters give.
CommandResult<Json> NatDeployment::customer(Parameters given) const {
  const auto wrong = [](std::string_view name, std::string_view value, std::string_view what) {
    return std::unexpected(
        Refusal{Refusal::Kind::wrong, wrong_parameter(name, value, what).error().message});
  };
  std::optional<AddressV4> address;
  for (const auto& [name, value] : given) {
    if (name != "address") return wrong("the parameter", name, "is not known: give address");
    address = parse_address<AddressV4>(value);
    if (!address) return wrong("address", value, "is no IPv4 address: give one like 10.0.0.5");
  }
  if (!address)
    return std::unexpected(
        Refusal{Refusal::Kind::wrong, "the parameter address is missing: give the customer's"});
  Json list = Json::array();
  for (const HeldBlock& one : blocks_->held_by(*address)) {
    list.push_back({{"pool", settings_->pools[one.pool].name},
                    {"address", to_string(one.address)},
                    {"first_port", one.first_port},
                    {"last_port", one.last_port},
                    {"mappings", one.mappings},
                    {"sessions", one.sessions}});
  }
  return list;
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
  return CommandDone{.result = pools()};
}

}  // namespace millrace
