#include "level_simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "parse/parse.h"
#include "shard/spread.h"

namespace millrace::bench {
namespace {

constexpr unsigned kStepsASecond = 10;  // 100 ms each, the default of `level_interval_ms`
// The first `kSettled` of `kSeconds` seconds of traffic do not count. No connection lasts longer
// than `kSettled` seconds: afterwards about as many connections end as begin.
constexpr unsigned kSeconds = 30;
constexpr unsigned kSettled = 10;
constexpr std::uint64_t kPacketsAConnection = 20;

/// Names no end of a connection to be hashed, like a function that rewrites nothing: `client_of`
/// then takes the lesser end.
class NoSteering final : public Steering {
 public:
  Steered steer(std::span<const KeyV4>) const override { return {}; }
  Steered steer(std::span<const KeyV6>) const override { return {}; }
};

/// Numbers of packets and bytes of each shard in each step.
class Steps {
 public:
  Steps(unsigned shards, unsigned steps)
      : shards_(shards),
        packets_(std::size_t{shards} * steps),
        bytes_(std::size_t{shards} * steps) {}

  unsigned count() const { return static_cast<unsigned>(packets_.size() / shards_); }
  void add(unsigned step, unsigned shard, std::uint32_t bytes) {
    const std::size_t at = std::size_t{step} * shards_ + shard;
    ++packets_[at];
    bytes_[at] += bytes;
  }
  std::span<const double> packets(unsigned step) const { return of(packets_, step); }
  std::span<const double> bytes(unsigned step) const { return of(bytes_, step); }

 private:
  std::span<const double> of(const std::vector<double>& all, unsigned step) const {
    return std::span(all).subspan(std::size_t{step} * shards_, shards_);
  }

  unsigned shards_;
  std::vector<double> packets_;
  std::vector<double> bytes_;
};

/// Collects packets until they fill a burst, then counts them in `Steps`, each for its shard.
class Filing {
 public:
  Filing(Steps& steps, const millrace::Spread& spread, const Indirection& indirection)
      : steps_(&steps), spread_(&spread), indirection_(&indirection) {
    for (unsigned i = 0; i < Burst::kMax; ++i) burst_.data[i] = bytes_[i].data() + kHeadroom;
  }

  void add(const Generator::Packet& packet, unsigned step) {
    const unsigned at = burst_.size++;
    const auto length = std::min<std::size_t>(packet.bytes.size(), kKept);
    std::memcpy(burst_.data[at], packet.bytes.data(), length);
    burst_.length[at] = static_cast<std::uint16_t>(length);
    burst_.wire_length[at] = packet.wire_length;
    step_[at] = step;
    if (burst_.size == Burst::kMax) file();
  }
  void file() {
    parse(burst_, LinkType::ethernet);
    file(burst_.v4);
    file(burst_.v6);
    burst_.clear();
  }

 private:
  static constexpr std::size_t kHeadroom = 128;
  static constexpr std::size_t kKept = 128;

  template <class K>
  void file(const Lane<K>& lane) {
    std::array<std::uint32_t, Burst::kMax> hashes;
    const NoSteering none;
    spread_->hash(none.steer(lane.keys()), lane.keys(), std::span(hashes).first(lane.size));
    for (unsigned i = 0; i < lane.size; ++i) {
      const unsigned at = lane.packet[i];
      steps_->add(step_[at], indirection_->shard_of(hashes[i]), burst_.wire_length[at]);
    }
  }

  Steps* steps_;
  const millrace::Spread* spread_;
  const Indirection* indirection_;
  Burst burst_;
  std::array<std::array<std::byte, kHeadroom + kKept>, Burst::kMax> bytes_;
  std::array<unsigned, Burst::kMax> step_;
};

/// Returns the steps of the traffic after its first `kSettled` seconds; no steps if `progress`
/// ended the run.
Result<Steps> steps_of(const SimulationOptions& options, Profile profile,
                       const Progress& progress) {
  auto generator = Generator::create(
      {.profile = profile,
       .connections = std::max<std::uint64_t>(options.packets / kPacketsAConnection, 1),
       .packets = options.packets,
       .seed = options.seed,
       .duration_s = kSeconds,
       .longest_ms = 1000 * kSettled});
  if (!generator) return std::unexpected(generator.error());
  Steps steps(options.shards, (kSeconds - kSettled) * kStepsASecond);
  const auto spread = spread_named("keyed")->create(Secret::from_seed(options.seed));
  const Indirection indirection(options.shards, 1);
  Filing filing(steps, *spread, indirection);
  const std::string what = fmt::format("{} traffic: counting packets", to_string(profile));
  constexpr std::uint64_t kNsAStep = 1'000'000'000 / kStepsASecond;
  constexpr std::uint64_t kSkipped = std::uint64_t{kSettled} * kStepsASecond;
  std::uint64_t first_ns = 0;
  Generator::Packet packet;
  for (std::uint64_t n = 0; generator->next(packet); ++n) {
    if (n == 0) first_ns = packet.timestamp_ns;
    if (n % 100'000 == 0 && !progress(what)) return Steps(options.shards, 0);
    const std::uint64_t step = (packet.timestamp_ns - first_ns) / kNsAStep;
    if (step < kSkipped || step >= kSkipped + steps.count()) continue;
    filing.add(packet, static_cast<unsigned>(step - kSkipped));
  }
  filing.file();
  return steps;
}

double moves_a_step(const SimulationOptions& options) {
  return 1000.0 / kStepsASecond / options.move_ms;
}

ImbalanceResult imbalance_of(const SimulationOptions& options, Profile profile, const Steps& steps,
                             unsigned workers, Levelling levelling) {
  SimulatedWorkers simulated({.workers = workers,
                              .shards = options.shards,
                              .levelling = levelling,
                              .moves_a_step = moves_a_step(options)});
  ImbalanceResult result{.traffic = profile, .levelling = levelling, .workers = workers};
  std::vector<double> packets_percent;
  std::vector<double> bytes_percent;
  std::vector<double> packets(workers);
  std::vector<double> bytes(workers);
  // The first second does not count: until then no shard has been moved to level the load.
  const auto is_counted = [](unsigned step) { return step >= kStepsASecond; };
  unsigned moves = 0;
  for (unsigned n = 0; n < steps.count(); ++n) {
    const auto step = simulated.step(steps.packets(n));
    if (!is_counted(n)) continue;
    moves += step.moves;
    const auto more = simulated.by_worker(steps.bytes(n));
    for (unsigned worker = 0; worker < workers; ++worker) {
      packets[worker] += step.loads[worker];
      bytes[worker] += more[worker];
    }
    if ((n + 1) % kStepsASecond != 0) continue;
    packets_percent.push_back(imbalance_percent(packets));
    bytes_percent.push_back(imbalance_percent(bytes));
    std::ranges::fill(packets, 0);
    std::ranges::fill(bytes, 0);
  }
  result.moves_a_second = static_cast<double>(moves) / static_cast<double>(packets_percent.size());
  result.packets = spread_of(std::move(packets_percent));
  result.bytes = spread_of(std::move(bytes_percent));
  return result;
}

/// Computes 70 seconds of the changing load. Each step divides the load among shards in the
/// proportion of the next step of `steps`, which are repeated.
std::vector<ScalingResult> scaling_of(const SimulationOptions& options, const Steps& steps) {
  // Seconds at the initial load that do not count: all workers are in use at first.
  constexpr unsigned kLeadIn = 40;
  constexpr unsigned kScalingSeconds = 70;
  constexpr double kCapacity = 1e6 / kStepsASecond;  // a worker's, in packets a step
  SimulatedWorkers simulated({.workers = SimulationOptions::kScaling,
                              .shards = options.shards,
                              .levelling = Levelling::as_needed,
                              .capacity = kCapacity,
                              .moves_a_step = moves_a_step(options)});
  std::vector<ScalingResult> results;
  for (unsigned n = 0; n < (kLeadIn + kScalingSeconds) * kStepsASecond; ++n) {
    const double seconds = std::max(static_cast<double>(n) / kStepsASecond - kLeadIn, 0.0);
    const double load = options.peak * load_at(seconds);
    const auto packets = steps.packets(n % steps.count());
    const double sum = std::accumulate(packets.begin(), packets.end(), 0.0);
    std::vector<double> of_shard;
    for (const double one : packets)
      of_shard.push_back(load * kCapacity * one / std::max(sum, 1.0));
    const auto step = simulated.step(of_shard);
    if (n < kLeadIn * kStepsASecond) continue;
    if (n % kStepsASecond == 0)
      results.push_back({.second = static_cast<unsigned>(results.size()), .load = load});
    ScalingResult& result = results.back();
    result.in_use = step.in_use;
    result.lost += step.lost / (load * kCapacity) / kStepsASecond;
    result.moves += step.moves;
  }
  return results;
}

}  // namespace

std::string_view to_string(Levelling levelling) {
  constexpr std::array<std::string_view, 3> kNames{"fixed", "levelled", "as needed"};
  return kNames[static_cast<std::size_t>(levelling)];
}

Result<LevelSimulation> simulate_level(const SimulationOptions& options, const Progress& progress) {
  LevelSimulation all;
  for (const Profile profile : {Profile::campus, Profile::skewed}) {
    const auto steps = steps_of(options, profile, progress);
    if (!steps) return std::unexpected(steps.error());
    if (steps->count() == 0) return all;
    for (const Levelling levelling : {Levelling::none, Levelling::all}) {
      for (const unsigned workers : options.workers)
        all.imbalance.push_back(imbalance_of(options, profile, *steps, workers, levelling));
    }
    if (profile == Profile::campus) all.scaling = scaling_of(options, *steps);
  }
  all.complete = true;
  return all;
}

}  // namespace millrace::bench
