// A worker's port over packets in memory, some of which belong to other workers.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <climits>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "bench/pacing.h"
#include "core/counter.h"
#include "port/capture.h"
#include "port/port.h"
#include "worker/exchange.h"

namespace millrace::bench {

/// Moves shards, drawn at random, one after another without a pause, from `start` to `stop`. A
/// worker calls `step` between two bursts: a thread of its own would take time from the workers'
/// cores.
class Mover {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr unsigned kNone = UINT_MAX;

  Mover(ShardMoves& moves, std::uint64_t seed) : moves_(&moves), random_(seed) {}

  void step() {
    if (moves_->is_under_way()) return;
    const bool is_wanted = is_wanted_.load(std::memory_order_acquire);
    if (!is_wanted && !has_begun_) return is_at_rest_.store(true, std::memory_order_release);
    const auto now = Clock::now();
    if (has_begun_)
      took_ms_.push_back(std::chrono::duration<float, std::milli>(now - began_).count());
    has_begun_ = is_wanted;
    moving_.store(kNone, std::memory_order_relaxed);
    if (has_begun_) {
      const auto shard = static_cast<unsigned>(random_() % moves_->shards());
      const unsigned others = moves_->workers() - 1;
      began_ = now;
      moving_.store(shard, std::memory_order_relaxed);
      moves_->begin(shard, static_cast<unsigned>(
                               (moves_->worker_of(shard) + 1 + random_() % others) % (others + 1)));
    }
  }

  /// Begins to move shards. Any thread may call it.
  void start() { is_wanted_.store(true, std::memory_order_release); }
  void stop() {
    is_wanted_.store(false, std::memory_order_release);
    is_at_rest_.store(false, std::memory_order_release);
  }
  /// Returns the shard that is moving, or `kNone`. Any thread may call it.
  unsigned moving() const { return moving_.load(std::memory_order_relaxed); }
  /// True if no shard moves: before `start`, or once the last move after `stop` has ended.
  bool is_at_rest() const { return is_at_rest_.load(std::memory_order_acquire); }
  /// Returns the duration of each move, in ms. Must be called only while `is_at_rest()`.
  const std::vector<float>& took_ms() const { return took_ms_; }

 private:
  ShardMoves* moves_;
  std::mt19937_64 random_;
  Clock::time_point began_;
  bool has_begun_ = false;
  std::vector<float> took_ms_;
  std::atomic<bool> is_wanted_ = false;
  std::atomic<bool> is_at_rest_ = true;
  std::atomic<unsigned> moving_ = kNone;
};

/// A port of a worker that hands packets over by shard. One thread receives and sends. Any thread
/// may read `served`, `dropped` and `rounds`.
class ExchangePort final : public Port, private WorkersExchange::Packets {
 public:
  /// Makes a port that receives the capture's packets at `positions`, over and over, until `stop`
  /// is set. `exchange`, `capture` and `stop` must outlive the port.
  ExchangePort(Exchange& exchange, unsigned worker, const Capture& capture,
               std::vector<std::uint32_t> positions, unsigned burst, const std::atomic<bool>& stop)
      : capture_(&capture),
        positions_(std::move(positions)),
        burst_(burst),
        stop_(&stop),
        slots_(std::make_unique<Slot[]>(kSlots)),
        exchange_(exchange, worker, *this) {}

  /// Marks the port as gone. Packets that are left in its rings belong to other ports, which may be
  /// gone, too: `drop` must not touch such packets.
  ~ExchangePort() override { is_gone_ = true; }
  ExchangePort(const ExchangePort&) = delete;
  ExchangePort& operator=(const ExchangePort&) = delete;

  LinkType link_type() const override { return capture_->link_type(0); }
  bool receive(Burst& burst) override {
    using std::chrono::steady_clock;
    burst.now = Tick{
        static_cast<std::uint32_t>((steady_clock::now() - start_) / std::chrono::milliseconds(1))};
    if (mover_ != nullptr) mover_->step();
    exchange_.receive(burst);
    const bool is_ending = stop_->load(std::memory_order_relaxed);
    if (!is_ending) fill(burst);
    // Other workers may still hand over packets that they have received.
    empty_ = is_ending && burst.size == 0 && exchange_.is_at_rest() ? empty_ + 1 : 0;
    return empty_ < kRest;
  }
  void filed(Burst& burst, const Steering& steering) override {
    exchange_.number_shards(burst, steering);
    exchange_.hand_over(burst);
  }
  void send(const Burst& burst, std::uint64_t forward) override {
    served_.add(static_cast<std::uint64_t>(std::popcount(forward)));
    if (pacing_ != nullptr) note_latency(burst, forward);
    for (unsigned i = 0; i < burst.size; ++i) let_go(burst.handle[i]);
  }

  /// Makes this port's worker move shards by `mover`, which must outlive the port. Must be called
  /// before the port runs.
  void set_mover(Mover& mover) { mover_ = &mover; }
  /// Makes packets arrive at the rate of `pacing`. `shards` has the shard of each packet of the
  /// capture: the latency of packets whose shard `mover` is moving is recorded apart, too. All
  /// three must outlive the port. Must be called before the port runs.
  void set_pacing(const Pacing& pacing, const Mover& mover, std::span<const std::uint16_t> shards) {
    pacing_ = &pacing;
    pacing_mover_ = &mover;
    shards_ = shards;
    latencies_.resize(pacing.slices());
  }
  WorkersExchange& exchange() { return exchange_; }
  /// Returns how many packets this worker has served.
  std::uint64_t served() const { return served_.value(); }
  std::uint64_t dropped() const { return dropped_.value(); }
  /// Returns the latency of the packets that this worker has sent, by slice. Must be called only
  /// when the port no longer runs.
  const std::vector<SliceLatency>& latencies() const { return latencies_; }
  /// Returns how many packets arrived while a rate was set. Must be called only when the port no
  /// longer runs.
  std::uint64_t arrived() const { return arrived_ + (arrivals_ ? arrivals_->arrived() : 0); }
  /// Returns how many of the packets that `arrived` counts found the queue full.
  std::uint64_t lost() const { return lost_ + (arrivals_ ? arrivals_->lost() : 0); }
  /// Returns how many times the port has received all its packets.
  std::uint64_t rounds() const { return rounds_.value(); }

 private:
  static constexpr unsigned kHeadroom = 128;
  static constexpr unsigned kOffered = 256;
  /// Packets of this port that may be on their way at once: so few that, with up to 15 workers, the
  /// packets of all ports find room in any ring.
  static constexpr unsigned kSlots = 256;
  static constexpr unsigned kRest = 1000;
  struct alignas(64) Slot {
    std::atomic<bool> is_free{true};
    std::uint16_t length = 0;
    std::uint32_t wire_length = 0;
    bool is_moving = false;  // the packet was received while its shard moved
    double arrived_ns = -1;  // time of arrival; below 0: no rate was set
    alignas(64) std::array<std::byte, kHeadroom + kOffered> bytes;
  };
  static Slot& slot_of(Handle packet) { return *std::bit_cast<Slot*>(packet); }
  static void let_go(Handle packet) {
    slot_of(packet).is_free.store(true, std::memory_order_release);
  }

  /// Adds the packets that have arrived at the present rate. Returns how many packets the port may
  /// receive now.
  unsigned arrive() {
    const double ns_each = pacing_->ns_each() * static_cast<double>(capture_->size()) /
                           static_cast<double>(positions_.size());
    if (ns_each != ns_each_) {
      arrived_ = arrived();
      lost_ = lost();
      arrivals_.reset();
      ns_each_ = ns_each;
      pace_began_ns_ = pacing_->now_ns();
      if (ns_each > 0) arrivals_.emplace(UINT64_MAX, ns_each, Pacing::kQueue);
    }
    if (!arrivals_) return burst_;
    arrivals_->arrive(pacing_->now_ns() - pace_began_ns_);
    return std::min(burst_, arrivals_->waiting());
  }
  void note_latency(const Burst& burst, std::uint64_t forward) {
    const unsigned slice = pacing_->slice();
    if (slice == Pacing::kNone || forward == 0) return;
    const double now_ns = pacing_->now_ns();
    for (; forward != 0; forward &= forward - 1) {
      const Slot& slot = slot_of(burst.handle[static_cast<unsigned>(std::countr_zero(forward))]);
      if (slot.arrived_ns >= 0) latencies_[slice].add(now_ns - slot.arrived_ns, slot.is_moving);
    }
  }

  void fill(Burst& burst) {
    constexpr std::size_t kAhead = 16;
    if (positions_.empty()) return;
    const unsigned most = pacing_ != nullptr ? arrive() : burst_;
    const unsigned moving = pacing_ != nullptr ? pacing_mover_->moving() : Mover::kNone;
    for (unsigned left = most; left > 0 && burst.size < Burst::kMax; --left) {
      // A slot whose packet another worker still has is skipped: it must not stop later packets.
      unsigned tries = kSlots;
      while (tries > 0 && !slots_[slot_].is_free.load(std::memory_order_acquire)) {
        slot_ = (slot_ + 1) % kSlots;
        --tries;
      }
      if (tries == 0) return;
      Slot& slot = slots_[slot_];
      slot.is_free.store(false, std::memory_order_relaxed);
      slot_ = (slot_ + 1) % kSlots;
      const auto& ahead =
          capture_->packet(positions_[std::min(next_ + kAhead, positions_.size() - 1)]);
      __builtin_prefetch(ahead.data);
      __builtin_prefetch(ahead.data + 64);
      const auto& packet = capture_->packet(positions_[next_]);
      slot.length = static_cast<std::uint16_t>(std::min(packet.captured, kOffered));
      slot.wire_length = std::max<std::uint32_t>(packet.wire_length, slot.length);
      std::memcpy(slot.bytes.data() + kHeadroom, packet.data, slot.length);
      slot.arrived_ns = arrivals_ ? pace_began_ns_ + arrivals_->take() : -1;
      slot.is_moving = moving != Mover::kNone && shards_[positions_[next_]] == moving;
      place(burst, burst.size++, std::bit_cast<Handle>(&slot));
      if (++next_ < positions_.size()) continue;
      next_ = 0;
      rounds_.add(1);
    }
  }

  void place(Burst& burst, unsigned at, Handle packet) override {
    Slot& slot = slot_of(packet);
    burst.data[at] = slot.bytes.data() + kHeadroom;
    burst.length[at] = slot.length;
    burst.wire_length[at] = slot.wire_length;
    burst.handle[at] = packet;
  }
  void drop(Handle packet) override {
    if (is_gone_) return;
    dropped_.add(1);
    let_go(packet);
  }
  void passed_on(Handle) override {}
  void hear(Handle) override {}

  const Capture* capture_;
  std::vector<std::uint32_t> positions_;
  unsigned burst_;
  const std::atomic<bool>* stop_;
  std::unique_ptr<Slot[]> slots_;
  unsigned slot_ = 0;
  std::size_t next_ = 0;
  unsigned empty_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  Mover* mover_ = nullptr;
  const Pacing* pacing_ = nullptr;
  const Mover* pacing_mover_ = nullptr;
  std::span<const std::uint16_t> shards_;
  std::optional<ArrivalQueue> arrivals_;
  double ns_each_ = 0;
  double pace_began_ns_ = 0;
  std::vector<SliceLatency> latencies_;
  std::uint64_t arrived_ = 0;
  std::uint64_t lost_ = 0;
  bool is_gone_ = false;
  Counter served_;
  Counter dropped_;
  Counter rounds_;
  WorkersExchange exchange_;
};

}  // namespace millrace::bench
