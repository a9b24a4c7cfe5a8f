#include "bench/nat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <map>
#include <memory>
#include <utility>

#include "bench/clock.h"
#include "bench/parse_and_touch.h"
#include "config/config.h"
#include "conntrack/schemes.h"
#include "core/json.h"
#include "function/kind.h"
#include "line/line.h"

namespace millrace::bench {
namespace {

/// Ports of a pool's address.
constexpr std::uint64_t kPorts = 64'512;

std::uint64_t users_of(const NatCase& of) { return std::min(of.users, of.connections); }
/// Returns the number of sessions that are offered beyond those of the case, to find the capacity.
std::uint64_t further_of(const NatCase& of) {
  return std::max<std::uint64_t>(of.connections / 50, 100);
}
std::uint64_t sessions_of_user(const NatCase& of) {
  return (of.connections + further_of(of)) / users_of(of) + 1;
}

/// Port blocks of a case. So many addresses that no customer lacks a block: all blocks of a
/// customer are of one address.
struct Blocks {
  explicit Blocks(const NatCase& of) {
    const std::uint64_t sessions = sessions_of_user(of);
    size = std::clamp<std::uint64_t>(std::bit_ceil(sessions), 512, 4096);
    a_user = (sessions + size - 1) / size;
    const std::uint64_t an_address = kPorts / size;
    const std::uint64_t users_an_address = a_user == 1 ? an_address * 4 / 5 : 1;
    addresses = users_of(of) / users_an_address + 1;
    if (a_user > 1) addresses *= 4;
  }
  std::uint64_t size;
  std::uint64_t a_user;
  std::uint64_t addresses;
};

/// Returns the bytes of memory that the process has.
double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double all = 0;
  double resident = 0;
  file >> all >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

struct Contender {
  NatCase of;
  std::string table;

  std::string name() const {
    return fmt::format("{}, {} connections, {} users, {} bytes, {}", table, of.connections,
                       of.users, of.packet_bytes,
                       of.tunnel == Tunnel::none ? "no tunnel" : to_string(of.tunnel));
  }
  auto operator<=>(const Contender&) const = default;
};

struct Samples {
  std::vector<double> establishment;
  std::vector<double> lossless;
  std::vector<double> unpaced;
  std::vector<double> lost_at_95;
  std::vector<double> tear_down;
  std::vector<double> parse;
  std::vector<double> touch;
  std::vector<double> touch_new;
  NatResult last;  ///< figures of the last repetition; its spreads are not set
};

/// One line with NAT, and the port that makes its packets.
class Trial {
 public:
  static Result<std::unique_ptr<Trial>> create(const NatOptions& options, const Contender& of,
                                               const CycleClock& clock);

  /// Does all phases, and adds the figures to `samples`.
  Result<void> run(Samples& samples);

 private:
  Trial(const NatOptions& options, const Contender& of, const CycleClock& clock)
      : options_(options),
        contender_(of),
        clock_(clock),
        port_(clock, of.of.packet_bytes, options.burst) {}

  Result<double> timed(const NatPort::Act& act, std::string_view what);
  Result<void> establish(Samples& samples);
  Result<void> pass(Samples& samples);
  Result<double> lost_at(double mpps);
  Result<void> search(Samples& samples);
  Result<void> fill_up(Samples& samples);
  Result<void> tear_down(Samples& samples);
  Result<void> bounds(Samples& samples);
  Error wrong(std::string_view what, std::string_view why) const {
    return Error{fmt::format("{}: {}: {}", contender_.name(), what, why)};
  }
  Json pool() const { return deployment_->statistics()["nat_pools"][0]; }

  const NatOptions& options_;
  const Contender& contender_;
  const CycleClock& clock_;
  NatPort port_;
  std::vector<NatSession> sessions_;  // those of the case; then the further ones
  NatPlan both_ways_;
  double blocks_bytes_ = 0;
  std::unique_ptr<FunctionDeployment> deployment_;
  std::unique_ptr<Line> line_;
  std::size_t state_bytes_ = 0;
};

Result<std::unique_ptr<Trial>> Trial::create(const NatOptions& options, const Contender& of,
                                             const CycleClock& clock) {
  std::unique_ptr<Trial> trial(new Trial(options, of, clock));
  const NatCase& is = of.of;
  trial->sessions_ = make_sessions(is.connections + further_of(is), users_of(is), options.seed);
  const auto config =
      parse_config(nat_configuration(is), "nat",
                   {TableSchemes::names(), SharingSchemes::names(), AgeingSchemes::names()});
  if (!config) return std::unexpected(config.error());
  if (is.tunnel == Tunnel::gre) trial->port_.use_tunnels(config->live.customers);
  const double before = resident_bytes();
  auto deployment = config->function->kind().deploy(config->function, {});
  if (!deployment) return std::unexpected(deployment.error());
  trial->deployment_ = std::move(*deployment);
  Function& function = trial->deployment_->make(0);
  trial->blocks_bytes_ = resident_bytes() - before;
  trial->state_bytes_ = function.v4().part().originator_bytes;
  auto line = make_line({.table = of.table,
                         .capacity = is.connections,
                         .capacity_v6 = 1,
                         .timeouts = config->ageing.timeout_s.timeouts(),
                         .pages = options.pages,
                         .secret = Secret::from_seed(options.seed)},
                        function);
  if (!line) return std::unexpected(line.error());
  trial->line_ = std::move(*line);
  return trial;
}

Result<void> Trial::run(Samples& samples) {
  for (const auto phase : {&Trial::establish, &Trial::pass, &Trial::search, &Trial::fill_up,
                           &Trial::tear_down, &Trial::bounds}) {
    if (auto ok = (this->*phase)(samples); !ok) return ok;
  }
  return {};
}

/// Runs the line until the act ends, and returns the nanoseconds that it took. Errors (failed): a
/// packet did not leave, or not as it must.
Result<double> Trial::timed(const NatPort::Act& act, std::string_view what) {
  port_.play(act);
  const std::uint64_t start = clock_.begin();
  line_->run(port_);
  const double ns = clock_.ns_since(start);
  const std::uint64_t due = act.packets - port_.lost();
  if (port_.wrong() == 0 && port_.forwarded() == due) return ns;
  return std::unexpected(
      wrong(what, fmt::format("of {} packets {} left, {} of them not as they must: all must leave "
                              "translated",
                              due, port_.forwarded(), port_.wrong())));
}

/// Returns an error if two inside endpoints have the same public end.
Result<void> check_outside(std::span<const NatSession> sessions) {
  const auto number = [](const WireEnd& end) {
    return std::uint64_t{std::bit_cast<std::uint32_t>(end.address)} << 16 | end.port;
  };
  std::vector<std::pair<std::uint64_t, std::uint64_t>> all;
  all.reserve(sessions.size());
  for (const NatSession& session : sessions)
    all.emplace_back(number(session.outside), number(session.inside));
  std::ranges::sort(all);
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (all[i].first == all[i - 1].first && all[i].second != all[i - 1].second)
      return std::unexpected(Error{"two inside endpoints have the same public end"});
  }
  return {};
}

Result<void> Trial::establish(Samples& samples) {
  const std::uint64_t count = contender_.of.connections;
  const std::span<NatSession> sessions = std::span(sessions_).first(count);
  const NatPlan plan = plan_first_packets(sessions, contender_.of.packet_bytes);
  const double before = resident_bytes();
  const auto ns = timed({.plan = plan, .packets = count, .begins = sessions}, "establishment");
  if (!ns) return std::unexpected(ns.error());
  samples.establishment.push_back(1000 * static_cast<double>(count) / *ns);
  if (auto ok = check_outside(sessions); !ok)
    return std::unexpected(wrong("establishment", ok.error().message));
  const double grown = resident_bytes() - before + blocks_bytes_;
  samples.last.mappings = pool()["mappings"];
  samples.last.bytes_per_mapping = grown / static_cast<double>(samples.last.mappings);
  const TableReport table = line_->report_v4();
  samples.last.bytes_per_session =
      static_cast<double>(table.memory_bytes) / static_cast<double>(count);
  samples.last.pages = std::max(samples.last.pages, table.pages);
  both_ways_ = plan_both_ways(sessions, contender_.of.packet_bytes,
                              options_.seed + 1 + samples.establishment.size());
  return {};
}

/// Passes established packets, untimed first: a round in which checksums are checked; and another
/// one some seconds later, by which each session becomes a stream (conntrack/state.h). Then as fast
/// as the line receives them.
Result<void> Trial::pass(Samples& samples) {
  constexpr std::uint64_t kLeast = 4'000'000;
  constexpr std::uint32_t kUntilStream = 3000;  // ms
  const std::uint64_t round = both_ways_.size();
  const std::uint64_t packets = (kLeast + round - 1) / round * round;
  for (const bool is_first : {true, false}) {
    const auto done = timed({.plan = both_ways_, .packets = round, .checks_checksums = is_first},
                            "preliminary phase");
    if (!done) return std::unexpected(done.error());
    port_.skip_ms(kUntilStream);
  }
  const auto ns = timed({.plan = both_ways_, .packets = packets}, "unpaced");
  if (!ns) return std::unexpected(ns.error());
  samples.unpaced.push_back(1000 * static_cast<double>(packets) / *ns);
  return {};
}

/// Returns the share of packets that is lost at that rate: of three trials the least, as a pause of
/// the machine loses packets at any rate. Ends with the first trial that loses none, or more than a
/// hundredth, which is no pause.
Result<double> Trial::lost_at(double mpps) {
  constexpr unsigned kTrials = 3;
  const auto packets = static_cast<std::uint64_t>(mpps * 1e6 * options_.seconds) + 1;
  double least = 1;
  for (unsigned n = 0; n < kTrials && least > 0; ++n) {
    const auto ns = timed(
        {.plan = both_ways_, .packets = packets, .ns_each = 1000 / mpps, .queue = options_.queue},
        "at a rate");
    if (!ns) return std::unexpected(ns.error());
    least = std::min(least, static_cast<double>(port_.lost()) / static_cast<double>(packets));
    if (least > 0.01) break;
  }
  return least;
}

/// Searches the highest rate without loss, to a hundredth of the rate without pace.
Result<void> Trial::search(Samples& samples) {
  const double most = samples.unpaced.back();
  const auto lost = lost_at(0.95 * most);
  if (!lost) return std::unexpected(lost.error());
  samples.lost_at_95.push_back(*lost);
  double low = *lost == 0 ? 0.95 * most : 0;
  double high = *lost == 0 ? most * 1.02 : 0.95 * most;
  while (high - low > most / 100) {
    const double rate = (low + high) / 2;
    const auto share = lost_at(rate);
    if (!share) return std::unexpected(share.error());
    (*share > 0 ? high : low) = rate;
  }
  samples.lossless.push_back(low);
  return {};
}

/// Begins further sessions, until one is refused.
Result<void> Trial::fill_up(Samples& samples) {
  const std::span<NatSession> further = std::span(sessions_).subspan(contender_.of.connections);
  const NatPlan plan = plan_first_packets(further, contender_.of.packet_bytes);
  port_.play({.plan = plan, .packets = plan.size(), .begins = further});
  line_->run(port_);
  if (port_.wrong() != 0) return std::unexpected(wrong("capacity", "a packet left untranslated"));
  samples.last.capacity = line_->live().v4;
  return {};
}

Result<void> Trial::tear_down(Samples& samples) {
  constexpr std::uint32_t kBeyondTimeouts = 3600 * 1000;
  const auto sessions = static_cast<double>(line_->live().v4);
  port_.skip_ms(kBeyondTimeouts);
  const auto ns = timed({.plan = {}, .ends_with = line_.get()}, "tear-down");
  if (!ns) return std::unexpected(ns.error());
  const Json left = pool();
  if (line_->live().v4 != 0 || left["mappings"] != 0 || left["sessions"] != 0) {
    return std::unexpected(
        wrong("tear-down", fmt::format("{} sessions are left, in the pool {} "
                                       "with {} mappings: there must be none",
                                       line_->live().v4, left["sessions"].get<std::uint64_t>(),
                                       left["mappings"].get<std::uint64_t>())));
  }
  samples.tear_down.push_back(1000 * sessions / *ns);
  return {};
}

/// Measures the lower bounds with the same packets.
Result<void> Trial::bounds(Samples& samples) {
  line_.reset();
  const std::uint64_t keys = both_ways_.size();
  auto touch = ParseAndTouch::create(keys, 1, state_bytes_, 0, options_.pages);
  if (!touch) return std::unexpected(touch.error());
  ParseOnly parse;
  const auto mpps = [&](auto& contender, std::span<const PlannedPacket> plan) {
    port_.play({.plan = plan, .packets = plan.size(), .is_untranslated = true});
    const std::uint64_t start = clock_.begin();
    contender.run(port_);
    return 1000 * static_cast<double>(plan.size()) / clock_.ns_since(start);
  };
  const NatPlan first = plan_first_packets(std::span(sessions_).first(contender_.of.connections),
                                           contender_.of.packet_bytes);
  samples.touch_new.push_back(mpps(*touch, first));
  mpps(*touch, both_ways_);
  samples.touch.push_back(mpps(*touch, both_ways_));
  samples.parse.push_back(mpps(parse, both_ways_));
  // A table that is filled to its capacity may refuse a key of many millions.
  if (touch->live() >= keys - keys / 1'000'000 && port_.wrong() == 0) return {};
  return std::unexpected(
      wrong("parse and touch", fmt::format("{} of {} keys have a record", touch->live(), keys)));
}

class Experiment {
 public:
  explicit Experiment(const NatOptions& options) : options_(options) {
    for (const NatCase& of : options.cases) {
      for (const auto& table : options.tables) contenders_.push_back({of, table});
    }
  }

  /// Returns false if `progress` ended the measurement.
  Result<bool> run(const Progress& progress) {
    return in_turn(
        options_, contenders_, progress,
        [](const Contender& contender) { return contender.name(); },
        [this](const Contender& contender) { return measure(contender); });
  }

  /// Returns the results of the contenders that were measured.
  std::vector<NatResult> results() {
    std::vector<NatResult> all;
    for (const Contender& contender : contenders_) {
      const auto at = samples_.find(contender);
      if (at == samples_.end()) continue;
      const Samples& of = at->second;
      NatResult result = of.last;
      result.of = contender.of;
      result.table = contender.table;
      result.establishment = spread_of(of.establishment);
      result.lossless = spread_of(of.lossless);
      result.unpaced = spread_of(of.unpaced);
      result.lost_at_95 = spread_of(of.lost_at_95);
      result.tear_down = spread_of(of.tear_down);
      result.parse = spread_of(of.parse);
      result.touch = spread_of(of.touch);
      result.touch_new = spread_of(of.touch_new);
      all.push_back(std::move(result));
    }
    return all;
  }

 private:
  Result<double> measure(const Contender& contender) {  // Mpps without loss
    auto trial = Trial::create(options_, contender, clock_);
    if (!trial) return std::unexpected(trial.error());
    Samples& samples = samples_[contender];
    if (auto ok = (*trial)->run(samples); !ok) return std::unexpected(ok.error());
    return samples.lossless.back();
  }

  const NatOptions& options_;
  std::vector<Contender> contenders_;
  std::map<Contender, Samples> samples_;
  CycleClock clock_;
};

}  // namespace

std::string nat_configuration(const NatCase& of) {
  const Blocks blocks(of);
  const bool has_tunnels = of.tunnel == Tunnel::gre;
  return fmt::format(
      R"(function = "nat"
{}[[nat.pool]]
name = "pool"
addresses = ["{}"]
block_size = {}
blocks_per_customer = {}
sessions_per_customer = 65535
[[nat.rule]]
source = ["10.0.0.0/8"]
pool = "pool"
{})",
      has_tunnels ? tunnel_port(users_of(of)) : "", public_prefix(blocks.addresses), blocks.size,
      blocks.a_user, has_tunnels ? "customers = \"any\"\n" : "");
}

Result<void> check(const NatCase& of) {
  if (sessions_of_user(of) <= kMostOfCustomer) return {};
  return std::unexpected(
      Error{fmt::format("{} connections of {} users are more than {} each: give {} users or more",
                        of.connections, of.users, kMostOfCustomer,
                        (of.connections + further_of(of)) / kMostOfCustomer + 1),
            Error::Kind::usage});
}

Result<NatReport> run_nat(const NatOptions& options, const Progress& progress) {
  Experiment experiment(options);
  const auto whole = experiment.run(progress);
  if (!whole) return std::unexpected(whole.error());
  return NatReport{.results = experiment.results(), .complete = *whole};
}

}  // namespace millrace::bench
