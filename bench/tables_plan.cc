// Plans which tables are measured where, and estimates memory and time.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "bench/tables.h"

namespace millrace::bench {
namespace {

/// Returns the wanted tables that can be made here. Adds a line to `left_out` for each reason why
/// some tables cannot be made, with the names of these tables.
std::vector<const Entrant*> able(const TablesOptions& options, std::vector<std::string>& left_out) {
  std::vector<const Entrant*> all;
  std::map<std::string, std::vector<std::string_view>> unable;  // by reason
  for (const Entrant& entrant : entrants()) {
    const auto& names = options.tables;
    if (!names.empty() && std::ranges::find(names, entrant.name) == names.end()) continue;
    const auto table = entrant.make<KeyV4>()({.capacity = 64,
                                              .state_bytes = kStateBytes<KeyV4>,
                                              .pages = Pages::small,
                                              .secret = Secret::from_seed(options.seed)});
    if (table) {
      all.push_back(&entrant);
    } else {
      unable[table.error().message].push_back(entrant.name);
    }
  }
  for (const auto& [reason, names] : unable)
    left_out.push_back(fmt::format("not measured: {}: {}", fmt::join(names, ", "), reason));
  return all;
}

/// Returns those of `entrants` that promise the load or a higher one. Adds a line to `left_out` for
/// each other entrant.
std::vector<const Entrant*> suited(const std::vector<const Entrant*>& entrants, double load,
                                   std::vector<std::string>& left_out) {
  std::vector<const Entrant*> all;
  for (const Entrant* entrant : entrants) {
    if (Case{.load = load}.suits(*entrant)) {
      all.push_back(entrant);
    } else {
      left_out.push_back(fmt::format("{} promises up to {}: not measured at load {}", entrant->name,
                                     entrant->max_load, load));
    }
  }
  return all;
}

}  // namespace

Result<TablesPlan> plan_tables(const TablesOptions& options) {
  TablesPlan plan{.options = options, .groups = {}, .left_out = {}};
  const auto entrants = able(options, plan.left_out);
  if (entrants.empty())
    return std::unexpected(Error{fmt::format("{}", fmt::join(plan.left_out, "\n"))});
  std::vector<std::pair<std::optional<double>, std::vector<const Entrant*>>> loads;
  for (const double load : options.loads)
    loads.emplace_back(load, suited(entrants, load, plan.left_out));
  if (options.at_maximum) loads.emplace_back(std::nullopt, entrants);
  std::erase_if(loads, [](const auto& load) { return load.second.empty(); });
  if (loads.empty()) {
    const auto* most = std::ranges::max(entrants, {}, &Entrant::max_load);
    return std::unexpected(Error{
        fmt::format("no table is left to measure: the highest load is promised by {} and is {}: "
                    "lower --load to that, or give --at-maximum",
                    most->name, most->max_load),
        Error::Kind::usage});
  }
  for (const unsigned bits : options.bits) {
    for (const auto& [load, suits] : loads) {
      for (const unsigned key_bytes : options.key_bytes)
        plan.groups.push_back({{bits, load}, key_bytes, suits});
    }
  }
  return plan;
}

std::size_t TablesPlan::trials() const {
  std::size_t count = 0;
  for (const TablesGroup& group : groups) count += group.entrants.size() * options.repetitions;
  return count;
}

std::size_t TablesPlan::memory_bytes() const {
  constexpr std::size_t kStreamKeys = std::size_t{21} << 18;  // keys of the lookup streams
  constexpr std::size_t kSundryBytes = std::size_t{40} << 20;
  std::size_t most = 0;
  for (const TablesGroup& group : groups) {
    for (const Entrant* entrant : group.entrants) {
      // An estimate for each table, of which the largest counts: the table itself, the keys that
      // fill it, those that replace them, and those that are looked up.
      const std::size_t per_entry = 200 + 5 * group.key_bytes;
      most = std::max(
          most, group.at.live(*entrant) * per_entry + kStreamKeys * group.key_bytes + kSundryBytes);
    }
  }
  return most;
}

double TablesPlan::seconds() const {
  double all = 0;
  for (const TablesGroup& group : groups) {
    const double lookups = 0.4 + 0.2 * static_cast<double>(options.bursts.size());
    const double life = 0.6e-6 * static_cast<double>(group.at.slots());
    const double past_the_promise = group.at.load ? 0 : 0.5 * life;
    all += static_cast<double>(group.entrants.size()) * (lookups + life + past_the_promise);
  }
  return all * options.repetitions;
}

}  // namespace millrace::bench
