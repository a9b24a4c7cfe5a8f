#include "bench/overload.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "bench/clock.h"
#include "core/protocol.h"
#include "function/balance/balance.h"
#include "parse/bytes.h"
#include "port/port.h"
#include "traffic/frame.h"
#include "worker/line.h"
#include "worker/timeout_settings.h"

namespace millrace::bench {
namespace {

constexpr std::array<std::string_view, 3> kPolicies{"evict", "stateless", "drop"};
constexpr std::uint8_t kBackends = 8;
constexpr std::uint16_t kPort = 80;
constexpr std::uint64_t kGenuineOf = 10;     // one of so many that begin
constexpr unsigned kPacketsEstablished = 4;  // of each, in the measured part
constexpr unsigned kLater = 256;             // moments between two steps of one client
constexpr std::uint64_t kPacketsPerMs = 2048;

// Servers of the address plan of src/traffic: the first is the service's address, and behind it
// come the backends.
constexpr AddressV4 server_address(std::uint8_t host) {
  return {{198, 19, 0, static_cast<std::uint8_t>(1 + host)}};
}
constexpr std::uint32_t kVirtual = [] {
  std::uint32_t value = 0;
  for (const std::uint8_t byte : server_address(0).bytes) value = value << 8 | byte;
  return value;
}();

BalanceConfig balance_config(std::string_view policy) {
  ServiceSpec<AddressV4> service{
      .address = server_address(0), .port = kPort, .protocol = kProtocolTcp};
  for (std::uint8_t n = 1; n <= kBackends; ++n) service.backends.push_back({server_address(n)});
  BalanceConfig config;
  config.services = {.v4 = {service}};
  config.stateless_when_full = policy != "drop";
  return config;
}

/// What a client and its backend send, in this order.
enum class Step : std::uint8_t { syn, syn_ack, ack, question, answer };
bool is_from_backend(Step step) { return step == Step::syn_ack || step == Step::answer; }

/// Who plays, by number: the established clients from 0 on, and behind them those that begin.
struct Play {
  std::uint64_t established = 0;
  bool opens = false;       ///< the established ones' handshakes, and nothing else
  std::uint64_t begin = 0;  ///< so many others
};

/// Makes packets of clients, who are numbers, and judges what comes out.
class OverloadPort final : public Port {
 public:
  OverloadPort(const CycleClock& clock, std::uint64_t clients, unsigned burst)
      : clock_(&clock), burst_(burst), backend_(clients), wrong_(clients) {}

  void play(const Play& play) {
    play_ = play;
    at_ = begun_ = packets_ = 0;
    own_ns_ = 0;
  }

  LinkType link_type() const override { return LinkType::ethernet; }
  bool receive(Burst& burst) override {
    const std::uint64_t start = clock_->begin();
    frames_in_flight_ = (frames_in_flight_ + 1) % frames_.size();
    sent_ += burst_;
    burst.now = Tick{static_cast<std::uint32_t>(1 + sent_ / kPacketsPerMs)};
    bool more = true;
    while (burst.size < burst_ && more) more = next(burst);
    own_ns_ += clock_->ns_since(start);
    return more || !due_.empty() || in_flight_ > 0;
  }
  void send(const Burst& burst, std::uint64_t forward) override {
    const std::uint64_t start = clock_->begin();
    for (unsigned i = 0; i < burst.size; ++i) judge(burst, i, (forward >> i & 1) != 0);
    own_ns_ += clock_->ns_since(start);
  }

  double own_ns() const { return own_ns_; }
  std::uint64_t packets() const { return packets_; }
  std::uint64_t misdirected() const { return misdirected_; }
  double goodput() const {
    return static_cast<double>(good_established_) / static_cast<double>(sent_established_);
  }
  /// Share of the clients that began, and are somebody, for whom nothing went wrong; 1 of none.
  double served() const {
    std::uint64_t begun = 0;
    std::uint64_t served = 0;
    for (std::uint64_t n = play_.established; n < play_.established + play_.begin; ++n) {
      begun += genuine(n);
      served += genuine(n) && backend_[n] != 0 && !wrong_[n];
    }
    return begun == 0 ? 1 : static_cast<double>(served) / static_cast<double>(begun);
  }

 private:
  struct Due {
    std::uint64_t at;  // moment
    std::uint64_t client;
    Step step;
  };
  using FrameBytes = std::array<std::byte, 64>;

  /// Every tenth of those that begin.
  bool genuine(std::uint64_t n) const {
    return n < play_.established || (n - play_.established) % kGenuineOf == 0;
  }
  static Endpoint client(std::uint64_t n) {
    constexpr std::uint64_t kHosts = 65'000;
    return {Endpoint::Side::client, static_cast<std::uint32_t>(n % kHosts),
            static_cast<std::uint16_t>(1024 + n / kHosts)};
  }
  static std::uint32_t first_sequence(std::uint64_t n, bool of_backend) {
    return static_cast<std::uint32_t>((2 * n + of_backend + 1) * 0x9e3779b97f4a7c15 >> 32);
  }

  /// False when nothing is left to begin, and nothing due.
  bool next(Burst& burst) {
    if (!due_.empty() && due_.front().at <= moment_) {
      const Due due = due_.front();
      due_.pop_front();
      add(burst, due.client, due.step);
      return true;
    }
    const std::uint64_t all = play_.opens ? 0 : kPacketsEstablished * play_.established;
    const std::uint64_t begin = play_.opens ? play_.established : play_.begin;
    if (begun_ < begin && begun_ * all <= at_ * begin) {
      add(burst, (play_.opens ? 0 : play_.established) + begun_++, Step::syn);
      return true;
    }
    if (at_ < all) {
      const std::uint64_t n = at_++;
      add(burst, n % play_.established,
          n / play_.established % 2 == 0 ? Step::question : Step::answer);
      return true;
    }
    if (due_.empty()) return false;
    moment_ = due_.front().at;  // time passes
    return true;
  }

  void add(Burst& burst, std::uint64_t n, Step step) {
    const bool replies = is_from_backend(step);
    const Endpoint server{Endpoint::Side::server, replies ? backend_[n] : 0U, kPort};
    Frame frame{.from = replies ? server : client(n), .to = replies ? client(n) : server};
    frame.flags = step == Step::syn       ? Frame::kSyn
                  : step == Step::syn_ack ? Frame::kSyn | Frame::kAck
                                          : Frame::kAck;
    frame.sequence = first_sequence(n, replies) + (step > Step::syn_ack ? 1 : 0);
    frame.payload = step == Step::question || step == Step::answer ? 1 : 0;
    frame.acknowledgement = step == Step::syn ? 0 : first_sequence(n, !replies) + 1;
    FrameBytes& bytes = frames_[frames_in_flight_][burst.size];
    const auto length = static_cast<std::uint16_t>(builder_.build(frame));
    std::memcpy(bytes.data(), builder_.data(), length);
    burst.data[burst.size] = bytes.data();
    burst.length[burst.size] = length;
    burst.wire_length[burst.size] = length;
    burst.handle[burst.size] = n << 3 | static_cast<std::uint64_t>(step);
    ++burst.size;
    ++moment_;
    ++packets_;
    ++in_flight_;
  }

  void judge(const Burst& burst, unsigned i, bool forwarded) {
    constexpr unsigned kSource = 26;
    constexpr unsigned kDestination = 30;
    const std::uint64_t n = burst.handle[i] >> 3;
    const auto step = static_cast<Step>(burst.handle[i] & 7);
    const bool replies = is_from_backend(step);
    const std::uint32_t got = detail::u32(burst.data[i] + (replies ? kSource : kDestination));
    if (step == Step::syn && backend_[n] == 0 && forwarded)
      backend_[n] = static_cast<std::uint8_t>(got - kVirtual);
    --in_flight_;
    const bool right = got == (replies ? kVirtual : kVirtual + backend_[n]);
    misdirected_ += forwarded && !right;
    const bool is_established = !play_.opens && n < play_.established;
    sent_established_ += is_established;
    good_established_ += is_established && forwarded && right;
    wrong_[n] = wrong_[n] || !forwarded || !right;
    if (forwarded && right && genuine(n) && !is_established && step != Step::answer)
      due_.push_back({moment_ + kLater, n, static_cast<Step>(static_cast<int>(step) + 1)});
  }

  const CycleClock* clock_;
  unsigned burst_;
  std::vector<std::uint8_t> backend_;  // of a client, 0: none yet
  std::vector<bool> wrong_;
  Play play_;
  std::uint64_t at_ = 0;      // packets of established ones
  std::uint64_t begun_ = 0;   // clients
  std::deque<Due> due_;       // empty between two plays
  std::uint64_t moment_ = 0;  // packets, and those that time passed instead of
  std::uint64_t in_flight_ = 0;
  FrameBuilder builder_;
  std::array<std::array<FrameBytes, Burst::kMax>, kBurstsInFlight + 1> frames_;
  std::size_t frames_in_flight_ = 0;
  std::uint64_t sent_ = 0;
  double own_ns_ = 0;
  std::uint64_t packets_ = 0;
  std::uint64_t sent_established_ = 0;
  std::uint64_t good_established_ = 0;
  std::uint64_t misdirected_ = 0;
};

struct Contender {
  std::string policy;  ///< empty: there is room for all
  unsigned offered_percent;

  auto operator<=>(const Contender&) const = default;
};

struct Samples {
  std::vector<double> ns_per_packet;
  std::vector<double> relative_rate;
  PolicyResult last;  ///< but for its spreads
};

class Experiment {
 public:
  explicit Experiment(const OverloadOptions& options) : options_(options) {
    for (const unsigned percent : options.offered_percent) contenders_.push_back({"", percent});
    for (const auto& policy : options.policies.empty() ? overload_policies() : options.policies) {
      for (const unsigned percent : options.offered_percent)
        contenders_.push_back({policy, percent});
    }
  }

  /// False where `progress` ended it.
  Result<bool> run(const Progress& progress) {
    const auto title = [](const Contender& contender) {
      return fmt::format("{} % of the capacity, {}", contender.offered_percent,
                         contender.policy.empty() ? "with room for all" : contender.policy);
    };
    return in_turn(options_, contenders_, progress, title,
                   [this](const Contender& contender) { return measure(contender); });
  }

  OverloadReport report() {
    OverloadReport report{.results = {}, .complete = true};
    for (const Contender& contender : contenders_) {
      if (contender.policy.empty()) continue;
      Samples& of = samples_[contender];
      of.last.ns_per_packet = spread_of(of.ns_per_packet);
      of.last.relative_rate = spread_of(of.relative_rate);
      report.results.push_back(of.last);
    }
    return report;
  }

 private:
  Result<double> measure(const Contender& contender);  // ns a packet
  Result<std::unique_ptr<Line>> line_for(const Contender& contender, std::uint64_t offered,
                                         Balance& balance) const;

  const OverloadOptions& options_;
  std::vector<Contender> contenders_;
  std::map<Contender, Samples> samples_;
  CycleClock clock_;
};

Result<std::unique_ptr<Line>> Experiment::line_for(const Contender& contender,
                                                   std::uint64_t offered, Balance& balance) const {
  const bool has_room = contender.policy.empty();
  return make_line({.table = options_.table,
                    .ageing = options_.ageing,
                    .capacity = has_room ? 2 * offered : options_.capacity,
                    .capacity_v6 = 1,
                    .timeouts = TimeoutSeconds().timeouts(),
                    .pages = options_.pages,
                    .secret = Secret::from_seed(options_.seed),
                    .half_open_percent = has_room ? 100 : options_.half_open_percent,
                    .evicts = contender.policy == "evict"},
                   balance);
}

Result<double> Experiment::measure(const Contender& contender) {
  const std::uint64_t offered = options_.capacity * contender.offered_percent / 100;
  const std::uint64_t established = std::min(offered, options_.capacity * 4 / 5);
  const std::uint64_t begin = offered - established;
  auto balance = Balance::create(balance_config(contender.policy));
  if (!balance) return std::unexpected(balance.error());
  auto line = line_for(contender, offered, **balance);
  if (!line) return std::unexpected(line.error());
  OverloadPort port(clock_, offered, options_.burst);
  port.play({.established = established, .opens = true});
  (*line)->run(port);
  port.play({.established = established, .begin = begin});
  const std::uint64_t start = clock_.begin();
  (*line)->run(port);
  const double ns = (clock_.ns_since(start) - port.own_ns()) / static_cast<double>(port.packets());

  Samples& samples = samples_[contender];
  samples.ns_per_packet.push_back(ns);
  const Contender with_room{"", contender.offered_percent};
  samples.relative_rate.push_back(samples_[with_room].ns_per_packet.back() / ns);
  const WorkerCounters& counters = (*line)->counters();
  samples.last = {.policy = contender.policy,
                  .offered_percent = contender.offered_percent,
                  .established = established,
                  .packets = port.packets(),
                  .established_goodput = port.goodput(),
                  .misdirected = port.misdirected(),
                  .begun = (begin + kGenuineOf - 1) / kGenuineOf,
                  .new_served = port.served(),
                  .ns_per_packet = {},
                  .relative_rate = {},
                  .live = (*line)->report_v4().live,
                  .evicted = counters.closed[static_cast<std::size_t>(Ending::evicted)].value(),
                  .refused = counters.refused.value(),
                  .refused_early = counters.refused_early.value(),
                  .over_budget = counters.over_budget.value()};
  return ns;
}

}  // namespace

std::vector<std::string> overload_policies() { return {kPolicies.begin(), kPolicies.end()}; }

Result<OverloadReport> run_overload(const OverloadOptions& options, const Progress& progress) {
  Experiment experiment(options);
  auto whole = experiment.run(progress);
  if (!whole) return std::unexpected(whole.error());
  if (!*whole) return OverloadReport{};
  return experiment.report();
}

}  // namespace millrace::bench
