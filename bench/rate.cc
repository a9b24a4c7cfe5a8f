#include "bench/rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "bench/paced_run.h"
#include "bench/pairs.h"
#include "bench/timed_run.h"
#include "function/kinds.h"
#include "traffic/frame.h"
#include "traffic/generate.h"

namespace millrace::bench {
namespace {

constexpr auto& kPercents = RateOptions::kPercents;

/// Makes the packets of connections that begin and end: for each a SYN, and later a RST.
class Beginners {
 public:
  explicit Beginners(std::uint64_t connections) : connections_(connections) {}

  std::uint64_t packets() const { return 2 * connections_; }
  Result<std::byte*> append_to(Capture& capture, std::uint64_t packet, std::uint64_t at_ns) {
    const std::uint64_t n = packet / 2;
    const bool ends = packet % 2 == 1;
    Frame frame{.from = {Endpoint::Side::client, static_cast<std::uint32_t>(n % kHosts),
                         static_cast<std::uint16_t>(1024 + n / kHosts)},
                .to = {Endpoint::Side::server, static_cast<std::uint32_t>(n % kServers), kPort}};
    frame.flags = ends ? Frame::kRst : Frame::kSyn;
    frame.sequence = ends ? 1 : 0;
    const std::uint32_t length = builder_.build(frame);
    return capture.append(at_ns, length, {builder_.data(), length});
  }

 private:
  static constexpr std::uint64_t kHosts = 65'000;
  static constexpr std::uint64_t kServers = 256;
  static constexpr std::uint16_t kPort = 80;  // packets of established connections go to 443

  std::uint64_t connections_;
  FrameBuilder builder_;
};

/// Returns a capture with one packet of each established connection and, evenly in between, the
/// packets of `Beginners`. Errors (failed): no memory.
Result<Capture> make_traffic(const RateOptions& options) {
  Beginners beginners(options.live / RateOptions::kBeginsOf);
  const std::uint64_t others = options.live - beginners.packets() / 2;
  const auto established = generate({.profile = Profile::uniform,
                                     .connections = others,
                                     .packets = others,
                                     .seed = options.seed,
                                     .midstream = true});
  if (!established) return std::unexpected(established.error());
  Capture capture(established->format());
  std::uint64_t begun = 0;
  for (std::uint64_t i = 0; i < others; ++i) {
    const Capture::Packet& packet = established->packet(i);
    for (; begun * others < (i + 1) * beginners.packets(); ++begun) {
      if (auto ok = beginners.append_to(capture, begun, packet.timestamp_ns); !ok)
        return std::unexpected(ok.error());
    }
    if (auto ok = capture.append(packet.timestamp_ns, packet.wire_length, packet.bytes()); !ok)
      return std::unexpected(ok.error());
  }
  return capture;
}

/// Returns the size of a million of the capture's packets in gigabits, on average.
double gbit_of(const Capture& capture) {
  double bytes = 0;
  for (std::size_t i = 0; i < capture.size(); ++i) bytes += capture.packet(i).wire_length;
  return 1e6 * bytes / static_cast<double>(capture.size()) * 8 / 1e9;
}

struct Contender {
  double load;
  std::string sharing;
  std::string table;
  unsigned workers;
  double offered_mpps;

  std::string name() const {
    return fmt::format("{}, {}, {} workers, load {}, {} Mpps", table, sharing, workers, load,
                       offered_mpps);
  }
  auto operator<=>(const Contender&) const = default;
};

std::vector<Contender> contenders_of(const RateOptions& options) {
  std::vector<Contender> all;
  for (const double load : options.loads) {
    for (const auto& sharing : options.sharing) {
      for (const auto& table : tables_among(options.tables, sharing)) {
        for (const unsigned workers : options.workers) {
          for (const double mpps : options.offered_mpps)
            all.push_back({load, sharing, table, workers, mpps});
        }
      }
    }
  }
  return all;
}

/// Checks that each packet that arrived was lost or received, and that each received packet was
/// served and forwarded.
Result<void> check(const Contender& contender, const PacedRun& run, const WorkerCounters& before,
                   const WorkerCounters& after) {
  const std::uint64_t in = after.in.value() - before.in.value();
  const std::uint64_t served = served_by(after) - served_by(before);
  const std::uint64_t forwarded = run.latency.total();
  if (run.taken + run.lost == run.offered && in == run.taken && served == in && forwarded == in)
    return {};
  return std::unexpected(Error{
      fmt::format("{}: of {} packets the queues lost {} and passed on {}; lines received {}, "
                  "served {}, sent {}: each packet must be lost or sent",
                  contender.name(), run.offered, run.lost, run.taken, in, served, forwarded)});
}

struct Samples {
  std::vector<double> mpps;
  std::vector<double> lost_share;
  std::array<std::vector<double>, kPercents.size()> latency_us;
  std::vector<double> waiting;
  RateResult sum;  ///< figures that are added up over the repetitions
};

class Experiment {
 public:
  Experiment(const RateOptions& options, std::vector<Contender> contenders, Capture capture)
      : options_(options),
        contenders_(std::move(contenders)),
        capture_(std::move(capture)),
        gbit_(gbit_of(capture_)) {}

  /// Returns false if `progress` ended the measurement.
  Result<bool> run(const Progress& progress) {
    return in_turn(
        options_, contenders_, progress,
        [](const Contender& contender) { return contender.name(); },
        [this](const Contender& contender) { return measure(contender); });
  }

  /// Returns the results of the contenders that were measured.
  std::vector<RateResult> results() {
    std::vector<RateResult> all;
    for (const Contender& contender : contenders_) {
      const auto samples = samples_.find(contender);
      if (samples != samples_.end()) all.push_back(result_of(contender, samples->second));
    }
    return all;
  }

 private:
  Result<double> measure(const Contender& contender);  // Mpps
  Result<Workers> make_workers(const Contender& contender);
  Result<void> open(const Contender& contender, Workers& workers);
  static void add(Samples& samples, const PacedRun& run);
  RateResult result_of(const Contender& contender, Samples& samples) const;

  const RateOptions& options_;
  std::vector<Contender> contenders_;
  Capture capture_;
  double gbit_;  // size of a million packets
  std::map<Contender, Samples> samples_;
  std::map<unsigned, std::vector<CapturePart>> parts_;  // by number of workers
  CycleClock clock_;
};

Result<double> Experiment::measure(const Contender& contender) {
  auto workers = make_workers(contender);
  if (!workers) return std::unexpected(workers.error());
  if (auto ok = open(contender, *workers); !ok) return std::unexpected(ok.error());
  const WorkerCounters before = workers->counters();
  const auto run = paced_run(*workers, capture_, parts_.at(contender.workers),
                             {.mpps = contender.offered_mpps,
                              .seconds = options_.seconds,
                              .queue = options_.queue,
                              .burst = options_.burst},
                             clock_);
  if (!run) return std::unexpected(run.error());
  const WorkerCounters after = workers->counters();
  if (auto ok = check(contender, *run, before, after); !ok) return std::unexpected(ok.error());
  Samples& samples = samples_[contender];
  add(samples, *run);
  samples.sum.opened += after.opened.value() - before.opened.value();
  samples.sum.refused += after.refused.value() - before.refused.value();
  samples.sum.pages = std::max(samples.sum.pages, workers->report_v4().pages);
  return run->mpps;
}

Result<Workers> Experiment::make_workers(const Contender& contender) {
  const double capacity = std::ceil(static_cast<double>(options_.live) / contender.load);
  const LineConfig line{.table = contender.table,
                        .sharing = contender.sharing,
                        .capacity = static_cast<std::size_t>(capacity),
                        .capacity_v6 = 1,
                        .timeouts = Timeouts::all(2'000'000'000),
                        .pages = options_.pages,
                        .secret = Secret::from_seed(options_.seed)};
  auto workers = Workers::create(contender.workers, line, default_function());
  if (!workers || parts_.contains(contender.workers)) return workers;
  auto parts = parts_for(*workers, capture_, options_.seed + 1);
  if (!parts) return std::unexpected(parts.error());
  parts_[contender.workers] = std::move(*parts);
  return workers;
}

/// Passes the capture once, untimed. Checks that every connection was opened and every packet
/// served.
Result<void> Experiment::open(const Contender& contender, Workers& workers) {
  const auto pass = timed_run(workers, capture_, parts_.at(contender.workers),
                              {.burst = options_.burst, .clock = Clock::wall}, clock_);
  if (!pass) return std::unexpected(pass.error());
  const WorkerCounters counters = workers.counters();
  if (counters.opened.value() == options_.live && served_by(counters) == capture_.size()) return {};
  return std::unexpected(Error{fmt::format(
      "{}: opened {} of {} connections, served {} of {} packets: all must be opened and served",
      contender.name(), counters.opened.value(), options_.live, served_by(counters),
      capture_.size())});
}

void Experiment::add(Samples& samples, const PacedRun& run) {
  samples.mpps.push_back(run.mpps);
  samples.lost_share.push_back(static_cast<double>(run.lost) / static_cast<double>(run.offered));
  for (std::size_t i = 0; i < kPercents.size(); ++i)
    samples.latency_us[i].push_back(run.latency.percentile(kPercents[i]));
  samples.waiting.push_back(run.waiting);
  samples.sum.offered += run.offered;
  samples.sum.forwarded += run.latency.total();
  samples.sum.lost += run.lost;
  samples.sum.latency.add(run.latency);
}

RateResult Experiment::result_of(const Contender& contender, Samples& samples) const {
  RateResult result = std::move(samples.sum);
  result.table = contender.table;
  result.sharing = contender.sharing;
  result.workers = contender.workers;
  result.load = contender.load;
  const double seconds = options_.seconds * static_cast<double>(samples.mpps.size());
  result.offered_mpps = static_cast<double>(result.offered) / seconds / 1e6;
  result.mpps = spread_of(samples.mpps);
  result.gbps = {gbit_ * result.mpps.median, gbit_ * result.mpps.min, gbit_ * result.mpps.max};
  result.lost_share = spread_of(samples.lost_share);
  for (std::size_t i = 0; i < kPercents.size(); ++i)
    result.latency_us[i] = spread_of(samples.latency_us[i]);
  result.waiting = spread_of(samples.waiting).median;
  return result;
}

}  // namespace

Result<RateReport> run_rate(const RateOptions& options, const Progress& progress) {
  auto contenders = contenders_of(options);
  if (contenders.empty()) return none_go_together();
  if (!progress("making the traffic")) return RateReport{};
  auto capture = make_traffic(options);
  if (!capture) return std::unexpected(capture.error());
  Experiment experiment(options, std::move(contenders), std::move(*capture));
  const auto whole = experiment.run(progress);
  if (!whole) return std::unexpected(whole.error());
  return RateReport{.results = experiment.results(), .complete = *whole};
}

}  // namespace millrace::bench
