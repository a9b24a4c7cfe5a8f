#include "pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "bench/pipeline_run.h"
#include "bench/timed_run.h"
#include "core/processors.h"
#include "function/kinds.h"
#include "line/probe.h"
#include "millrace/detail/waiting.h"
#include "parse/parse.h"
#include "shard/spread.h"
#include "traffic/generate.h"
#include "worker/threads.h"
#include "worker/workers.h"

namespace millrace::bench {
namespace {

/// Least number of packets in a pass, so that a pass with few connections can be timed, too.
constexpr std::uint64_t kLeastPackets = 100'000;
constexpr unsigned kBurstsThroughRing = 1 << 18;

enum class Part : std::uint8_t { receive, parse, spread, ring, serve };
constexpr std::array<std::string_view, 5> kPartNames{"receive", "parse", "spread", "ring", "serve"};

struct Lap {
  double ns = 0;
  double ticks = 0;
};

class Stopwatch {
 public:
  Lap lap() const {
    return {std::chrono::duration<double, std::nano>(Clock::now() - start_).count(),
            static_cast<double>(StageProbe::now() - ticks_)};
  }
  /// Returns the lap without the time that this thread has waited for other threads.
  Lap lap_without_waiting() const {
    const Lap all = lap();
    const double share = static_cast<double>(detail::Waiting::sum_ns() - waited_) / all.ns;
    return {all.ns * (1 - share), all.ticks * (1 - share)};
  }

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point start_ = Clock::now();
  std::uint64_t ticks_ = StageProbe::now();
  std::uint64_t waited_ = detail::Waiting::sum_ns();
};

/// Does a reader's work on the line's core, and measures each part of that work.
class ReadingPort final : public Port {
 public:
  struct Ticks {
    std::uint64_t receive = 0;
    std::uint64_t parse = 0;
    std::uint64_t spread = 0;
  };

  ReadingPort(ReplayPort port, const millrace::Spread& spread)
      : port_(std::move(port)), spread_(&spread) {}

  LinkType link_type() const override { return port_.link_type(); }
  bool receives_parsed() const override { return true; }
  bool receive(Burst& burst) override {
    const std::uint64_t begun = StageProbe::now();
    const bool more = port_.receive(burst);
    const std::uint64_t received = StageProbe::now();
    parse(burst, port_.link_type());
    const std::uint64_t parsed = StageProbe::now();
    spread(burst.v4);
    spread(burst.v6);
    ticks_.spread += StageProbe::now() - parsed;
    ticks_.parse += parsed - received;
    ticks_.receive += received - begun;
    return more;
  }
  void send(const Burst& burst, std::uint64_t forward) override { port_.send(burst, forward); }
  void finish() override { port_.finish(); }

  const Ticks& ticks() const { return ticks_; }
  /// Returns how many packets were spread. The count keeps the compiler from removing the work.
  std::uint64_t spread_packets() const { return to_[0] + to_[1]; }

 private:
  template <class K>
  void spread(const Lane<K>& lane) {
    std::array<std::uint32_t, Burst::kMax> hashes;
    spread_->hash({}, lane.keys(), std::span(hashes).first(lane.size));
    for (unsigned i = 0; i < lane.size; ++i)
      ++to_[indirection_.worker_of(indirection_.shard_of(hashes[i]))];
  }

  ReplayPort port_;
  const millrace::Spread* spread_;
  Indirection indirection_{Indirection::kMost, 2};
  std::array<std::uint64_t, 2> to_{};
  Ticks ticks_;
};

Burst* next_of(BurstRing& ring) {
  for (detail::Backoff others;; others.wait()) {
    if (Burst* burst = ring.pop()) return burst;
  }
}

/// Passes `count` bursts through a ring and back through another ring, as in a pipeline, without
/// writing to the bursts. Returns the time of one end, with an enqueue and a dequeue for each
/// burst, without waiting for the other end. Each end has a thread; on a single processor one
/// thread does the work of both ends.
Result<Lap> pass_bursts(unsigned count) {
  auto there = BurstRing::create(ParsedPort::kBursts);
  if (!there) return std::unexpected(there.error());
  auto back = BurstRing::create(ParsedPort::kBursts);
  if (!back) return std::unexpected(back.error());
  const auto bursts = std::make_unique<Burst[]>(ParsedPort::kBursts);
  for (unsigned i = 0; i < ParsedPort::kBursts; ++i) back->push(&bursts[i]);
  const auto feed = [&] { there->push(next_of(*back)); };
  const auto take = [&] { back->push(next_of(*there)); };
  const unsigned ends = processors() > 1 ? 2 : 1;
  Lap lap;
  const auto work = [&](unsigned n) {
    const Stopwatch watch;
    for (unsigned i = 0; i < count; ++i) {
      if (n == 1 || ends == 1) feed();
      if (n == 0) take();
    }
    if (n == 0) lap = watch.lap_without_waiting();
  };
  if (auto ok = on_threads(ends, work); !ok) return std::unexpected(ok.error());
  return ends == 2 ? lap : Lap{lap.ns / 2, lap.ticks / 2};
}

struct Contender {
  enum class What : std::uint8_t { parts, ring, run_to_completion, pipeline };

  What what;
  unsigned workers = 1;

  unsigned threads() const { return workers + (what == What::pipeline ? 1 : 0); }
  auto operator<=>(const Contender&) const = default;
};
using What = Contender::What;

std::string title(const Contender& contender) {
  switch (contender.what) {
    case What::parts:
      return "the parts";
    case What::ring:
      return "the ring";
    case What::run_to_completion:
      return fmt::format("{}, {} workers", kRunToCompletion, contender.workers);
    case What::pipeline:
      break;
  }
  return fmt::format("{}, a reader and {} workers", kPipeline, contender.workers);
}

std::vector<Contender> contenders_of(const PipelineOptions& options) {
  std::vector<Contender> all{{What::parts}, {What::ring}};
  for (const What what : {What::run_to_completion, What::pipeline}) {
    for (const unsigned workers : options.workers) all.push_back({what, workers});
    if (!options.workers.empty()) continue;
    for (Contender one{what}; one.threads() <= processors() && one.workers <= kMostWorkersUnasked;
         ++one.workers)
      all.push_back(one);
  }
  return all;
}

struct PartSamples {
  std::vector<double> ns;
  std::vector<double> cycles;
};

struct ModelSamples {
  std::vector<double> mpps;
  std::vector<double> reader_ns;
  std::vector<double> worker_ns;
};

class Experiment {
 public:
  Experiment(const PipelineOptions& options, Capture capture)
      : options_(options),
        contenders_(contenders_of(options)),
        capture_(std::move(capture)),
        spread_(spreads().front().create(Secret::from_seed(options.seed + 1))) {}

  /// Returns false if `progress` ended the measurement.
  Result<bool> run(const Progress& progress) {
    return in_turn(options_, contenders_, progress, title,
                   [this](const Contender& contender) { return measure(contender); });
  }

  PipelineReport report() const;

 private:
  Result<double> measure(const Contender& contender);  // Mpps
  Result<double> measure_parts();
  Result<double> measure_ring();
  Result<double> measure_model(const Contender& contender);

  std::uint64_t packets() const { return capture_.size(); }
  ReplayOptions replay(unsigned in_flight) const {
    return {.burst = options_.burst, .clock = Clock::wall, .in_flight = in_flight};
  }
  Result<Workers> make_workers(unsigned count);
  Result<void> check(const Contender& contender, const Workers& workers);
  void note(Part part, const Lap& lap, double of_packets);
  double note(const Contender& contender, const Workers& workers,
              const std::optional<Workers::Time>& reading);
  std::vector<PipelineResult> results_of(std::string_view model, const StageTimes& ns,
                                         unsigned most) const;

  const PipelineOptions& options_;
  std::vector<Contender> contenders_;
  Capture capture_;
  std::unique_ptr<millrace::Spread> spread_;
  std::array<PartSamples, kPartNames.size()> part_samples_;
  std::map<Contender, ModelSamples> samples_;
  std::map<unsigned, std::vector<CapturePart>> parts_;  // by number of workers
  std::optional<std::uint64_t> opened_;  // connections that the first contender opened
  Pages pages_ = Pages::huge;
};

Result<double> Experiment::measure(const Contender& contender) {
  switch (contender.what) {
    case What::parts:
      return measure_parts();
    case What::ring:
      return measure_ring();
    default:
      return measure_model(contender);
  }
}

/// Makes workers. If their number is new, also divides the capture among them.
Result<Workers> Experiment::make_workers(unsigned count) {
  const LineConfig line{.table = options_.table,
                        .capacity = 2 * options_.live,
                        .capacity_v6 = 2 * options_.live,
                        .timeouts = Timeouts::all(2'000'000'000),
                        .pages = options_.pages,
                        .secret = Secret::from_seed(options_.seed)};
  auto workers = Workers::create(count, line, default_function());
  if (!workers || parts_.contains(count)) return workers;
  auto parts = parts_for(*workers, capture_, options_.seed + 1);
  if (!parts) return std::unexpected(parts.error());
  parts_[count] = std::move(*parts);
  return workers;
}

/// Measures the parts of a packet's way, except the ring, with a worker that reads for itself.
/// `Part::serve` is the whole time less receive, parse and spread.
Result<double> Experiment::measure_parts() {
  auto workers = make_workers(1);
  if (!workers) return std::unexpected(workers.error());
  auto replayed =
      ReplayPort::create(capture_, replay(kBurstsInFlight), nullptr, parts_.at(1).front());
  if (!replayed) return std::unexpected(replayed.error());
  ReadingPort port(std::move(*replayed), *spread_);
  Port* const only = &port;
  const Stopwatch watch;
  if (auto ok = workers->run({&only, 1}); !ok) return std::unexpected(ok.error());
  const Lap all = watch.lap();
  if (auto ok = check({What::parts}, *workers); !ok) return std::unexpected(ok.error());
  if (port.spread_packets() != packets())
    return std::unexpected(
        Error{fmt::format("{} packets were spread: each of {} packets must be spread once",
                          port.spread_packets(), packets())});
  Lap rest = all;
  const auto take = [&](Part part, std::uint64_t ticks) {
    const auto its = static_cast<double>(ticks);
    const Lap lap{all.ns * its / all.ticks, its};
    note(part, lap, static_cast<double>(packets()));
    rest = {rest.ns - lap.ns, rest.ticks - lap.ticks};
  };
  take(Part::receive, port.ticks().receive);
  take(Part::parse, port.ticks().parse);
  take(Part::spread, port.ticks().spread);
  note(Part::serve, rest, static_cast<double>(packets()));
  return 1000 * static_cast<double>(packets()) / all.ns;
}

Result<double> Experiment::measure_ring() {
  const auto lap = pass_bursts(kBurstsThroughRing);
  if (!lap) return std::unexpected(lap.error());
  const double of_packets = double{kBurstsThroughRing} * options_.burst;
  note(Part::ring, *lap, of_packets);
  return 1000 * of_packets / lap->ns;
}

Result<double> Experiment::measure_model(const Contender& contender) {
  auto workers = make_workers(contender.workers);
  if (!workers) return std::unexpected(workers.error());
  const bool piped = contender.what == What::pipeline;
  std::vector<ReplayPort> ports;
  for (const CapturePart& part : parts_.at(contender.workers)) {
    auto port = ReplayPort::create(capture_, replay(piped ? Pipeline::kInFlight : kBurstsInFlight),
                                   nullptr, part);
    if (!port) return std::unexpected(port.error());
    ports.push_back(std::move(*port));
  }
  std::vector<Port*> pointers;
  for (ReplayPort& port : ports) pointers.push_back(&port);
  std::optional<Workers::Time> reading;
  if (piped) {
    auto pipeline = Pipeline::create(pointers);
    if (!pipeline) return std::unexpected(pipeline.error());
    if (auto ok = pipeline->run(*workers); !ok) return std::unexpected(ok.error());
    reading = pipeline->reading_time();
  } else if (auto ok = workers->run(pointers); !ok) {
    return std::unexpected(ok.error());
  }
  if (auto ok = check(contender, *workers); !ok) return std::unexpected(ok.error());
  return note(contender, *workers, reading);
}

/// Checks that the contender opened as many connections as the first one and served every packet.
Result<void> Experiment::check(const Contender& contender, const Workers& workers) {
  const WorkerCounters counters = workers.counters();
  pages_ = std::max(pages_, workers.report_v4().pages);
  const std::uint64_t served = served_by(counters);
  if (!opened_) opened_ = counters.opened.value();
  if (counters.in.value() == packets() && served == packets() && counters.refused.value() == 0 &&
      counters.opened.value() == *opened_)
    return {};
  return std::unexpected(Error{
      fmt::format("{}: {} of {} packets were received, {} served and {} refused, but all must be "
                  "served; {} connections were opened, and {} by the first contender: these must "
                  "be equal",
                  title(contender), counters.in.value(), packets(), served,
                  counters.refused.value(), counters.opened.value(), *opened_)});
}

void Experiment::note(Part part, const Lap& lap, double of_packets) {
  PartSamples& of = part_samples_[static_cast<std::size_t>(part)];
  of.ns.push_back(lap.ns / of_packets);
  of.cycles.push_back(lap.ticks / of_packets);
}

double Experiment::note(const Contender& contender, const Workers& workers,
                        const std::optional<Workers::Time>& reading) {
  ModelSamples& of = samples_[contender];
  const auto packets = static_cast<double>(this->packets());
  std::uint64_t longest = 0;
  std::uint64_t busy = 0;
  for (unsigned n = 0; n < workers.count(); ++n) {
    const Workers::Time time = workers.time(n);
    longest = std::max(longest, time.elapsed_ns);
    busy += time.elapsed_ns - time.waited_ns;
  }
  of.worker_ns.push_back(static_cast<double>(busy) / packets);
  if (reading) {
    longest = std::max(longest, reading->elapsed_ns);
    of.reader_ns.push_back(static_cast<double>(reading->elapsed_ns - reading->waited_ns) / packets);
  }
  of.mpps.push_back(1000 * packets / static_cast<double>(longest));
  return of.mpps.back();
}

std::optional<Spread> spread_of_some(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  return spread_of(values);
}

/// Returns the results for each number of workers up to `most`.
std::vector<PipelineResult> Experiment::results_of(std::string_view model, const StageTimes& ns,
                                                   unsigned most) const {
  const bool piped = model != kRunToCompletion;
  std::vector<PipelineResult> all;
  for (unsigned workers = 1; workers <= most; ++workers) {
    const Contender contender{piped ? What::pipeline : What::run_to_completion, workers};
    const double interval =
        piped ? pipeline_interval(ns, workers) : run_to_completion_interval(ns, workers);
    PipelineResult result{.model = model,
                          .workers = workers,
                          .threads = contender.threads(),
                          .predicted_mpps = 1000 / interval};
    const auto found = samples_.find(contender);
    if (model != kSpreadingPipeline && found != samples_.end()) {
      result.mpps = spread_of_some(found->second.mpps);
      result.reader_ns = spread_of_some(found->second.reader_ns);
      result.worker_ns = spread_of_some(found->second.worker_ns);
    }
    all.push_back(result);
  }
  return all;
}

PipelineReport Experiment::report() const {
  PipelineReport report{.packets = packets(), .pages = pages_};
  std::array<double, kPartNames.size()> ns;
  for (std::size_t p = 0; p < kPartNames.size(); ++p) {
    report.parts.push_back(
        {kPartNames[p], spread_of(part_samples_[p].ns), spread_of(part_samples_[p].cycles)});
    ns[p] = report.parts.back().ns.median;
  }
  const auto of = [&ns](Part part) { return ns[static_cast<std::size_t>(part)]; };
  const StageTimes plain{.input = of(Part::receive) + of(Part::parse),
                         .ring = of(Part::ring),
                         .application = of(Part::serve)};
  StageTimes spreading = plain;
  spreading.input += of(Part::spread);
  report.summaries = {{kPipeline, plain}, {kSpreadingPipeline, spreading}};

  unsigned most = best_workers(plain);
  for (const Contender& contender : contenders_) most = std::max(most, contender.workers);
  for (const auto& [model, times] :
       {std::pair{kRunToCompletion, plain}, {kPipeline, plain}, {kSpreadingPipeline, spreading}}) {
    const auto results = results_of(model, times, most);
    report.results.insert(report.results.end(), results.begin(), results.end());
  }
  return report;
}

}  // namespace

Result<std::optional<PipelineReport>> run_pipeline(const PipelineOptions& options,
                                                   const Progress& progress) {
  if (!progress("making the traffic")) return std::nullopt;
  auto capture = generate({.connections = options.live,
                           .packets = std::max(10 * options.live, kLeastPackets),
                           .seed = options.seed});
  if (!capture) return std::unexpected(capture.error());
  Experiment experiment(options, std::move(*capture));
  const auto whole = experiment.run(progress);
  if (!whole) return std::unexpected(whole.error());
  if (!*whole) return std::nullopt;
  return experiment.report();
}

}  // namespace millrace::bench
