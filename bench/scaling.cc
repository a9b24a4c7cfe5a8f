#include "scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "bench/pairs.h"
#include "bench/timed_run.h"
#include "conntrack/schemes.h"
#include "core/processors.h"
#include "function/kinds.h"
#include "traffic/generate.h"
#include "worker/workers.h"

namespace millrace::bench {
namespace {

constexpr std::array<std::pair<std::string_view, ScalingTraffic>, 3> kTraffic{{
    {"campus", ScalingTraffic::campus},
    {"flood", ScalingTraffic::flood},
    {"established", ScalingTraffic::established},
}};

/// A kind of traffic, and how workers pass it.
struct Passes {
  Capture capture;
  std::size_t capacity;
  bool warm;            ///< an untimed pass comes first
  std::uint32_t loops;  ///< repetitions of the capture in a timed pass
};

Result<Passes> make_passes(const ScalingOptions& options, ScalingTraffic traffic) {
  TrafficPlan plan{.connections = options.live, .seed = options.seed};
  Passes passes{Capture(CaptureFormat{}), 2 * options.live, false, 1};
  switch (traffic) {
    case ScalingTraffic::campus:
      plan.packets = 10 * options.live;
      break;
    case ScalingTraffic::flood:
      plan.profile = Profile::flood;
      plan.connections = plan.packets = passes.capacity = 5 * options.live;
      break;
    case ScalingTraffic::established:
      plan.profile = Profile::uniform;
      plan.packets = options.live;
      plan.midstream = true;
      passes.warm = true;
      passes.loops = 10;
      break;
  }
  auto capture = generate(plan);
  if (!capture) return std::unexpected(capture.error());
  passes.capture = std::move(*capture);
  return passes;
}

struct Contender {
  std::string table;
  std::string sharing;  ///< the scheme, or `kSharedCounter`
  unsigned workers;

  bool counts() const { return sharing == kSharedCounter; }
  std::string scheme() const { return counts() ? "sharded" : sharing; }
  auto operator<=>(const Contender&) const = default;
};

struct Samples {
  std::vector<double> mpps;
  std::vector<double> ns_per_packet;
  std::vector<double> waiting;
  std::vector<float> burst_us;
  Pages pages = Pages::huge;
};

/// Measures all combinations with one kind of traffic, in turn.
class Experiment {
 public:
  Experiment(const ScalingOptions& options, ScalingTraffic traffic, Passes passes,
             const std::vector<Contender>& contenders)
      : options_(options), traffic_(traffic), passes_(std::move(passes)), contenders_(contenders) {}

  /// Returns false if `progress` ended the measurement.
  Result<bool> run(const Progress& progress) {
    const auto title = [this](const Contender& contender) {
      return fmt::format("{}, {}, {}, {} workers", to_string(traffic_), contender.table,
                         contender.sharing, contender.workers);
    };
    return in_turn(options_, contenders_, progress, title,
                   [this](const Contender& contender) { return measure(contender); });
  }

  void report(ScalingReport& report) {
    for (const Contender& contender : contenders_) {
      Samples& of = samples_[contender];
      report.results.push_back({contender.table, contender.sharing, traffic_, contender.workers,
                                passes_.capture.size() * passes_.loops, spread_of(of.mpps),
                                spread_of(of.ns_per_packet), spread_of(of.waiting).median,
                                percentiles_of(std::move(of.burst_us), {50, 90, 99, 99.9}),
                                of.pages});
    }
  }

 private:
  Result<double> measure(const Contender& contender);  // Mpps
  Result<void> pass(Workers& workers, std::uint32_t loops, Samples* samples);
  Result<void> check(const Contender& contender, const WorkerCounters& counters);

  const ScalingOptions& options_;
  ScalingTraffic traffic_;
  Passes passes_;
  const std::vector<Contender>& contenders_;
  std::map<Contender, Samples> samples_;
  std::map<unsigned, std::vector<CapturePart>> parts_;  // by number of workers
  std::optional<std::uint64_t> opened_;  // connections that the first combination opened
  CycleClock clock_;
  std::atomic<std::uint64_t> counter_ = 0;
  bool counts_ = false;
};

Result<double> Experiment::measure(const Contender& contender) {
  LineConfig line{.table = contender.table,
                  .sharing = contender.scheme(),
                  .capacity = passes_.capacity,
                  .capacity_v6 = passes_.capacity,
                  .timeouts = Timeouts::all(2'000'000'000),
                  .pages = options_.pages,
                  .secret = Secret::from_seed(options_.seed)};
  auto workers = Workers::create(contender.workers, line, default_function());
  if (!workers) return std::unexpected(workers.error());
  if (!parts_.contains(contender.workers)) {
    auto parts = parts_for(*workers, passes_.capture, options_.seed + 1);
    if (!parts) return std::unexpected(parts.error());
    parts_[contender.workers] = std::move(*parts);
  }
  counts_ = contender.counts();
  Samples& samples = samples_[contender];
  if (passes_.warm) {
    if (auto ok = pass(*workers, 1, nullptr); !ok) return std::unexpected(ok.error());
  }
  if (auto ok = pass(*workers, passes_.loops, &samples); !ok) return std::unexpected(ok.error());
  samples.pages = std::max(samples.pages, workers->report_v4().pages);
  if (auto ok = check(contender, workers->counters()); !ok) return std::unexpected(ok.error());
  return samples.mpps.back();
}

Result<void> Experiment::pass(Workers& workers, std::uint32_t loops, Samples* samples) {
  OnBurst count;
  if (counts_) {
    count = [this](unsigned, const Burst& burst) {
      for (unsigned i = 0; i < burst.size; ++i) counter_.fetch_add(1, std::memory_order_relaxed);
    };
  }
  auto run =
      timed_run(workers, passes_.capture, parts_.at(workers.count()),
                {.burst = options_.burst, .loops = loops, .clock = Clock::wall}, clock_, count);
  if (!run) return std::unexpected(run.error());
  if (samples == nullptr) return {};
  samples->mpps.push_back(run->mpps);
  samples->ns_per_packet.push_back(run->ns_per_packet);
  samples->waiting.push_back(run->waiting);
  samples->burst_us.insert(samples->burst_us.end(), run->burst_us.begin(), run->burst_us.end());
  return {};
}

/// Checks that the combination opened as many connections as the first one and served every packet.
Result<void> Experiment::check(const Contender& contender, const WorkerCounters& counters) {
  const std::uint64_t expected = passes_.capture.size() * (passes_.loops + (passes_.warm ? 1 : 0));
  const std::uint64_t served = served_by(counters);
  if (!opened_) opened_ = counters.opened.value();
  if (counters.in.value() == expected && served == expected && counters.refused.value() == 0 &&
      counters.opened.value() == *opened_)
    return {};
  return std::unexpected(Error{fmt::format(
      "{}, {}, {} workers, {}: {} of {} packets were received, {} served and {} refused, but all "
      "must "
      "be served; {} connections were opened, and {} by the first combination: these must be equal",
      contender.table, contender.sharing, contender.workers, to_string(traffic_),
      counters.in.value(), expected, served, counters.refused.value(), counters.opened.value(),
      *opened_)});
}

std::vector<Contender> contenders_of(const ScalingOptions& options) {
  std::vector<std::string> sharing = options.sharing;
  if (sharing.empty()) {
    sharing = SharingSchemes::names();
    sharing.emplace_back(kSharedCounter);
  }
  std::vector<Contender> all;
  for (const auto& scheme : sharing) {
    for (const auto& table : tables_among(options.tables, Contender{.sharing = scheme}.scheme())) {
      for (const unsigned workers : options.workers) all.push_back({table, scheme, workers});
    }
  }
  return all;
}

/// Adds predictions if enough numbers of workers were measured with a processor for every worker.
/// Otherwise writes the reason to `no_prediction`.
void predict(const ScalingOptions& options, ScalingReport& report) {
  const std::set<unsigned> counts(options.workers.begin(), options.workers.end());
  const auto distinct = static_cast<std::size_t>(
      std::ranges::count_if(counts, [](unsigned workers) { return workers <= processors(); }));
  if (distinct < kCountsToPredict) {
    report.no_prediction = fmt::format(
        "no prediction: it needs measurements of {} worker counts for which each worker has a "
        "processor; there are {}, on {} processors",
        kCountsToPredict, distinct, processors());
    return;
  }
  std::map<std::tuple<std::string, std::string, ScalingTraffic>,
           std::vector<std::pair<double, double>>>
      points;
  for (const ScalingResult& r : report.results) {
    if (r.workers <= processors())
      points[{r.table, r.sharing, r.traffic}].emplace_back(r.workers, r.mpps.median);
  }
  for (const auto& [what, measured] : points) {
    const auto& [table, sharing, traffic] = what;
    if (const auto law = fit_scalability_law(measured))
      report.predictions.push_back({table, sharing, traffic, *law});
  }
}

}  // namespace

std::string_view to_string(ScalingTraffic traffic) {
  return kTraffic[static_cast<std::size_t>(traffic)].first;
}

std::optional<ScalingTraffic> scaling_traffic_named(std::string_view name) {
  for (const auto& [known, traffic] : kTraffic) {
    if (known == name) return traffic;
  }
  return std::nullopt;
}

Result<ScalingReport> run_scaling(const ScalingOptions& options, const Progress& progress) {
  ScalingReport report;
  const auto contenders = contenders_of(options);
  if (contenders.empty()) return none_go_together();
  std::size_t to_come = options.traffic.size() * contenders.size() * options.repetitions;
  for (const ScalingTraffic traffic : options.traffic) {
    const std::string what = fmt::format("{}: making the traffic", to_string(traffic));
    if (!progress({.what = what, .to_come = to_come})) return report;
    auto passes = make_passes(options, traffic);
    if (!passes) return std::unexpected(passes.error());
    Experiment experiment(options, traffic, std::move(*passes), contenders);
    auto whole = experiment.run(progress);
    if (!whole) return std::unexpected(whole.error());
    if (!*whole) return report;
    experiment.report(report);
    to_come -= contenders.size() * options.repetitions;
  }
  report.complete = true;
  predict(options, report);
  return report;
}

}  // namespace millrace::bench
