#include "bench/overload.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>

#include "bench/clock.h"
#include "bench/overload_port.h"
#include "config/timeout_settings.h"
#include "function/balance/balance.h"
#include "line/line.h"
#include "shard/spread.h"
#include "worker/threads.h"
#include "worker/workers.h"

namespace millrace::bench {
namespace {

constexpr std::array<std::string_view, 3> kPolicies{"evict", "stateless", "drop"};
constexpr std::array<std::string_view, 2> kDivisions{"room", "even"};
constexpr std::uint64_t kPacketsPerMs = 2048;  // for all workers together

BalanceConfig balance_config(std::string_view policy) {
  BalanceConfig config;
  config.services = {.v4 = {played_service()}};
  config.stateless_when_full = policy != "drop";
  return config;
}

struct Contender {
  std::string table;
  unsigned workers;
  unsigned offered_percent;
  std::string policy;  ///< empty: the tables have room for all connections
  std::string division;

  bool has_room() const { return policy.empty(); }
  Contender with_room() const { return {table, workers, offered_percent, "", ""}; }
  auto operator<=>(const Contender&) const = default;
};

/// Returns the contenders of one table and number of workers. Tables with room for all connections
/// come first, because the other contenders are compared with them.
std::vector<Contender> contenders_of(const OverloadOptions& options, const std::string& table,
                                     unsigned workers) {
  std::vector<Contender> all;
  for (const unsigned percent : options.offered_percent)
    all.push_back({table, workers, percent, "", ""});
  for (const auto& division : options.divisions) {
    for (const auto& policy : options.policies.empty() ? overload_policies() : options.policies) {
      for (const unsigned percent : options.offered_percent)
        all.push_back({table, workers, percent, policy, division});
    }
  }
  return all;
}

struct Samples {
  std::vector<double> mpps;
  std::vector<double> ns_per_packet;
  std::vector<double> relative_rate;
  PolicyResult last;  ///< figures of the last repetition; its spreads are not set
};

/// A worker's line, and the port that makes its packets.
struct Post {
  std::unique_ptr<Balance> balance;
  std::unique_ptr<Line> line;
  std::unique_ptr<OverloadPort> port;
  double ns = 0;  ///< the line's time in the last act, without the port's
};

class Experiment {
 public:
  explicit Experiment(const OverloadOptions& options)
      : options_(options), spread_(spreads().front().create(Secret::from_seed(options.seed + 1))) {
    for (const auto& table : options.tables) {
      for (const unsigned workers : options.workers)
        std::ranges::move(contenders_of(options, table, workers), std::back_inserter(contenders_));
    }
  }

  /// Returns false if `progress` ended the measurement.
  Result<bool> run(const Progress& progress) {
    const auto title = [](const Contender& contender) {
      const std::string how =
          contender.has_room() ? "with room for all" : contender.division + ", " + contender.policy;
      return fmt::format("{}, {} workers, {} % of the capacity, {}", contender.table,
                         contender.workers, contender.offered_percent, how);
    };
    return in_turn(options_, contenders_, progress, title,
                   [this](const Contender& contender) { return measure(contender); });
  }

  OverloadReport report() {
    OverloadReport report{.results = {}, .complete = true};
    for (const Contender& contender : contenders_) {
      if (contender.has_room()) continue;
      Samples& of = samples_[contender];
      of.last.mpps = spread_of(of.mpps);
      of.last.ns_per_packet = spread_of(of.ns_per_packet);
      of.last.relative_rate = spread_of(of.relative_rate);
      report.results.push_back(of.last);
    }
    return report;
  }

 private:
  Crowd crowd_of(const Contender& contender) const;
  LineConfig line_of(const Contender& contender, const Crowd& crowd) const;
  Result<double> measure(const Contender& contender);  // ns a packet
  Result<std::vector<Post>> man(const Contender& contender, const Crowd& crowd) const;
  Result<void> play(std::vector<Post>& posts, OverloadPort::Act act) const;
  PolicyResult result_of(const Contender& contender, const Crowd& crowd,
                         const std::vector<Post>& posts) const;

  const OverloadOptions& options_;
  std::unique_ptr<millrace::Spread> spread_;
  std::vector<Contender> contenders_;
  std::map<Contender, Samples> samples_;
  CycleClock clock_;
};

Crowd Experiment::crowd_of(const Contender& contender) const {
  const std::uint64_t offered = options_.capacity * contender.offered_percent / 100;
  const std::uint64_t established = std::min(offered, options_.capacity * 4 / 5);
  return {established, offered - established};
}

/// Returns the configuration of each worker's line.
LineConfig Experiment::line_of(const Contender& contender, const Crowd& crowd) const {
  const bool has_room = contender.has_room();
  const std::uint64_t whole = has_room ? 2 * crowd.all() : options_.capacity;
  return {.table = contender.table,
          .ageing = options_.ageing,
          .capacity = contender.division == "even"
                          ? whole / contender.workers
                          : capacity_of_one(whole, contender.workers, Indirection::kMost),
          .capacity_v6 = 1,
          .timeouts = TimeoutSeconds().timeouts(),
          .pages = options_.pages,
          .secret = Secret::from_seed(options_.seed),
          .half_open_percent = has_room ? 100 : options_.half_open_percent,
          .evicts = contender.policy == "evict"};
}

/// Makes a line and a port for each worker, on the processor on which the worker will run, so that
/// their memory is near.
Result<std::vector<Post>> Experiment::man(const Contender& contender, const Crowd& crowd) const {
  const BalanceConfig config = balance_config(contender.policy);
  const auto plan = Balance::plan(config, contender.workers);
  if (!plan) return std::unexpected(plan.error());
  auto clients = clients_by_worker(crowd, *spread_, contender.workers);
  const LineConfig line_config = line_of(contender, crowd);
  const OverloadPort::Pace pace{options_.burst, kPacketsPerMs / contender.workers};
  std::vector<Post> posts(contender.workers);
  std::vector<Result<void>> made(contender.workers);
  const auto make = [&](unsigned n) {
    Post& post = posts[n];
    post.balance = std::make_unique<Balance>(config, *plan, n);
    auto line = make_line(line_config, *post.balance);
    if (!line) {
      made[n] = std::unexpected(line.error());
      return;
    }
    post.line = std::move(*line);
    post.port = std::make_unique<OverloadPort>(clock_, crowd, std::move(clients[n]), pace,
                                               post.line->counters());
  };
  if (auto ok = on_threads(contender.workers, make); !ok) return std::unexpected(ok.error());
  for (const auto& ok : made) {
    if (!ok) return std::unexpected(ok.error());
  }
  return posts;
}

Result<void> Experiment::play(std::vector<Post>& posts, OverloadPort::Act act) const {
  return on_threads(static_cast<unsigned>(posts.size()), [&](unsigned n) {
    Post& post = posts[n];
    post.port->play(act);
    const std::uint64_t start = clock_.begin();
    post.line->run(*post.port);
    post.ns = clock_.ns_since(start) - post.port->own_ns();
  });
}

Result<double> Experiment::measure(const Contender& contender) {
  const Crowd crowd = crowd_of(contender);
  auto posts = man(contender, crowd);
  if (!posts) return std::unexpected(posts.error());
  for (const auto act : {OverloadPort::Act::opening, OverloadPort::Act::overload}) {
    if (auto ok = play(*posts, act); !ok) return std::unexpected(ok.error());
  }
  double longest = 0;
  double sum = 0;
  for (const Post& post : *posts) {
    longest = std::max(longest, post.ns);
    sum += post.ns;
  }
  Samples& samples = samples_[contender];
  samples.last = result_of(contender, crowd, *posts);
  const auto packets = static_cast<double>(samples.last.packets);
  samples.mpps.push_back(1000 * packets / longest);
  samples.ns_per_packet.push_back(sum / packets);
  samples.relative_rate.push_back(samples.mpps.back() /
                                  samples_[contender.with_room()].mpps.back());
  return samples.ns_per_packet.back();
}

/// Returns `part` divided by `of`; 1 if `of` is 0.
double share(std::uint64_t part, std::uint64_t of) {
  return of == 0 ? 1 : static_cast<double>(part) / static_cast<double>(of);
}

PolicyResult Experiment::result_of(const Contender& contender, const Crowd& crowd,
                                   const std::vector<Post>& posts) const {
  PolicyResult result{.policy = contender.policy,
                      .table = contender.table,
                      .workers = contender.workers,
                      .division = contender.division,
                      .offered_percent = contender.offered_percent,
                      .established = crowd.established};
  Judgement all;
  for (const Post& post : posts) {
    all.add(post.port->judgement());
    const WorkerCounters& counters = post.line->counters();
    result.live += post.line->report_v4().live;
    result.evicted += counters.closed[static_cast<std::size_t>(Ending::evicted)].value();
    result.refused += counters.refused.value();
    result.refused_early += counters.refused_early.value();
    result.over_budget += counters.over_budget.value();
  }
  result.packets = all.packets;
  result.established_goodput = share(all.established_good, all.established_due);
  result.misdirected = all.misdirected;
  result.begun = all.clients;
  result.new_served = share(all.served, all.clients);
  result.new_refused = all.others == 0 ? 0 : share(all.without_entry, all.others);
  result.goodput = share(all.genuine_good, all.genuine_due);
  if (all.first_refused) {
    std::uint64_t entries = 0;
    for (const Post& post : posts) entries += post.port->entries_below(*all.first_refused);
    result.first_refused_load = share(entries, options_.capacity);
  }
  return result;
}

}  // namespace

std::vector<std::string> overload_policies() { return {kPolicies.begin(), kPolicies.end()}; }
std::vector<std::string> overload_divisions() { return {kDivisions.begin(), kDivisions.end()}; }

Result<OverloadReport> run_overload(const OverloadOptions& options, const Progress& progress) {
  Experiment experiment(options);
  auto whole = experiment.run(progress);
  if (!whole) return std::unexpected(whole.error());
  if (!*whole) return OverloadReport{};
  return experiment.report();
}

}  // namespace millrace::bench
