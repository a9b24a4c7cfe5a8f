#include "traffic/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "core/available_memory.h"
#include "traffic/conversation.h"
#include "traffic/frame.h"
#include "traffic/random.h"

namespace millrace {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kStart = 1'704'067'200 * kSecond;  // 2024-01-01T00:00:00Z
constexpr std::array<std::string_view, 4> kProfileNames{"campus", "uniform", "flood", "skewed"};

/// Gives each connection a client and a port: no two connections share both.
class ClientPlan {
 public:
  ClientPlan(std::uint64_t connections, std::uint64_t per_host, std::uint64_t seed)
      : order_(connections, seed),
        hosts_(std::clamp<std::uint64_t>(connections / per_host, 1, kHosts)),
        first_ports_(kPorts, seed) {}

  Endpoint client(std::uint64_t i) const {
    const std::uint64_t place = order_(i);
    const std::uint64_t host = place % hosts_;
    const std::uint64_t nth = place / hosts_;  // below kPorts
    const std::uint64_t port = (first_ports_(host % kPorts) + nth) % kPorts;
    return {Endpoint::Side::client, static_cast<std::uint32_t>(host),
            static_cast<std::uint16_t>(kFirstPort + port)};
  }

 private:
  static constexpr std::uint64_t kHosts = 65'000;
  static constexpr std::uint64_t kFirstPort = 1024;
  static constexpr std::uint64_t kPorts = 65'536 - kFirstPort;
  static_assert(TrafficPlan::kMaxConnections / kHosts < kPorts);

  Permutation order_;
  std::uint64_t hosts_;
  Permutation first_ports_;
};

std::string what_is_wrong(const TrafficPlan& plan) {
  std::string wrong;
  const auto say = [&wrong](const std::string& what) {
    wrong += (wrong.empty() ? "" : "; ") + what;
  };
  if (plan.connections < 1 || plan.connections > TrafficPlan::kMaxConnections) {
    say(fmt::format("{} connections: ask for 1 to {}", plan.connections,
                    TrafficPlan::kMaxConnections));
  }
  if (plan.profile == Profile::skewed && plan.connections > TrafficPlan::kMaxSkewed) {
    say(fmt::format("{} skewed connections: ask for 1 to {}", plan.connections,
                    TrafficPlan::kMaxSkewed));
  }
  if (plan.packets > TrafficPlan::kMaxPackets) {
    say(fmt::format("{} packets: ask for at most {}", plan.packets, TrafficPlan::kMaxPackets));
  }
  if (plan.profile == Profile::flood && plan.packets != plan.connections) {
    say(
        fmt::format("{} packets for {} connections: in a flood every packet opens a connection, so "
                    "ask for as many packets as connections",
                    plan.packets, plan.connections));
  } else if (plan.packets < plan.connections) {
    say(fmt::format(
        "{} packets for {} connections: each connection has at least one, so ask for {} packets or "
        "more",
        plan.packets, plan.connections, plan.connections));
  }
  if (plan.snaplen < 64 || plan.snaplen > 65'535) {
    say(fmt::format("a snaplen of {}: choose 64 to 65535", plan.snaplen));
  }
  if (plan.duration_s < 1 || plan.duration_s > 31'536'000) {
    say(fmt::format("a duration of {} s: choose 1 to 31536000", plan.duration_s));
  }
  return wrong;
}

}  // namespace

/// A source of a profile's frames.
struct Generator::Source {
  struct Timed {
    std::uint64_t at_ns;
    Frame frame;
  };

  Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  virtual ~Source() = default;
  /// Returns the next frame in `timed`; false at the end.
  virtual bool next(Timed& timed) = 0;

  FrameBuilder builder;
};

/// Makes packets of TCP connections from clients to servers, spread evenly in time.
struct Generator::ToServers : Generator::Source {
  explicit ToServers(const TrafficPlan& plan)
      : plan_(plan),
        clients_(plan.connections, plan.profile == Profile::flood ? 1 : 16, plan.seed) {}

  bool next(Timed& timed) final {
    if (made_ == plan_.packets) return false;
    const auto [connection, round] = pick(made_);
    Frame& frame = timed.frame;
    frame.from = clients_.client(connection);
    frame.to = {Endpoint::Side::server, server(connection), 443};
    const auto isn = static_cast<std::uint32_t>(Random(plan_.seed ^ connection)());
    frame.flags = round == 0 ? Frame::kSyn : Frame::kPsh | Frame::kAck;
    frame.payload = round == 0 ? 0 : kPayload;
    frame.sequence = round == 0 ? isn : isn + 1 + static_cast<std::uint32_t>(round - 1) * kPayload;
    frame.acknowledgement = round == 0 ? 0 : ~isn;
    const Uint128 duration = Uint128{plan_.duration_s} * kSecond;
    timed.at_ns = static_cast<std::uint64_t>(duration * made_ / plan_.packets);
    ++made_;
    return true;
  }

 protected:
  struct Picked {
    std::uint64_t connection;
    std::uint64_t nth;  ///< number of the packet in its connection, from 0
  };
  virtual Picked pick(std::uint64_t packet) = 0;
  const TrafficPlan& plan() const { return plan_; }

 private:
  static constexpr std::uint16_t kPayload = 10;  // frames of 64 bytes, check sequence left out
  static constexpr std::uint32_t kServers = 256;

  std::uint32_t server(std::uint64_t connection) const {
    return plan_.profile == Profile::flood ? 0 : static_cast<std::uint32_t>(connection % kServers);
  }

  TrafficPlan plan_;
  ClientPlan clients_;
  std::uint64_t made_ = 0;
};

/// Profiles `uniform` and `flood`: takes all connections in turn, again and again.
struct Generator::Sweep final : Generator::ToServers {
  using ToServers::ToServers;

 private:
  Picked pick(std::uint64_t packet) override {
    return {packet % plan().connections, packet / plan().connections};
  }
};

/// Profile `skewed`. A packet is the first of its connection, a later one of a heavy connection, or
/// a later one of another connection. The kind is drawn without replacement, so that the number of
/// each kind is exact if there are more than three connections.
struct Generator::Skewed final : Generator::ToServers {
  explicit Skewed(const TrafficPlan& plan)
      : ToServers(plan),
        random_(plan.seed ^ 0x736b65776564),
        packets_(plan.connections),
        heavy_left_(std::min(plan.packets / 2, plan.packets - plan.connections)) {}

 private:
  static constexpr std::uint64_t kHeavy = 3;

  Picked pick(std::uint64_t packet) override {
    const std::uint64_t connection = choose(packet);
    return {connection, packets_[connection]++};
  }
  std::uint64_t choose(std::uint64_t packet) {
    const std::uint64_t unopened = plan().connections - opened_;
    const std::uint64_t drawn = random_.below(plan().packets - packet);
    if (opened_ < kHeavy && unopened > 0) return opened_++;
    if (drawn < unopened) return opened_++;
    const bool heavy = drawn - unopened < heavy_left_ || opened_ <= kHeavy;
    if (heavy) {
      heavy_left_ -= std::min<std::uint64_t>(heavy_left_, 1);
      return random_.below(std::min(kHeavy, opened_));
    }
    // Density 1/x is Zipf with exponent 1.
    return kHeavy - 1 + random_.log_uniform(1, opened_ - kHeavy);
  }

  Random random_;
  std::vector<std::uint32_t> packets_;  // packets so far; indexed by connection
  std::uint64_t heavy_left_;
  std::uint64_t opened_ = 0;
};

/// Profile `campus`. Holds the time of the next arrival, and a priority queue of live connections
/// by the time of their next packet.
struct Generator::Campus final : Generator::Source {
  Campus(const TrafficPlan& plan, const std::atomic<bool>* stop)
      : plan_(plan),
        clients_(plan.connections, 32, plan.seed),
        drafts_(draft_stream()),
        random_(plan.seed ^ 0x63616d707573),
        arrival_ns_(random_.exponential(mean_arrival_ns())) {
    sum_up(stop);
  }

  bool next(Timed& timed) override {
    while (begun_ < plan_.connections &&
           (calendar_.empty() || arrival_ns_ <= calendar_.top().at_ns)) {
      arrive();
    }
    if (calendar_.empty()) return false;
    const Entry entry = calendar_.top();
    calendar_.pop();
    Conversation& conversation = live_[entry.slot];
    timed.at_ns = entry.at_ns;
    timed.frame = next_frame(conversation, random_);
    if (conversation.done < conversation.packets) {
      calendar_.push({entry.at_ns + next_gap_ns(conversation, random_), entry.slot});
    } else {
      free_.push_back(entry.slot);
    }
    return true;
  }

 private:
  struct Entry {
    std::uint64_t at_ns;
    std::uint32_t slot;
    friend bool operator<(const Entry& a, const Entry& b) {  // the earliest comes first
      return a.at_ns != b.at_ns ? a.at_ns > b.at_ns : a.slot > b.slot;
    }
  };

  Random draft_stream() const { return Random(plan_.seed ^ 0x6c656e67746873); }
  std::uint64_t duration_ns() const { return plan_.duration_s * kSecond; }
  std::uint64_t longest_ns() const {
    return plan_.longest_ms == 0 ? duration_ns() / 2 : plan_.longest_ms * (kSecond / 1000);
  }
  std::uint64_t mean_arrival_ns() const { return duration_ns() / plan_.connections; }

  /// Draws all drafts once, to sum up the weights that divide the packets beyond the minimum.
  void sum_up(const std::atomic<bool>* stop) {
    Random random = draft_stream();
    std::uint64_t fewest = 0;
    for (std::uint64_t i = 0; i < plan_.connections; ++i) {
      if (stop != nullptr && stop->load(std::memory_order_relaxed)) {
        begun_ = plan_.connections;  // so no connection will arrive
        return;
      }
      const Draft draft = draw_draft(random);
      fewest += fewest_packets(draft.purpose);
      weights_ += draft.weight;
    }
    cut_short_ = fewest > plan_.packets;
    even_ = weights_ == 0;
    if (even_) weights_ = plan_.connections;
    extra_ = plan_.packets - (cut_short_ ? plan_.connections : fewest);
  }

  /// Returns the number of packets of the next connection. The running total is rounded, and not
  /// each number, so that the sum is exact.
  std::uint32_t packets_of(const Draft& draft) {
    const auto share = [this] {
      return static_cast<std::uint64_t>(Uint128{extra_} * weight_so_far_ / weights_);
    };
    const std::uint64_t before = share();
    weight_so_far_ += even_ ? 1 : draft.weight;
    const std::uint64_t fewest = cut_short_ ? 1 : fewest_packets(draft.purpose);
    return static_cast<std::uint32_t>(fewest + share() - before);
  }

  void arrive() {
    const Draft draft = draw_draft(drafts_);
    Conversation conversation = begin(draft.purpose, packets_of(draft), longest_ns(), random_);
    conversation.client = clients_.client(begun_++);
    if (draft.purpose == Purpose::ping) conversation.server.port = 0;
    std::uint32_t slot;
    if (free_.empty()) {
      slot = static_cast<std::uint32_t>(live_.size());
      live_.push_back(conversation);
    } else {
      slot = free_.back();
      free_.pop_back();
      live_[slot] = conversation;
    }
    calendar_.push({arrival_ns_, slot});
    arrival_ns_ += random_.exponential(mean_arrival_ns());
  }

  TrafficPlan plan_;
  ClientPlan clients_;
  Random drafts_;
  Random random_;
  std::uint64_t weights_ = 0;
  std::uint64_t weight_so_far_ = 0;
  std::uint64_t extra_ = 0;  // packets beyond the minimum, of all connections together
  bool cut_short_ = false;
  bool even_ = false;  // no connection has a weight: all get equally many
  std::uint64_t begun_ = 0;
  std::uint64_t arrival_ns_;
  std::vector<Conversation> live_;
  std::vector<std::uint32_t> free_;
  std::priority_queue<Entry> calendar_;
};

std::optional<Profile> profile_named(std::string_view name) {
  const auto* const at = std::find(kProfileNames.begin(), kProfileNames.end(), name);
  if (at == kProfileNames.end()) return std::nullopt;
  return static_cast<Profile>(at - kProfileNames.begin());
}

std::string_view to_string(Profile profile) {
  return kProfileNames[static_cast<std::size_t>(profile)];
}

std::uint64_t usual_packets(Profile profile, std::uint64_t connections) {
  if (profile == Profile::flood) return connections;
  return std::min(connections, std::numeric_limits<std::uint64_t>::max() / 10) * 10;
}

Result<void> check(const TrafficPlan& plan) {
  std::string wrong = what_is_wrong(plan);
  if (wrong.empty()) return {};
  return std::unexpected(Error{std::move(wrong), Error::Kind::usage});
}

Result<Generator> Generator::create(const TrafficPlan& plan, const std::atomic<bool>* stop) {
  if (auto possible = check(plan); !possible) return std::unexpected(possible.error());
  if (plan.profile == Profile::campus) return Generator(std::make_unique<Campus>(plan, stop), plan);
  if (plan.profile == Profile::skewed) return Generator(std::make_unique<Skewed>(plan), plan);
  return Generator(std::make_unique<Sweep>(plan), plan);
}

Generator::Generator(std::unique_ptr<Source> source, const TrafficPlan& plan)
    : source_(std::move(source)), plan_(plan) {}
Generator::Generator(Generator&&) noexcept = default;
Generator& Generator::operator=(Generator&&) noexcept = default;
Generator::~Generator() = default;

bool Generator::next(Packet& packet) {
  Source::Timed timed{};
  if (!source_->next(timed)) return false;
  if (plan_.midstream) timed.frame.flags = Frame::kAck;
  packet.timestamp_ns = kStart + timed.at_ns;
  packet.wire_length = source_->builder.build(timed.frame);
  packet.bytes = {source_->builder.data(), std::min(packet.wire_length, plan_.snaplen)};
  return true;
}

CaptureFormat Generator::format() const { return {{1}, plan_.snaplen, true}; }

Result<Capture> generate(const TrafficPlan& plan) {
  auto generator = Generator::create(plan);
  if (!generator) return std::unexpected(generator.error());
  constexpr std::uint64_t kFewest = 60 + sizeof(Capture::Packet);
  if (const auto available = available_memory_bytes(); plan.packets > available / kFewest) {
    return std::unexpected(Error{
        fmt::format("{} packets do not fit into the {} MiB of memory available: ask for fewer",
                    plan.packets, available >> 20)});
  }
  Capture capture(generator->format());
  Generator::Packet packet;
  while (generator->next(packet)) {
    auto kept = capture.append(packet.timestamp_ns, packet.wire_length, packet.bytes);
    if (!kept) return std::unexpected(kept.error());
  }
  return capture;
}

}  // namespace millrace
