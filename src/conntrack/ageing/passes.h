// What `scan` and `lazy` have in common: passes over all ids, a slice every interval, that look at
// the live ones.
//
// Bound of a sweep: of each connection in its budget a record, the reply's, and a line of bits.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "conntrack/ageing/ageing.h"
#include "conntrack/live_bits.h"

namespace millrace {

class Passes : public Ageing {
 public:
  void born(ConnId id, Tick now, Tick) override {
    advance(now);
    add(id);
  }

  void gone(ConnId id) override {
    live_.flip(id);
    --count_;
  }

  bool sweep(Tick now, unsigned budget, Connections& connections) override {
    advance(now);
    while (left_ > 0 && budget > 0) {
      const unsigned about = std::min(budget, kLookMost);
      std::array<ConnId, kLookMost> batch;
      unsigned size = 0;
      const std::uint64_t next =
          live_.walk(at_, std::min(ids_, at_ + left_), about, [&](ConnId id) {
            batch[size++] = id;
            gone(id);
          });
      left_ -= next - at_;
      at_ = next == ids_ ? 0 : next;
      expire_due(std::span(batch).first(size), time_.now(), connections,
                 [this](ConnId id, Tick) { add(id); });
      budget -= about;
    }
    return left_ == 0;
  }

  std::size_t memory_bytes() const override { return memory_.bytes(); }
  Result<void> check_invariants() const override {
    if (live_.count() == count_) return {};
    return std::unexpected(Error{"passes: the bits of live ids and their count differ"});
  }

 protected:
  static constexpr std::uint32_t kQuickPassMs = 1000;

  /// `ids` are shared by so many workers.
  Passes(Memory memory, const AgeingConfig& config, unsigned workers)
      : memory_(std::move(memory)),
        live_(memory_.data(), config.ids),
        ids_(config.ids),
        most_of_worker_(config.connections / workers),
        interval_ms_(std::max(config.interval_ms, 1U)) {}

  /// How long a pass may take, as things are.
  virtual std::uint32_t pass_ms() const = 0;
  /// Of its part of all connections, whether so many quarters live.
  bool has_quarters(unsigned quarters) const { return count_ >= most_of_worker_ * quarters / 4; }

  /// One of `Scheme`, derived from this, for each worker.
  template <class Scheme>
  static Result<AgeingOfWorkers> create_each(const AgeingConfig& config, unsigned workers) {
    AgeingOfWorkers all;
    for (unsigned worker = 0; worker < workers; ++worker) {
      auto memory = Memory::map(LiveBits::words(config.ids) * sizeof(std::uint64_t), config.pages);
      if (!memory) return std::unexpected(memory.error());
      all.push_back(std::unique_ptr<Scheme>(new Scheme(std::move(*memory), config, workers)));
    }
    return all;
  }

 private:
  void add(ConnId id) {
    live_.flip(id);
    ++count_;
  }

  /// What is due grows by a slice with each interval, to a whole pass at most.
  void advance(Tick now) {
    const bool starts = !time_.has_started();
    time_.advance(now);
    const std::uint64_t interval = time_.ms() / interval_ms_;
    const std::uint64_t passed = starts ? 0 : interval - interval_;
    interval_ = interval;
    if (passed == 0) return;
    const std::uint64_t slices = std::max(pass_ms() / interval_ms_, 1U);
    const std::uint64_t slice = (ids_ + slices - 1) / slices;
    left_ = std::min(ids_, left_ + std::min(passed, slices) * slice);
  }

  Memory memory_;
  LiveBits live_;
  std::uint64_t ids_;
  std::uint64_t most_of_worker_;
  std::uint32_t interval_ms_;
  Elapsed time_;
  std::uint64_t interval_ = 0;  // that `left_` knows of
  std::uint64_t left_ = 0;      // ids that are due
  std::uint64_t at_ = 0;        // the next of them
  std::size_t count_ = 0;
};

}  // namespace millrace
