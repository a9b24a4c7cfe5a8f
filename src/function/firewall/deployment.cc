#include "function/firewall/deployment.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/json.h"
#include "function/command_done.h"
#include "function/firewall/report.h"
#include "function/json_reading.h"

namespace millrace {
namespace {

constexpr const char* kOfferedSets = "firewall_sets";

template <class A>
void change(PrefixSet& set, const SetChanges& changes) {
  std::vector<Prefix<A>>& prefixes = set.prefixes<A>();
  std::set<Prefix<A>> all(prefixes.begin(), prefixes.end());
  for (const Prefix<A>& one : changes.removed<A>()) all.erase(one);
  all.insert(changes.added<A>().begin(), changes.added<A>().end());
  prefixes.assign(all.begin(), all.end());
}

Json json_of(const SetChanges& changes) {
  Json added = Json::array();
  Json removed = Json::array();
  const auto append = [](Json& to, const auto& prefixes) {
    for (const auto& one : prefixes) to.push_back(to_string(one));
  };
  append(added, changes.added_v4);
  append(added, changes.added_v6);
  append(removed, changes.removed_v4);
  append(removed, changes.removed_v6);
  return {{"added", added}, {"removed", removed}};
}

/// Reads what `json_of` has written. Throws as function/json_reading.h says.
SetChanges changes_from(const Json& json) {
  const auto read = [&json](const char* name, auto& v4, auto& v6) {
    std::vector<Prefix<AddressV4>> all_v4;
    std::vector<Prefix<AddressV6>> all_v6;
    for (const std::string text : json.at(name)) append_prefix(text, all_v4, all_v6).value();
    v4.insert(all_v4.begin(), all_v4.end());
    v6.insert(all_v6.begin(), all_v6.end());
  };
  SetChanges changes;
  read("added", changes.added_v4, changes.added_v6);
  read("removed", changes.removed_v4, changes.removed_v6);
  return changes;
}

}  // namespace

FirewallDeployment::FirewallDeployment(std::shared_ptr<const FirewallSettings> settings,
                                       const FunctionRun& run, ChangedSets changes)
    : changes_(std::move(changes)),
      log_(std::make_shared<FirewallLog>(run.workers)),
      others_rewrite_(run.others_rewrite),
      all_(run.workers) {
  sets_ = present_sets(*settings);
  plan_ = make_plan(std::move(settings), sets_, ids_, *log_, nullptr);
}

Result<std::unique_ptr<FunctionDeployment>> FirewallDeployment::create(
    std::shared_ptr<const FunctionSettings> settings, const FunctionRun& run) {
  ChangedSets changes;
  if (run.offered != nullptr && run.offered->contains(kOfferedSets)) {
    try {
      for (const auto& [name, set] : run.offered->at(kOfferedSets).items())
        changes.emplace(name, changes_from(set));
    } catch (const std::exception&) {
      return std::unexpected(no_offer());
    }
  }
  return std::unique_ptr<FunctionDeployment>(
      new FirewallDeployment(std::static_pointer_cast<const FirewallSettings>(std::move(settings)),
                             run, std::move(changes)));
}

Function& FirewallDeployment::make(unsigned worker) {
  all_[worker] = std::make_unique<Firewall>(plan_, log_, worker, others_rewrite_);
  return *all_[worker];
}

/// Returns the sets of the file with the changes since, sorted, each prefix once.
std::vector<PrefixSet> FirewallDeployment::present_sets(const FirewallSettings& settings) const {
  std::vector<PrefixSet> sets = settings.sets;
  for (PrefixSet& set : sets) {
    const auto at = changes_.find(set.name);
    const SetChanges& changes = at != changes_.end() ? at->second : SetChanges{};
    change<AddressV4>(set, changes);
    change<AddressV6>(set, changes);
  }
  return sets;
}

Result<Review> FirewallDeployment::update(std::shared_ptr<const FunctionSettings> settings,
                                          const FunctionRun&, const OnEachWorker& on_each) {
  auto is = std::static_pointer_cast<const FirewallSettings>(std::move(settings));
  // A process that takes over calls this while no process forwards: what it has made already stays.
  if (is == plan_->settings) return Review::none;
  forget_old_rules();
  const auto is_new = [this](const FirewallRule& rule) { return !ids_.contains(rule.name); };
  const auto wanted = static_cast<std::size_t>(std::ranges::count_if(is->rules, is_new));
  if (wanted > ids_.room())
    return std::unexpected(Error{
        std::to_string(wanted) + " rules have new names, and there is room for " +
        std::to_string(ids_.room()) +
        " beside the rules of now and those of living connections: keep more of the names, or "
        "change them in several reloads"});
  const bool rechecks = is->on_reload == OnReload::recheck;
  if (auto ok = take_on(std::move(is), on_each); !ok) return std::unexpected(ok.error());
  return rechecks ? Review::all : Review::none;
}

/// Gives each worker a plan of these settings and the changes of their sets.
Result<void> FirewallDeployment::take_on(std::shared_ptr<const FirewallSettings> settings,
                                         const OnEachWorker& on_each) {
  auto sets = present_sets(*settings);
  auto plan = make_plan(std::move(settings), sets, ids_, *log_, plan_.get());
  std::vector<std::shared_ptr<const FirewallPlan>> each(all_.size(), plan);
  if (!on_each([&](unsigned n) { all_[n]->take_on(each[n]); }))
    return std::unexpected(Error{"millrace is ending: nothing can change any more"});
  plan_ = std::move(plan);
  sets_ = std::move(sets);
  return {};
}

/// Makes the ids of rules available that are no longer configured and have no connection left.
void FirewallDeployment::forget_old_rules() {
  std::set<RuleId> kept{0};
  for (const Ruling& one : plan_->rulings) kept.insert(one.rule);
  for (std::size_t id = 1; id < ids_.size(); ++id) {
    const auto rule = static_cast<RuleId>(id);
    if (kept.contains(rule) || ids_.name_of(rule).empty()) continue;
    std::uint64_t live = 0;
    for (const auto& one : all_) live += one->counters(rule).live.value();
    if (live != 0) continue;
    for (const auto& one : all_) one->forget(rule);
    if (plan_->limits) plan_->limits->fill(rule);
    log_->bucket(rule).fill();
    ids_.forget(rule);
  }
}

// --- statistics

std::vector<RuleStatistics> FirewallDeployment::rules() const {
  std::vector<RuleStatistics> by_id(ids_.size());
  for (std::size_t id = 0; id < by_id.size(); ++id) {
    RuleStatistics& rule = by_id[id];
    for (const auto& one : all_) {
      const RuleCounters& of = one->counters(static_cast<RuleId>(id));
      rule.connections += of.connections.value();
      rule.live += of.live.value();
      rule.packets += of.forth.packets.value();
      rule.bytes += of.forth.bytes.value();
      rule.replies += of.back.packets.value();
      rule.reply_bytes += of.back.bytes.value();
      rule.refused += of.refused.packets.value();
      rule.refused_bytes += of.refused.bytes.value();
      rule.limited += of.limited.value();
      rule.logged += of.logged.value();
      rule.not_logged += of.not_logged.value();
    }
  }
  std::vector<RuleStatistics> all;
  std::set<RuleId> configured{0};
  const auto append = [&](RuleId id, Action action, bool is_gone) {
    RuleStatistics& rule = all.emplace_back(std::move(by_id[id]));
    rule.name = ids_.name_of(id);
    rule.action = action;
    rule.is_gone = is_gone;
  };
  for (const Ruling& one : plan_->rulings) {
    append(one.rule, one.action, false);
    configured.insert(one.rule);
  }
  append(0, plan_->settings->by_default, false);
  for (std::size_t id = 0; id < by_id.size(); ++id) {
    const auto rule = static_cast<RuleId>(id);
    if (!configured.contains(rule) && by_id[id].live != 0) append(rule, Action::accept, true);
  }
  return all;
}

Json FirewallDeployment::sets() const {
  Json all = Json::array();
  for (const PrefixSet& set : sets_) all.push_back({{"set", set.name}, {"prefixes", set.size()}});
  return all;
}

Json FirewallDeployment::statistics() const {
  return {{"firewall_rules", to_json(rules())}, {"firewall_sets", sets()}};
}

std::unique_ptr<LogReader> FirewallDeployment::log(std::string_view, bool only_new) const {
  return FirewallLog::reader(log_, only_new);
}

std::string FirewallDeployment::table() const { return to_table(rules()); }

// --- another process takes over

bool FirewallDeployment::tell_first(Json& to, const OnEachWorker&) const {
  Json all = Json::object();
  for (const auto& [name, changes] : changes_) all[name] = json_of(changes);
  to[kOfferedSets] = all;
  return true;
}

}  // namespace millrace
