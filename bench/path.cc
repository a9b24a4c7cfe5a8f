#include "path.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "conntrack/ageing/wheel.h"
#include "conntrack/schemes.h"
#include "function/balance/balance.h"
#include "parse/parse.h"
#include "port/replay_port.h"
#include "worker/line_impl.h"

namespace millrace::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;

/// Receive and parse, nothing else. Counts keys, so that nothing can be left out.
struct ParseOnly {
  std::uint64_t keys = 0;

  void run(Port& port) {
    auto burst = std::make_unique<Burst>();
    for (bool more = true; more;) {
      burst->size = 0;
      more = port.receive(*burst);
      parse(*burst, port.link_type());
      keys += burst->v4.originator.size + burst->v6.originator.size;
      port.send(*burst, 0);
    }
  }
};

/// Parse, then the least that a tracker must do: find each packet's connection in `race` and update
/// its record. The same pipeline as a line's.
class ParseAndTouch {
 public:
  static Result<ParseAndTouch> create(std::size_t capacity, std::size_t state_v4,
                                      std::size_t state_v6, Pages pages) {
    auto v4 = Race<KeyV4>::create({capacity, state_v4, pages, Secret::from_seed(1)});
    if (!v4) return std::unexpected(v4.error());
    auto v6 = Race<KeyV6>::create({capacity / 2 + 1, state_v6, pages, Secret::from_seed(1)});
    if (!v6) return std::unexpected(v6.error());
    return ParseAndTouch(std::move(*v4), std::move(*v6));
  }

  void run(Port& port) {
    std::array<std::unique_ptr<Burst>, 3> bursts{
        std::make_unique<Burst>(), std::make_unique<Burst>(), std::make_unique<Burst>()};
    for (unsigned left = 3; left > 0;) {
      prefetch_stragglers(v4_, bursts[2]->v4.originator);
      prefetch_stragglers(v6_, bursts[2]->v6.originator);
      bursts[0]->size = 0;
      if (left < 3 || !port.receive(*bursts[0])) --left;
      parse(*bursts[0], port.link_type());
      prefetch(v4_, bursts[0]->v4.originator);
      prefetch(v6_, bursts[0]->v6.originator);
      prefetch_records(v4_, bursts[1]->v4.originator);
      prefetch_records(v6_, bursts[1]->v6.originator);
      touch(v4_, bursts[2]->v4.originator, bursts[2]->now);
      touch(v6_, bursts[2]->v6.originator, bursts[2]->now);
      port.send(*bursts[2], 0);
      std::ranges::rotate(bursts, bursts.end() - 1);
    }
  }

  std::uint64_t live() const { return v4_.size() + v6_.size(); }
  std::uint64_t touched() const { return touched_; }

 private:
  ParseAndTouch(Race<KeyV4> v4, Race<KeyV6> v6) : v4_(std::move(v4)), v6_(std::move(v6)) {}

  template <class K>
  static void prefetch(const Race<K>& table, Lane<K>& lane) {
    table.hasher()(lane.keys(), std::span(lane.hash));
    table.prefetch(lane.hashes());
  }

  template <class K>
  static void prefetch_records(const Race<K>& table, Lane<K>& lane) {
    lane.stragglers = table.prefetch_records(lane.keys(), lane.hashes());
  }

  template <class K>
  static void prefetch_stragglers(const Race<K>& table, const Lane<K>& lane) {
    table.prefetch_stragglers(lane.keys(), lane.hashes(), lane.stragglers);
  }

  template <class K>
  void touch(Race<K>& table, Lane<K>& lane, Tick now) {
    table.find(lane.keys(), lane.hashes(), lane.connections(), lane.stragglers);
    for (unsigned i = 0; i < lane.size; ++i) {
      ConnId id = lane.connection[i];
      if (id == ConnId::none) [[unlikely]] {
        id = table.insert(lane.key[i], lane.hash[i], KeepAll{}).id;
        if (id == ConnId::none) continue;
      }
      table.records().header(id).last_seen = now;
      ++touched_;
    }
  }

  Race<KeyV4> v4_;
  Race<KeyV6> v6_;
  std::uint64_t touched_ = 0;
};

using StagedLine = LineOf<Race, Alone, StageProbe>;

/// Everything that takes part in one measurement, warm: all connections are open.
class Contest {
 public:
  static Result<std::unique_ptr<Contest>> create(const PathOptions& options, Profile traffic,
                                                 std::uint64_t live);
  Result<std::optional<PathResult>> measure(const Progress& progress);

 private:
  Contest(const PathOptions& options, Profile traffic, Capture capture)
      : options_(options), traffic_(traffic), capture_(std::move(capture)) {}

  template <class Contender>
  double pass(Contender& contender) const {
    auto port = ReplayPort::create(capture_, {.burst = options_.burst, .clock = Clock::wall});
    const auto start = SteadyClock::now();
    contender.run(*port);
    return std::chrono::duration<double, std::nano>(SteadyClock::now() - start).count() /
           static_cast<double>(capture_.size());
  }

  Result<void> compare() const;

  const PathOptions& options_;
  Profile traffic_;
  Capture capture_;
  std::unique_ptr<Balance> balance_;
  std::unique_ptr<Balance> balance_staged_;
  ParseOnly parse_;
  std::optional<ParseAndTouch> touch_;
  std::unique_ptr<Line> whole_;
  std::unique_ptr<StagedLine> staged_;
};

Result<std::unique_ptr<Contest>> Contest::create(const PathOptions& options, Profile traffic,
                                                 std::uint64_t live) {
  // Looped, one packet of each connection is the uniform profile's every-other order.
  const std::uint64_t packets = traffic == Profile::uniform ? live : 4 * live;
  auto capture = generate({.profile = traffic,
                           .connections = live,
                           .packets = packets,
                           .seed = options.seed,
                           .midstream = true});
  if (!capture) return std::unexpected(capture.error());
  std::unique_ptr<Contest> contest(new Contest(options, traffic, std::move(*capture)));

  // Two directions of a campus connection are two entries here: each is balanced on its own.
  const std::size_t capacity = traffic == Profile::uniform ? live : 2 * live;
  LineConfig config{.capacity = capacity,
                    .capacity_v6 = capacity / 2 + 1,
                    .timeouts = Timeouts::all(2'000'000'000),
                    .pages = options.pages,
                    .secret = Secret::from_seed(options.seed)};
  for (auto* balance : {&contest->balance_, &contest->balance_staged_}) {
    auto made = Balance::create({});
    if (!made) return std::unexpected(made.error());
    *balance = std::move(*made);
  }
  auto whole = make_line(config, *contest->balance_);
  if (!whole) return std::unexpected(whole.error());
  contest->whole_ = std::move(*whole);
  Function* const only = contest->balance_staged_.get();
  auto staged = StagedLine::create(config, Wheel::create, Sharded::create, {&only, 1});
  if (!staged) return std::unexpected(staged.error());
  contest->staged_ = std::move(staged->front());
  auto touch =
      ParseAndTouch::create(capacity, contest->balance_->v4().state_bytes().originator,
                            contest->balance_->v6().state_bytes().originator, options.pages);
  if (!touch) return std::unexpected(touch.error());
  contest->touch_ = std::move(*touch);
  return contest;
}

/// After the warming pass: every contender saw the same keys and opened the same connections.
Result<void> Contest::compare() const {
  const std::uint64_t tracked =
      whole_->counters().verdict[static_cast<std::size_t>(Verdict::tracked)].value();
  const std::uint64_t live = whole_->report_v4().live + whole_->report_v6().live;
  if (parse_.keys != capture_.size() || touch_->touched() != parse_.keys ||
      tracked != parse_.keys || touch_->live() != live) {
    return std::unexpected(Error{fmt::format(
        "contenders disagree on {} packets: {} parsed, {} touched, {} tracked; {} and {} "
        "connections",
        capture_.size(), parse_.keys, touch_->touched(), tracked, touch_->live(), live)});
  }
  return {};
}

/// None where `progress` ended it.
Result<std::optional<PathResult>> Contest::measure(const Progress& progress) {
  const auto say = [&](std::string_view what) {
    return progress(fmt::format("{} {}: {}", to_string(traffic_), capture_.size(), what));
  };
  if (!say("opening the connections")) return std::nullopt;
  pass(parse_);
  pass(*touch_);
  pass(*whole_);
  pass(*staged_);
  if (auto ok = compare(); !ok) return std::unexpected(ok.error());

  std::vector<double> parse_ns;
  std::vector<double> touch_ns;
  std::vector<double> whole_ns;
  std::array<std::vector<double>, kStages> stage_ns;
  for (unsigned repetition = 0; repetition < options_.repetitions; ++repetition) {
    if (!say(fmt::format("repetition {} of {}", repetition + 1, options_.repetitions)))
      return std::nullopt;
    parse_ns.push_back(pass(parse_));
    touch_ns.push_back(pass(*touch_));
    whole_ns.push_back(pass(*whole_));
    const auto before = staged_->probe().ticks();
    const double total_ns = pass(*staged_);
    std::array<double, kStages> ticks{};
    double all = 0;
    for (std::size_t s = 0; s < kStages; ++s) {
      ticks[s] = static_cast<double>(staged_->probe().ticks()[s] - before[s]);
      all += ticks[s];
    }
    for (std::size_t s = 0; s < kStages; ++s) stage_ns[s].push_back(total_ns * ticks[s] / all);
  }
  const auto v4 = whole_->report_v4();
  PathResult result{.traffic = traffic_,
                    .live = v4.live + whole_->report_v6().live,
                    .packets = capture_.size(),
                    .pages = v4.pages,
                    .parse = spread_of(parse_ns),
                    .touch = spread_of(touch_ns),
                    .whole = spread_of(whole_ns)};
  for (std::size_t s = 0; s < kStages; ++s) {
    result.stages.emplace_back(kStageNames[s], spread_of(stage_ns[s]));
  }
  return result;
}

}  // namespace

Result<std::vector<PathResult>> run_path(const PathOptions& options, const Progress& progress) {
  std::vector<PathResult> results;
  for (const Profile traffic : options.traffic) {
    for (const std::uint64_t live : options.live) {
      if (!progress(fmt::format("{} {}: making the traffic", to_string(traffic), live)))
        return results;
      auto contest = Contest::create(options, traffic, live);
      if (!contest) return std::unexpected(contest.error());
      auto result = (*contest)->measure(progress);
      if (!result) return std::unexpected(result.error());
      if (!*result) return results;
      results.push_back(std::move(**result));
    }
  }
  return results;
}

}  // namespace millrace::bench
