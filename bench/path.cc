#include "path.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "bench/parse_and_touch.h"
#include "conntrack/ageing/wheel.h"
#include "conntrack/schemes.h"
#include "function/balance/balance.h"
#include "function/kind.h"
#include "function/kinds.h"
#include "line/line_impl.h"
#include "port/replay_port.h"
#include "traffic/random.h"

namespace millrace::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;

/// Least number of packets in a pass, so that a pass with few connections can be timed, too.
constexpr std::uint64_t kLeastPackets = 100'000;

/// Returns a copy of `capture` in which each group of `round` packets is in another order, drawn
/// from `seed`; `round` must divide the number of packets. Errors (failed): no memory.
Result<Capture> in_another_order(const Capture& capture, std::uint64_t round, std::uint64_t seed) {
  Capture ordered(capture.format());
  for (std::uint64_t begin = 0; begin < capture.size(); begin += round) {
    const Permutation place(round, seed + begin);
    for (std::uint64_t i = 0; i < round; ++i) {
      const Capture::Packet& packet = capture.packet(begin + place(i));
      const auto ok = ordered.append(capture.packet(begin + i).timestamp_ns, packet.wire_length,
                                     packet.bytes(), capture.link(begin + place(i)));
      if (!ok) return std::unexpected(ok.error());
    }
  }
  return ordered;
}

/// A line that measures its stages, and the probe that holds their times.
struct StagedLine {
  std::unique_ptr<Line> line;
  const StageProbe* probe = nullptr;
};

template <template <class> class Table>
Result<StagedLine> make_staged(const LineConfig& config, Function& function) {
  Function* const only = &function;
  auto made =
      LineOf<Table, Alone, StageProbe>::create(config, Wheel::create, Sharded::create, {&only, 1});
  if (!made) return std::unexpected(made.error());
  const StageProbe* const probe = &made->front()->probe();
  return StagedLine{std::move(made->front()), probe};
}

/// Makes a line that measures its stages. Makes none for tables other than `race` and `chained`,
/// because each such line takes long to compile. Errors: as `LineOf::create`.
Result<StagedLine> make_staged(const LineConfig& config, Function& function) {
  if (config.table == "race") return make_staged<Race>(config, function);
  if (config.table == "chained") return make_staged<Chained>(config, function);
  return StagedLine{};
}

/// All contenders of one measurement. They are timed after each connection was opened and had its
/// second packet.
class Contest {
 public:
  static Result<std::unique_ptr<Contest>> create(const PathOptions& options, Profile traffic,
                                                 std::uint64_t live);
  /// Measures every contender. Returns none if `progress` ended the measurement. `to_come` counts
  /// down the measurements of all contests. Errors (failed): results other than the reference's.
  Result<std::optional<PathResult>> measure(const Progress& progress, std::size_t& to_come);

 private:
  Contest(const PathOptions& options, Profile traffic, std::uint64_t live, Capture capture)
      : options_(options),
        traffic_(traffic),
        connections_(live),
        name_(fmt::format("{}, {} connections", to_string(traffic), live)),
        capture_(std::move(capture)) {}

  /// Passes the capture once, and returns nanoseconds a packet.
  template <class Contender>
  double pass(Contender& contender) const {
    auto port = ReplayPort::create(capture_, {.burst = options_.burst, .clock = Clock::wall});
    const auto start = SteadyClock::now();
    contender.run(*port);
    return std::chrono::duration<double, std::nano>(SteadyClock::now() - start).count() /
           static_cast<double>(capture_.size());
  }

  Result<void> make_contenders(std::size_t capacity);
  Result<void> reorder();
  Result<void> warm();
  Result<void> compare(std::uint64_t passes) const;
  void note_stages();
  PathResult result() const;

  const PathOptions& options_;
  Profile traffic_;
  std::uint64_t connections_;
  std::string name_;
  Capture capture_;
  std::uint64_t orders_ = 0;  // number of times that the capture was reordered
  // The measured function, for the line and for the line that measures its stages.
  std::unique_ptr<FunctionDeployment> whole_function_;
  std::unique_ptr<FunctionDeployment> staged_function_;
  std::unique_ptr<Balance> balance_stateless_;
  ParseOnly parse_;
  std::optional<ParseAndTouch> touch_;
  std::unique_ptr<Line> stateless_;
  std::unique_ptr<Line> whole_;
  StagedLine staged_;

  std::vector<double> parse_ns_;
  std::vector<double> touch_ns_;
  std::vector<double> stateless_ns_;
  std::vector<double> whole_ns_;
  std::array<std::vector<double>, kStages> stage_ns_;
};

Result<std::unique_ptr<Contest>> Contest::create(const PathOptions& options, Profile traffic,
                                                 std::uint64_t live) {
  const std::uint64_t rounds = (kLeastPackets + live - 1) / live;
  const std::uint64_t packets =
      traffic == Profile::uniform ? rounds * live : std::max(4 * live, kLeastPackets);
  auto capture = generate({.profile = traffic,
                           .connections = live,
                           .packets = packets,
                           .seed = options.seed,
                           .midstream = true});
  if (!capture) return std::unexpected(capture.error());
  std::unique_ptr<Contest> contest(new Contest(options, traffic, live, std::move(*capture)));

  // The two directions of a campus connection are two connections here, each balanced on its own.
  const std::size_t capacity = traffic == Profile::uniform ? live : 2 * live;
  if (auto ok = contest->make_contenders(capacity); !ok) return std::unexpected(ok.error());
  return contest;
}

Result<void> Contest::make_contenders(std::size_t capacity) {
  const LineConfig config{.table = options_.table,
                          .capacity = capacity,
                          .capacity_v6 = capacity / 2 + 1,
                          .timeouts = Timeouts::all(2'000'000'000),
                          .pages = options_.pages,
                          .secret = Secret::from_seed(options_.seed)};
  const auto settings = options_.function != nullptr ? options_.function : default_function();
  std::array<Function*, 2> functions{};
  for (auto [deployment, function] :
       {std::pair{&whole_function_, &functions[0]}, std::pair{&staged_function_, &functions[1]}}) {
    auto made = settings->kind().deploy(settings, {});
    if (!made) return std::unexpected(made.error());
    *deployment = std::move(*made);
    *function = &(*deployment)->make(0);
  }
  auto stateless = Balance::create({.stateful = false});
  if (!stateless) return std::unexpected(stateless.error());
  balance_stateless_ = std::move(*stateless);
  for (auto [line, function] :
       {std::pair<std::unique_ptr<Line>*, Function*>{&whole_, functions[0]},
        std::pair<std::unique_ptr<Line>*, Function*>{&stateless_, balance_stateless_.get()}}) {
    auto made = make_line(config, *function);
    if (!made) return std::unexpected(made.error());
    *line = std::move(*made);
  }
  auto staged = make_staged(config, *functions[1]);
  if (!staged) return std::unexpected(staged.error());
  staged_ = std::move(*staged);
  auto touch =
      ParseAndTouch::create(capacity, capacity / 2 + 1, functions[0]->v4().part().originator_bytes,
                            functions[0]->v6().part().originator_bytes, options_.pages);
  if (!touch) return std::unexpected(touch.error());
  touch_ = std::move(*touch);
  return {};
}

std::uint64_t packets_with(Verdict verdict, const Line& line) {
  return line.counters().verdict[static_cast<std::size_t>(verdict)].value();
}

/// Gives uniform traffic a new order of connections for the next pass of all contenders. Records of
/// connections that were opened one after another lie side by side in memory: in the old order
/// passes would read memory in sequence, as no network's traffic does. Campus traffic keeps its
/// order.
Result<void> Contest::reorder() {
  if (traffic_ != Profile::uniform) return {};
  ++orders_;
  auto ordered = in_another_order(capture_, connections_, options_.seed ^ (orders_ << 32));
  if (!ordered) return std::unexpected(ordered.error());
  capture_ = std::move(*ordered);
  return {};
}

/// Passes the capture twice, which opens the connections and passes a second packet of each: that
/// packet changes the connection's state. Then compares the contenders.
Result<void> Contest::warm() {
  constexpr std::uint64_t kPasses = 2;
  for (std::uint64_t n = 0; n < kPasses; ++n) {
    if (auto ok = reorder(); !ok) return ok;
    pass(parse_);
    pass(*touch_);
    pass(*stateless_);
    pass(*whole_);
    if (staged_.line) pass(*staged_.line);
  }
  return compare(kPasses);
}

/// Checks that every contender, except the line that measures its stages, has handled every packet,
/// that the two contenders with a table have equally many connections, unless the two directions of
/// a campus connection may be one, and that the stateless one forwarded every packet.
Result<void> Contest::compare(std::uint64_t passes) const {
  const std::uint64_t packets = passes * capture_.size();
  const std::uint64_t tracked = packets_with(Verdict::tracked, *whole_);
  const std::uint64_t stateless = packets_with(Verdict::stateless, *stateless_);
  const std::uint64_t live = whole_->report_v4().live + whole_->report_v6().live;
  const bool may_be_fewer = options_.function != nullptr && traffic_ == Profile::campus;
  if (parse_.keys != packets || touch_->touched() != packets || tracked != packets ||
      stateless != packets || stateless_->counters().out.value() != packets ||
      (touch_->live() != live && !may_be_fewer)) {
    return std::unexpected(Error{fmt::format(
        "the contenders' counts differ: of {} packets {} were parsed, {} touched, {} tracked, {} "
        "served stateless: each number must be that of all packets; the touch has {} connections, "
        "the tracking line {}: these must be equal",
        packets, parse_.keys, touch_->touched(), tracked, stateless, touch_->live(), live)});
  }
  return {};
}

/// Passes the capture through the line that measures its stages. Adds each stage's share of the
/// time.
void Contest::note_stages() {
  const auto before = staged_.probe->ticks();
  const double total_ns = pass(*staged_.line);
  std::array<double, kStages> ticks{};
  double all = 0;
  for (std::size_t s = 0; s < kStages; ++s) {
    ticks[s] = static_cast<double>(staged_.probe->ticks()[s] - before[s]);
    all += ticks[s];
  }
  for (std::size_t s = 0; s < kStages; ++s) stage_ns_[s].push_back(total_ns * ticks[s] / all);
}

Result<std::optional<PathResult>> Contest::measure(const Progress& progress, std::size_t& to_come) {
  if (!progress(name_ + ": opening the connections")) return std::nullopt;
  if (auto ok = warm(); !ok) return std::unexpected(ok.error());

  for (unsigned repetition = 0; repetition < options_.repetitions; ++repetition) {
    const std::string what =
        fmt::format("repetition {} of {}: {}", repetition + 1, options_.repetitions, name_);
    if (!progress({.what = what, .who = name_, .to_come = to_come--})) return std::nullopt;
    if (auto ok = reorder(); !ok) return std::unexpected(ok.error());
    parse_ns_.push_back(pass(parse_));
    touch_ns_.push_back(pass(*touch_));
    stateless_ns_.push_back(pass(*stateless_));
    whole_ns_.push_back(pass(*whole_));
    progress.seen(name_, whole_ns_.back());
    if (staged_.line) note_stages();
  }
  return result();
}

PathResult Contest::result() const {
  const auto v4 = whole_->report_v4();
  PathResult result{.traffic = traffic_,
                    .live = v4.live + whole_->report_v6().live,
                    .packets = capture_.size(),
                    .pages = v4.pages,
                    .parse = spread_of(parse_ns_),
                    .touch = spread_of(touch_ns_),
                    .stateless = spread_of(stateless_ns_),
                    .whole = spread_of(whole_ns_)};
  for (std::size_t s = 0; staged_.line && s < kStages; ++s)
    result.stages.emplace_back(kStageNames[s], spread_of(stage_ns_[s]));
  return result;
}

}  // namespace

Result<std::vector<PathResult>> run_path(const PathOptions& options, const Progress& progress) {
  std::vector<PathResult> results;
  std::size_t to_come = options.traffic.size() * options.live.size() * options.repetitions;
  for (const Profile traffic : options.traffic) {
    for (const std::uint64_t live : options.live) {
      if (!progress(
              fmt::format("{}, {} connections: making the traffic", to_string(traffic), live)))
        return results;
      auto contest = Contest::create(options, traffic, live);
      if (!contest) return std::unexpected(contest.error());
      auto result = (*contest)->measure(progress, to_come);
      if (!result) return std::unexpected(result.error());
      if (!*result) return results;
      results.push_back(std::move(**result));
    }
  }
  return results;
}

}  // namespace millrace::bench
