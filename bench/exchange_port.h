// A worker's port over packets in memory, some of which belong to other workers.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "core/counter.h"
#include "port/capture.h"
#include "port/port.h"
#include "worker/exchange.h"

namespace millrace::bench {

/// Moves shards drawn at random without a pause, while it is wanted. A worker calls `step` between
/// two bursts: a thread that waits for moves would take the workers' cores from them.
class Mover {
 public:
  using Clock = std::chrono::steady_clock;

  Mover(ShardMoves& moves, std::uint64_t seed) : moves_(&moves), random_(seed) {}

  void step() {
    if (moves_->is_under_way()) return;
    const bool is_wanted = is_wanted_.load(std::memory_order_acquire);
    if (!is_wanted && !has_begun_) return is_at_rest_.store(true, std::memory_order_release);
    const auto now = Clock::now();
    if (has_begun_)
      took_ms_.push_back(std::chrono::duration<float, std::milli>(now - began_).count());
    has_begun_ = is_wanted;
    if (has_begun_) {
      const auto shard = static_cast<unsigned>(random_() % moves_->shards());
      const unsigned others = moves_->workers() - 1;
      began_ = now;
      moves_->begin(shard, static_cast<unsigned>(
                               (moves_->worker_of(shard) + 1 + random_() % others) % (others + 1)));
    }
  }

  /// Any thread.
  void start() { is_wanted_.store(true, std::memory_order_release); }
  void stop() {
    is_wanted_.store(false, std::memory_order_release);
    is_at_rest_.store(false, std::memory_order_release);
  }
  /// Once true after `stop`, `took_ms` may be read.
  bool is_at_rest() const { return is_at_rest_.load(std::memory_order_acquire); }
  /// How long each move took.
  const std::vector<float>& took_ms() const { return took_ms_; }

 private:
  ShardMoves* moves_;
  std::mt19937_64 random_;
  Clock::time_point began_;
  bool has_begun_ = false;
  std::vector<float> took_ms_;
  std::atomic<bool> is_wanted_ = false;
  std::atomic<bool> is_at_rest_ = true;
};

/// One thread receives and sends; any may ask what it has counted.
class ExchangePort final : public Port, private WorkersExchange::Packets {
 public:
  /// Gives the capture's packets at these positions, over and over, until `stop`. All three outlive
  /// it.
  ExchangePort(Exchange& exchange, unsigned worker, const Capture& capture,
               std::vector<std::uint32_t> positions, unsigned burst, const std::atomic<bool>& stop)
      : capture_(&capture),
        positions_(std::move(positions)),
        burst_(burst),
        stop_(&stop),
        slots_(std::make_unique<Slot[]>(kSlots)),
        exchange_(exchange, worker, *this) {}

  /// Packets that are left in rings belong to other ports, which may be gone.
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
    // Others may still pass on what they had received.
    empty_ = is_ending && burst.size == 0 && exchange_.is_at_rest() ? empty_ + 1 : 0;
    return empty_ < kRest;
  }
  void filed(Burst& burst, const Steering& steering) override {
    exchange_.hand_over(burst, steering);
  }
  void send(const Burst& burst, std::uint64_t forward) override {
    served_.add(static_cast<std::uint64_t>(std::popcount(forward)));
    for (unsigned i = 0; i < burst.size; ++i) let_go(burst.handle[i]);
  }

  /// Before it runs: its worker is the one that moves shards. `mover` outlives it.
  void set_mover(Mover& mover) { mover_ = &mover; }
  WorkersExchange& exchange() { return exchange_; }
  /// Packets that this worker has served.
  std::uint64_t served() const { return served_.value(); }
  std::uint64_t dropped() const { return dropped_.value(); }
  /// How often all of its packets have been given.
  std::uint64_t rounds() const { return rounds_.value(); }

 private:
  static constexpr unsigned kHeadroom = 128;
  static constexpr unsigned kOffered = 256;
  /// On their way at once. Together with those of other ports they find room in any ring, while
  /// there are few workers.
  static constexpr unsigned kSlots = 256;
  static constexpr unsigned kRest = 1000;
  struct alignas(64) Slot {
    std::atomic<bool> is_free{true};
    std::uint16_t length = 0;
    std::uint32_t wire_length = 0;
    alignas(64) std::array<std::byte, kHeadroom + kOffered> bytes;
  };
  static Slot& slot_of(Handle packet) { return *std::bit_cast<Slot*>(packet); }
  static void let_go(Handle packet) {
    slot_of(packet).is_free.store(true, std::memory_order_release);
  }

  void fill(Burst& burst) {
    constexpr std::size_t kAhead = 16;
    if (positions_.empty()) return;
    for (unsigned left = burst_; left > 0 && burst.size < Burst::kMax; --left) {
      // A packet that another worker holds must not stop those behind it.
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
  void hear(const Burst&, unsigned, Handle) override {}

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
  bool is_gone_ = false;
  Counter served_;
  Counter dropped_;
  Counter rounds_;
  WorkersExchange exchange_;
};

}  // namespace millrace::bench
