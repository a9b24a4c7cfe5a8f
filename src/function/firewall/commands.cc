// The firewall's commands over the control socket: counters of rules, and sets that change.
#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/parameters.h"
#include "function/command_done.h"
#include "function/firewall/deployment.h"
#include "function/firewall/report.h"

namespace millrace {
namespace {

std::unexpected<Refusal> refused(Refusal::Kind kind, std::string message) {
  return std::unexpected(Refusal{kind, std::move(message)});
}
std::unexpected<Refusal> wrong(std::string_view name, std::string_view value,
                               std::string_view what) {
  return refused(Refusal::Kind::wrong, wrong_parameter(name, value, what).error().message);
}

/// A kind of change of a set.
enum class SetAction : std::uint8_t { add, remove, replace, reset };

/// A change of a set: the parameters of /firewall/set.
struct WantedSet {
  std::string set;
  SetAction action = SetAction::add;
  std::vector<Prefix<AddressV4>> v4;
  std::vector<Prefix<AddressV6>> v6;

  template <class A>
  const std::vector<Prefix<A>>& prefixes() const {
    return of_family<A>(v4, v6);
  }
};

CommandResult<WantedSet> wanted_from(Parameters given) {
  constexpr auto kWrong = Refusal::Kind::wrong;
  WantedSet wanted;
  bool has_action = false;
  for (const auto& [key, value] : given) {
    if (key == "set") {
      wanted.set = value;
    } else if (key == "action") {
      constexpr std::array<std::string_view, 4> kActions{"add", "remove", "replace", "reset"};
      const auto* const at = std::ranges::find(kActions, value);
      if (at == kActions.end())
        return wrong("action", value, "is not known: give add, remove, replace or reset");
      wanted.action = static_cast<SetAction>(at - kActions.begin());
      has_action = true;
    } else if (key == "body") {
      for (std::size_t begin = 0; begin < value.size();) {
        const std::size_t end = std::min(value.find_first_of(" \t\r\n", begin), value.size());
        const std::string_view text = std::string_view(value).substr(begin, end - begin);
        begin = end + 1;
        if (text.empty()) continue;
        if (auto added = append_prefix(text, wanted.v4, wanted.v6); !added)
          return refused(kWrong, added.error());
      }
    } else {
      return wrong("the parameter", key,
                   "is not known: give set and action, and the prefixes as the body");
    }
  }
  if (wanted.set.empty() || !has_action)
    return refused(kWrong,
                   "the parameters set and action are needed: give the set's name, and add, "
                   "remove, replace or reset");
  const bool has_some = !wanted.v4.empty() || !wanted.v6.empty();
  if (wanted.action == SetAction::reset && has_some)
    return refused(kWrong, "reset takes no prefixes: leave them out");
  if (!has_some && wanted.action != SetAction::reset && wanted.action != SetAction::replace)
    return refused(kWrong, "there are no prefixes: give at least one in the body");
  return wanted;
}

/// Changes a set. `file`: the set as the file has it.
template <class A>
void apply(const WantedSet& wanted, const PrefixSet& file, SetChanges& changes) {
  auto& added = changes.added<A>();
  auto& removed = changes.removed<A>();
  const auto& prefixes = wanted.prefixes<A>();
  const auto& in_file = file.prefixes<A>();
  if (wanted.action == SetAction::replace) {
    removed = {in_file.begin(), in_file.end()};
    added.clear();
  }
  const std::set<Prefix<A>> of_file(in_file.begin(), in_file.end());
  for (const Prefix<A>& one : prefixes) {
    const bool adds = wanted.action != SetAction::remove;
    (adds ? removed : added).erase(one);
    if (of_file.contains(one) != adds) (adds ? added : removed).insert(one);
  }
}

/// Returns how many prefixes are in one of two sorted lists only.
template <class A>
std::size_t difference(const std::vector<Prefix<A>>& a, const std::vector<Prefix<A>>& b) {
  std::vector<Prefix<A>> of_one;
  std::ranges::set_symmetric_difference(a, b, std::back_inserter(of_one));
  return of_one.size();
}

}  // namespace

auto FirewallDeployment::command(std::string_view path, Parameters given,
                                 const OnEachWorker& on_each) -> CommandResult<CommandDone> {
  if (path == "/firewall/set") return change_set(given, on_each);
  if (path == "/firewall/rules") {
    if (!given.empty())
      return wrong("the parameter", given.front().first, "is not known: leave it out");
    return CommandDone{.result = to_json(rules())};
  }
  Json all = Json::array();
  for (const PrefixSet& set : sets_) {
    Json prefixes = Json::array();
    for (const auto& one : set.v4) prefixes.push_back(to_string(one));
    for (const auto& one : set.v6) prefixes.push_back(to_string(one));
    const auto at = changes_.find(set.name);
    all.push_back({{"set", set.name},
                   {"prefixes", prefixes},
                   {"changed", at != changes_.end() && !at->second.none()}});
  }
  return CommandDone{.result = all};
}

auto FirewallDeployment::change_set(Parameters given, const OnEachWorker& on_each)
    -> CommandResult<CommandDone> {
  const auto wanted = wanted_from(given);
  if (!wanted) return std::unexpected(wanted.error());
  const auto& of_file = plan_->settings->sets;
  const auto file = std::ranges::find(of_file, wanted->set, &PrefixSet::name);
  if (file == of_file.end())
    return refused(Refusal::Kind::absent,
                   "there is no set " + wanted->set + ": GET /firewall/sets lists the sets");
  const ChangedSets before = changes_;
  const PrefixSet was = *std::ranges::find(sets_, wanted->set, &PrefixSet::name);
  SetChanges& changes = changes_[wanted->set];
  if (wanted->action == SetAction::reset) {
    changes = {};
  } else {
    apply<AddressV4>(*wanted, *file, changes);
    apply<AddressV6>(*wanted, *file, changes);
  }
  if (auto ok = take_on(plan_->settings, on_each); !ok) {
    changes_ = before;
    return refused(Refusal::Kind::not_now, ok.error().message);
  }
  const PrefixSet& is = *std::ranges::find(sets_, wanted->set, &PrefixSet::name);
  const std::size_t changed = difference(was.v4, is.v4) + difference(was.v6, is.v6);
  CommandDone done{.result = {{"set", is.name}, {"prefixes", is.size()}, {"changed", changed}}};
  if (plan_->settings->on_reload == OnReload::recheck) done.review = Review::all;
  return done;
}

}  // namespace millrace
