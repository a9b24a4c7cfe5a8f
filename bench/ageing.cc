#include "bench/ageing.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "bench/numbers.h"
#include "bench/timed_run.h"
#include "conntrack/schemes.h"
#include "function/kinds.h"
#include "parse/parse.h"
#include "traffic/generate.h"

namespace millrace::bench {
namespace {

/// Simulated time between two counts of live connections.
constexpr std::uint32_t kSampleMs = 50;
constexpr unsigned kStepMs = 1;

/// Results that exact timeouts would have for the capture.
struct Exact {
  std::vector<std::uint64_t> live;  ///< live connections, every `kSampleMs`
  std::uint64_t opened = 0;
  Tick start;
};

/// Computes which connections are live under exact timeouts, from packets in the order of time.
class Oracle {
 public:
  explicit Oracle(std::uint32_t timeout_ms) : timeout_(timeout_ms) {}

  template <class K>
  void meet(const K& key, Signal signal, std::uint32_t at) {
    const auto [id, is_new] = numbers_.of(key);
    if (is_new) last_.push_back(kDead);
    expire(at);
    if (last_[id] == kDead) {
      if (!begins(signal, Direction::only)) return;
      ++live_;
      ++exact.opened;
    }
    last_[id] = at;
    packets_.push_back({at, id});
  }
  /// Adds a sample. All packets before time `at` must have been passed to `meet`.
  void sample(std::uint32_t at) {
    expire(at);
    exact.live.push_back(live_);
  }

  Exact exact;

 private:
  static constexpr std::uint32_t kDead = UINT32_MAX;
  struct Met {
    std::uint32_t at;
    std::uint32_t id;
  };

  void expire(std::uint32_t now) {
    for (; oldest_ < packets_.size() && packets_[oldest_].at + timeout_ <= now; ++oldest_) {
      const Met& met = packets_[oldest_];
      if (last_[met.id] != met.at) continue;
      last_[met.id] = kDead;
      --live_;
    }
  }

  std::uint32_t timeout_;
  Numbers numbers_;
  std::vector<std::uint32_t> last_;  // time of the last packet, by connection
  std::vector<Met> packets_;
  std::size_t oldest_ = 0;  // first packet whose timeout has not passed
  std::uint64_t live_ = 0;
};

ReplayOptions replay_options(unsigned burst) { return {.burst = burst, .step_ms = kStepMs}; }

Result<Exact> exact_of(const Capture& capture, std::uint32_t timeout_ms) {
  auto port = ReplayPort::create(capture, replay_options(Burst::kMax));
  if (!port) return std::unexpected(port.error());
  Oracle oracle(timeout_ms);
  std::optional<Tick> start;
  Burst burst;
  while (port->receive(burst)) {
    if (burst.size == 0) continue;
    parse(burst, port->link_type());
    if (!start) oracle.exact.start = *(start = burst.now);
    const std::uint32_t at = burst.now.ms - start->ms;
    while (oracle.exact.live.size() * kSampleMs <= at)
      oracle.sample(static_cast<std::uint32_t>(oracle.exact.live.size()) * kSampleMs);
    const auto meet_all = [&](const auto& lane) {
      for (unsigned i = 0; i < lane.size; ++i)
        oracle.meet(lane.key[i], burst.signal[lane.packet[i]], at);
    };
    meet_all(burst.v4);
    meet_all(burst.v6);
    burst.clear();
  }
  return std::move(oracle.exact);
}

struct Contender {
  std::string ageing;
  std::uint32_t interval_ms;
  unsigned workers;

  bool is_none() const { return ageing == NoAgeing::kName; }
  auto operator<=>(const Contender&) const = default;
};

std::vector<Contender> contenders_of(const AgeingOptions& options) {
  std::vector<std::string> schemes = options.schemes;
  if (schemes.empty()) schemes = AgeingSchemes::names();
  std::erase(schemes, std::string(NoAgeing::kName));
  std::vector<Contender> all;
  for (const unsigned workers : options.workers) {
    all.push_back({std::string(NoAgeing::kName), 0, workers});
    for (const auto& scheme : schemes) {
      for (const std::uint32_t interval_ms : options.interval_ms)
        all.push_back({scheme, interval_ms, workers});
    }
  }
  return all;
}

struct Samples {
  std::vector<double> mpps;
  std::vector<double> ns_per_packet;
  std::vector<double> more_ns;
  std::vector<double> live;
  std::vector<float> burst_us;
  std::uint64_t opened = 0;
  std::uint64_t timed_out = 0;
  Pages pages = Pages::huge;
};

class Experiment {
 public:
  Experiment(const AgeingOptions& options, Capture capture, Exact exact)
      : options_(options),
        contenders_(contenders_of(options)),
        capture_(std::move(capture)),
        exact_(std::move(exact)) {}

  /// Returns false if `progress` ended the measurement.
  Result<bool> run(const Progress& progress) {
    const auto title = [](const Contender& contender) {
      const std::string how =
          contender.is_none() ? "" : fmt::format(" every {} ms", contender.interval_ms);
      return fmt::format("{}{}, {} workers", contender.ageing, how, contender.workers);
    };
    double none_ns = 0;
    return in_turn(options_, contenders_, progress, title, [&](const Contender& contender) {
      const auto ns = measure(contender);
      if (!ns) return ns;
      if (contender.is_none()) none_ns = *ns;
      samples_[contender].more_ns.push_back(*ns - none_ns);
      return ns;
    });
  }

  AgeingReport report() {
    AgeingReport report{.packets = capture_.size(), .complete = true};
    for (const std::uint64_t live : exact_.live)
      report.exact_live += static_cast<double>(live) / static_cast<double>(exact_.live.size());
    for (const Contender& contender : contenders_) {
      Samples& of = samples_[contender];
      const double live =
          std::reduce(of.live.begin(), of.live.end()) / static_cast<double>(of.live.size());
      const double too_long = report.exact_live > 0 ? live / report.exact_live - 1 : 0;
      report.results.push_back({contender.ageing, contender.interval_ms, contender.workers,
                                spread_of(of.live), spread_of(of.mpps), spread_of(of.ns_per_packet),
                                spread_of(of.more_ns), confidence_of(of.more_ns),
                                percentiles_of(std::move(of.burst_us), {50, 90, 99, 99.9, 99.99}),
                                std::max(too_long, 0.0),
                                of.opened - std::min(of.opened, exact_.opened), of.timed_out,
                                of.pages});
    }
    return report;
  }

 private:
  Result<double> measure(const Contender& contender);

  const AgeingOptions& options_;
  std::vector<Contender> contenders_;
  Capture capture_;
  Exact exact_;
  std::map<Contender, Samples> samples_;
  std::map<unsigned, std::vector<CapturePart>> parts_;  // by number of workers
  CycleClock clock_;
};

/// Runs a contender once. Returns nanoseconds a packet.
Result<double> Experiment::measure(const Contender& contender) {
  const std::size_t capacity = 2 * options_.connections;
  const LineConfig line{.table = options_.table,
                        .sharing = options_.sharing,
                        .ageing = contender.ageing,
                        .capacity = capacity,
                        .capacity_v6 = capacity / 2 + 1,
                        .timeouts = Timeouts::all(options_.timeout_ms),
                        .interval_ms = std::max(contender.interval_ms, 1U),
                        .pages = options_.pages,
                        .secret = Secret::from_seed(options_.seed)};
  auto workers = Workers::create(contender.workers, line, default_function());
  if (!workers) return std::unexpected(workers.error());
  if (!parts_.contains(contender.workers)) {
    auto parts = parts_for(*workers, capture_, options_.seed + 1);
    if (!parts) return std::unexpected(parts.error());
    parts_[contender.workers] = std::move(*parts);
  }
  std::vector<std::vector<std::uint64_t>> live(contender.workers);  // samples, by worker
  const auto count = [&](unsigned worker, const Burst& burst) {
    auto& of = live[worker];
    while (of.size() * kSampleMs <= burst.now.ms - exact_.start.ms) {
      const Line::Live now = workers->line(worker).live();
      of.push_back(now.v4 + now.v6);
    }
  };
  auto run = timed_run(*workers, capture_, parts_.at(contender.workers),
                       replay_options(options_.burst), clock_, count);
  if (!run) return std::unexpected(run.error());

  Samples& samples = samples_[contender];
  samples.mpps.push_back(run->mpps);
  samples.ns_per_packet.push_back(run->ns_per_packet);
  samples.burst_us.insert(samples.burst_us.end(), run->burst_us.begin(), run->burst_us.end());
  for (std::size_t i = 0; i < exact_.live.size(); ++i) {
    double sum = 0;
    for (const auto& of : live) {
      if (!of.empty()) sum += static_cast<double>(of[std::min(i, of.size() - 1)]);
    }
    samples.live.push_back(sum);
  }
  const WorkerCounters counters = workers->counters();
  samples.opened = counters.opened.value();
  samples.timed_out = counters.ended();
  samples.pages = std::max(samples.pages, workers->report_v4().pages);
  const std::uint64_t served = served_by(counters);
  if (counters.in.value() == capture_.size() && served == capture_.size() &&
      counters.refused.value() == 0)
    return run->ns_per_packet;
  return std::unexpected(
      Error{fmt::format("{}, {} workers: {} of {} packets were received, {} served and {} refused, "
                        "but all must be served",
                        contender.ageing, contender.workers, counters.in.value(), capture_.size(),
                        served, counters.refused.value())});
}

}  // namespace

Result<AgeingReport> run_ageing(const AgeingOptions& options, const Progress& progress) {
  if (!progress("making the traffic")) return AgeingReport{};
  const std::uint64_t packets = options.packets_per_connection * options.connections;
  const std::uint64_t seconds = std::max<std::uint64_t>(packets / AgeingOptions::kRate, 1);
  auto capture = generate({.connections = options.connections,
                           .packets = packets,
                           .seed = options.seed,
                           .duration_s = static_cast<std::uint32_t>(seconds),
                           .longest_ms = std::max(options.timeout_ms / 4, 1U)});
  if (!capture) return std::unexpected(capture.error());
  if (!progress("finding out what exact timeouts do")) return AgeingReport{};
  auto exact = exact_of(*capture, options.timeout_ms);
  if (!exact) return std::unexpected(exact.error());
  // Samples after `seconds` do not count: packets are few by then, and connections end only when a
  // burst comes.
  exact->live.resize(std::min<std::size_t>(exact->live.size(), seconds * 1000 / kSampleMs));
  Experiment experiment(options, std::move(*capture), std::move(*exact));
  auto whole = experiment.run(progress);
  if (!whole) return std::unexpected(whole.error());
  if (!*whole) return AgeingReport{};
  return experiment.report();
}

}  // namespace millrace::bench
