#include "bench/chain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "bench/clock.h"
#include "config/config.h"
#include "conntrack/schemes.h"
#include "function/kind.h"
#include "line/line.h"

namespace millrace::bench {
namespace {

/// Rounds before packets are timed.
constexpr std::uint64_t kWarming = Conversations::kRoundsToBegin + 4;
constexpr unsigned kDenied = 100;  // rules before the one that accepts

std::string firewall_keys() {
  std::string text;
  for (unsigned n = 0; n < kDenied; ++n) {
    text += fmt::format(
        "[[firewall.rule]]\nname = \"denied {0}\"\nsource = [\"203.0.{0}.0/24\"]\nprotocol = "
        "[\"tcp\"]\ndestination_ports = [{1}]\naction = \"drop\"\n",
        n, 1000 + n);
  }
  return text +
         "[[firewall.rule]]\nname = \"clients\"\nsource = [\"198.18.0.0/16\", "
         "\"100.64.0.0/24\"]\naction = "
         "\"accept\"\n";
}

std::string nat_keys() {
  return R"([[nat.pool]]
name = "pool"
addresses = ["100.64.0.0/24"]
[[nat.rule]]
source = ["198.18.0.0/16"]
pool = "pool"
)";
}

std::string balance_keys() {
  std::string text;
  for (const char* const protocol : {"tcp", "udp"}) {
    for (const unsigned port : {22U, 25U, 53U, 80U, 110U, 123U, 443U, 993U, 3389U, 8080U}) {
      text += fmt::format("[[service]]\naddress = \"198.19.0.1\"\nport = {}\nprotocol = \"{}\"\n",
                          port, protocol) +
              "backends = [";
      for (unsigned n = 1; n <= 8; ++n) text += fmt::format("{{ address = \"10.1.0.{}\" }},", n);
      text += "]\n";
    }
  }
  return text;
}

/// A function, its keys in the configuration, and what it changes.
struct Chainable {
  std::string name;
  std::string (*keys)();
  Changes changes;
};
const std::vector<Chainable>& all_chainable() {
  static const std::vector<Chainable> all{
      {"forward", [] { return std::string(); }, {}},
      {"firewall", firewall_keys, {}},
      {"nat", nat_keys, {.source = true}},
      {"balance", balance_keys, {.destination = true}},
  };
  return all;
}
const Chainable& named(const std::string& name) {
  return *std::ranges::find(all_chainable(), name, &Chainable::name);
}

Changes changes_of(const Functions& functions) {
  Changes all;
  for (const std::string& name : functions) {
    all.source |= named(name).changes.source;
    all.destination |= named(name).changes.destination;
  }
  return all;
}

Result<Config> configuration(const Functions& functions) {
  std::string text = fmt::format("chain = [\"{}\"]\n", fmt::join(functions, "\", \""));
  for (const std::string& name : functions) text += named(name).keys();
  return parse_config(text, fmt::format("{}", fmt::join(functions, ", ")),
                      {TableSchemes::names(), SharingSchemes::names(), AgeingSchemes::names()});
}

struct Contender {
  Talk traffic;
  Functions functions;
  bool is_once;

  std::string name() const {
    return fmt::format("{}, {}{}", to_string(traffic), fmt::join(functions, ","),
                       is_once ? "" : " each");
  }
  auto operator<=>(const Contender&) const = default;
};

/// Returns the contenders of some chains: chains that look up once follow what they are compared
/// with.
std::vector<Contender> contenders_of(const ChainOptions& options,
                                     const std::vector<Functions>& chains) {
  std::vector<Contender> all;
  for (const Talk talk : options.traffic) {
    for (const Chainable& one : all_chainable()) {
      const bool is_used = std::ranges::any_of(chains, [&one](const Functions& chain) {
        return std::ranges::find(chain, one.name) != chain.end();
      });
      if (is_used) all.push_back({talk, {one.name}, true});
    }
    for (const Functions& chain : chains) {
      all.push_back({talk, chain, false});
      all.push_back({talk, chain, true});
    }
  }
  return all;
}

/// A line with its function.
struct Station {
  std::unique_ptr<FunctionDeployment> deployment;
  std::unique_ptr<Line> line;
};

struct Samples {
  std::vector<double> ns;
  std::vector<double> of_dearest;
  std::vector<double> of_each;
  std::uint64_t begun = 0;
};

class Experiment {
 public:
  Experiment(const ChainOptions& options, const std::vector<Functions>& chains)
      : options_(options), contenders_(contenders_of(options, chains)) {}

  /// Returns false if `progress` ended the measurement.
  Result<bool> run(const Progress& progress) {
    return in_turn(
        options_, contenders_, progress,
        [](const Contender& contender) { return contender.name(); },
        [this](const Contender& contender) { return measure(contender); });
  }

  /// Returns the results of the contenders that were measured.
  std::vector<ChainResult> results() {
    std::vector<ChainResult> all;
    for (const Contender& contender : contenders_) {
      const auto at = samples_.find(contender);
      if (at == samples_.end()) continue;
      const Samples& of = at->second;
      ChainResult result{.traffic = contender.traffic,
                         .functions = contender.functions,
                         .is_once = contender.is_once,
                         .ns = spread_of(of.ns),
                         .begun = of.begun};
      if (!of.of_each.empty()) {
        result.of_dearest = spread_of(of.of_dearest);
        result.of_each = spread_of(of.of_each);
      }
      all.push_back(std::move(result));
    }
    return all;
  }

 private:
  Result<Station> make_station(const Functions& functions) const;
  Result<std::vector<Station>> make_stations(const Contender& contender) const;
  Result<double> measure(const Contender& contender);  // ns a packet
  double pass(std::vector<Station>& stations, const Batch& batch, std::vector<std::uint32_t>& left);
  void compare(const Contender& contender, Samples& samples);

  const ChainOptions& options_;
  std::vector<Contender> contenders_;
  std::map<Contender, Samples> samples_;
  BatchPort port_{options_.burst};
  std::vector<std::uint32_t> between_;  // places of packets between two lines
  CycleClock clock_;
};

Result<Station> Experiment::make_station(const Functions& functions) const {
  const auto config = configuration(functions);
  if (!config) return std::unexpected(config.error());
  auto deployment = config->function->kind().deploy(config->function, {});
  if (!deployment) return std::unexpected(deployment.error());
  Station station{.deployment = std::move(*deployment), .line = nullptr};
  // Connections stay in the table when they have ended. On average they have more than three
  // packets, so this is room for all that begin.
  const std::uint64_t packets = kWarming * options_.conversations + options_.packets;
  auto line = make_line({.capacity = options_.conversations + packets / 3,
                         .capacity_v6 = 1,
                         .timeouts = config->ageing.timeout_s.timeouts(),
                         .pages = options_.pages,
                         .secret = Secret::from_seed(options_.seed)},
                        station.deployment->make(0));
  if (!line) return std::unexpected(line.error());
  station.line = std::move(*line);
  return station;
}

Result<std::vector<Station>> Experiment::make_stations(const Contender& contender) const {
  std::vector<Functions> each{contender.functions};
  if (!contender.is_once) {
    each.clear();
    for (const std::string& name : contender.functions) each.push_back({name});
  }
  std::vector<Station> stations;
  for (const Functions& functions : each) {
    auto station = make_station(functions);
    if (!station) return std::unexpected(station.error());
    stations.push_back(std::move(*station));
  }
  return stations;
}

/// Passes a batch through all lines, replies in the reverse order. Returns the lines' time in ns.
double Experiment::pass(std::vector<Station>& stations, const Batch& batch,
                        std::vector<std::uint32_t>& left) {
  const std::uint64_t start = clock_.begin();
  left.clear();
  for (const bool is_reply : {false, true}) {
    const std::size_t before = left.size();
    std::span<const std::uint32_t> places = is_reply ? batch.from_servers : batch.from_clients;
    for (std::size_t n = 0; n < stations.size(); ++n) {
      const bool is_last = n + 1 == stations.size();
      std::vector<std::uint32_t> out;
      std::vector<std::uint32_t>& to = is_last ? left : out;
      to.reserve(before + Batch::kMost);
      port_.offer(batch, places, to);
      stations[is_reply ? stations.size() - 1 - n : n].line->run(port_);
      if (is_last) break;
      between_.swap(out);
      places = between_;
    }
  }
  return clock_.ns_since(start);
}

Result<double> Experiment::measure(const Contender& contender) {
  auto stations = make_stations(contender);
  if (!stations) return std::unexpected(stations.error());
  Conversations talk(contender.traffic, options_.conversations, changes_of(contender.functions),
                     options_.seed);
  Batch batch;
  std::vector<std::uint32_t> left;
  double ns = 0;
  std::uint64_t packets = 0;
  while (packets < options_.packets) {
    const bool is_timed = talk.rounds() >= kWarming;
    talk.next(batch);
    const double took = pass(*stations, batch, left);
    if (auto ok = talk.check(batch, left); !ok) {
      return std::unexpected(Error{fmt::format("{}: {}", contender.name(), ok.error().message)});
    }
    if (!is_timed) continue;
    ns += took;
    packets += batch.packets.size();
  }
  Samples& samples = samples_[contender];
  samples.ns.push_back(ns / static_cast<double>(packets));
  samples.begun = talk.begun();
  compare(contender, samples);
  return samples.ns.back();
}

void Experiment::compare(const Contender& contender, Samples& samples) {
  if (!contender.is_once || contender.functions.size() == 1) return;
  double dearest = 0;
  for (const std::string& name : contender.functions)
    dearest = std::max(dearest, samples_.at({contender.traffic, {name}, true}).ns.back());
  samples.of_dearest.push_back(samples.ns.back() / dearest);
  const double each = samples_.at({contender.traffic, contender.functions, false}).ns.back();
  samples.of_each.push_back(samples.ns.back() / each);
}

}  // namespace

std::vector<Functions> known_chains() {
  return {{"firewall", "nat"},
          {"firewall", "balance"},
          {"forward", "firewall", "nat"},
          {"forward", "firewall", "balance"},
          {"firewall", "balance", "nat"},
          {"forward", "firewall", "balance", "nat"}};
}

Functions chainable() {
  Functions names;
  for (const Chainable& one : all_chainable()) names.push_back(one.name);
  return names;
}

Result<ChainReport> run_chain(const ChainOptions& options, const Progress& progress) {
  ChainReport report;
  std::vector<Functions> chains;
  for (const Functions& chain : options.chains.empty() ? known_chains() : options.chains) {
    const auto config = configuration(chain);
    if (config) {
      chains.push_back(chain);
    } else if (!options.chains.empty()) {
      return std::unexpected(config.error());
    } else {
      report.left_out.push_back(config.error().message);
    }
  }
  Experiment experiment(options, chains);
  const auto whole = experiment.run(progress);
  if (!whole) return std::unexpected(whole.error());
  report.results = experiment.results();
  report.complete = *whole;
  return report;
}

}  // namespace millrace::bench
