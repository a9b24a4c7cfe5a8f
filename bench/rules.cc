#include "bench/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "function/firewall/classifier.h"
#include "function/firewall/linear_matcher.h"
#include "traffic/random.h"

namespace millrace::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;

double since(SteadyClock::time_point start) {
  return std::chrono::duration<double, std::nano>(SteadyClock::now() - start).count();
}

/// Zones that rules name; others name none.
constexpr std::uint8_t kZones = 4;

template <class A>
AddressMatch<A> match_of(const typename MixRule<A>::Prefix& prefix) {
  if (prefix.bits == 0) return {};
  return {.any = false, .prefixes = {{prefix.address, prefix.bits}}, .sets = {}};
}

std::vector<Range> ranges_of(std::uint16_t first, std::uint16_t last) {
  if (first == 0 && last == 0xffff) return {};
  return {{first, last}};
}

/// Rules of one family, with packets of both kinds.
template <class A>
struct Case {
  Case(RuleMix mix, std::size_t count, const RulesOptions& options) {
    Random random(options.seed);
    const auto zone = [&random] { return static_cast<std::uint8_t>(1 + random.below(kZones)); };
    const auto rules = make_rules<A>(mix, count, options.seed);
    std::vector<std::pair<std::uint8_t, std::uint8_t>> zones;
    for (const MixRule<A>& rule : rules) {
      const bool names_zones = random.percent(50);
      zones.emplace_back(names_zones ? zone() : 0, names_zones ? zone() : 0);
      const auto& [from, to] = zones.back();
      const auto bits = [](std::uint8_t one) {
        return one == 0 ? ~std::uint64_t{0} : std::uint64_t{1} << one;
      };
      matches.push_back({.from = bits(from),
                         .to = bits(to),
                         .protocols = rule.protocol == 0 ? std::vector<std::uint8_t>()
                                                         : std::vector<std::uint8_t>{rule.protocol},
                         .source = match_of<A>(rule.source),
                         .destination = match_of<A>(rule.destination),
                         .source_ports = ranges_of(rule.first_source_port, rule.last_source_port),
                         .destination_ports =
                             ranges_of(rule.first_destination_port, rule.last_destination_port)});
    }
    const auto add = [&](std::vector<PacketFields<A>>& to, const Key<A>& key, std::uint8_t from,
                         std::uint8_t its_to) {
      to.push_back({.source = key.source,
                    .destination = key.destination,
                    .source_port = key.source_port,
                    .destination_port = key.destination_port,
                    .protocol = key.protocol,
                    .from = from != 0 ? from : zone(),
                    .to = its_to != 0 ? its_to : zone()});
    };
    for (const Key<A>& key : uniform_packets<A>(options.packets, options.seed))
      add(random_packets, key, 0, 0);
    for (const MixPacket<A>& one : packets_of<A>(rules, options.packets, options.seed))
      add(derived_packets, one.key, zones[one.rule].first, zones[one.rule].second);
  }

  std::vector<RuleMatch<A>> matches;
  std::vector<PacketFields<A>> random_packets;
  std::vector<PacketFields<A>> derived_packets;
};

/// Compares the first packets with a linear search. Errors (failed): the results differ.
template <class A>
Result<void> compare(const Classifier<A>& classifier, const std::vector<RuleMatch<A>>& rules,
                     const std::vector<PacketFields<A>>& packets, std::uint64_t count) {
  for (std::size_t i = 0; i < std::min<std::size_t>(count, packets.size()); ++i) {
    const std::uint32_t found = classifier.find(packets[i], {});
    const std::uint32_t right = find_linearly(rules, {}, packets[i]);
    if (found == right) continue;
    const auto named = [](std::uint32_t rule) {
      return rule == Classifier<A>::kNone ? std::string("none") : std::to_string(rule);
    };
    return std::unexpected(
        Error{fmt::format("packet {}: the classifier finds rule {}, a linear search rule {}", i,
                          named(found), named(right))});
  }
  return {};
}

template <class A>
double pass(const Classifier<A>& classifier, const std::vector<PacketFields<A>>& packets) {
  const AddressSets<A> none;
  std::uint64_t sum = 0;
  const auto start = SteadyClock::now();
  for (const PacketFields<A>& packet : packets) sum += classifier.find(packet, none);
  const double ns = since(start) / static_cast<double>(packets.size());
  asm volatile("" : : "r"(sum));  // the compiler must not leave the searches out
  return ns;
}

/// Measures one case. Returns none if `progress` ended the measurement.
template <class A>
Result<std::optional<RulesResult>> measure(RuleMix mix, std::size_t count,
                                           const RulesOptions& options, const Progress& progress,
                                           std::size_t& to_come) {
  constexpr unsigned kFamily = A::kBytes == 4 ? 4 : 6;
  const std::string who = fmt::format("{}, IPv{}, {} rules", to_string(mix), kFamily, count);
  if (!progress(who + ": making rules and packets, and comparing")) return std::nullopt;
  const Case<A> of(mix, count, options);
  RulesResult result{.mix = mix, .family = kFamily, .rules = of.matches.size()};
  {
    const Classifier<A> classifier(of.matches);
    result.memory_bytes = classifier.memory_bytes();
    for (const auto* packets : {&of.random_packets, &of.derived_packets}) {
      if (auto ok = compare(classifier, of.matches, *packets, options.compared); !ok)
        return std::unexpected(Error{who + ": " + ok.error().message});
    }
  }
  std::vector<double> build_ms;
  std::vector<double> random_ns;
  std::vector<double> derived_ns;
  for (unsigned repetition = 0; repetition < options.repetitions; ++repetition) {
    const std::string what =
        fmt::format("repetition {} of {}: {}", repetition + 1, options.repetitions, who);
    if (!progress({.what = what, .who = who, .to_come = to_come--})) return std::nullopt;
    const auto start = SteadyClock::now();
    const Classifier<A> classifier(of.matches);
    build_ms.push_back(since(start) / 1e6);
    random_ns.push_back(pass(classifier, of.random_packets));
    derived_ns.push_back(pass(classifier, of.derived_packets));
    progress.seen(who, derived_ns.back());
  }
  result.build_ms = spread_of(build_ms);
  result.random_ns = spread_of(random_ns);
  result.derived_ns = spread_of(derived_ns);
  return result;
}

}  // namespace

Result<std::vector<RulesResult>> run_rules(const RulesOptions& options, const Progress& progress) {
  std::vector<RulesResult> results;
  std::size_t to_come = 2 * options.mixes.size() * options.rules.size() * options.repetitions;
  for (const RuleMix mix : options.mixes) {
    for (const std::uint64_t count : options.rules) {
      for (const auto& measured : {&measure<AddressV4>, &measure<AddressV6>}) {
        auto result = measured(mix, count, options, progress, to_come);
        if (!result) return std::unexpected(result.error());
        if (!*result) return results;
        results.push_back(**result);
      }
    }
  }
  return results;
}

}  // namespace millrace::bench
