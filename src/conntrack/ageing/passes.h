// The common part of `scan` and `lazy`: passes over all ids that check the live ids, a slice of the
// ids every interval.
//
// A sweep reads, for each connection of its budget, both records and at most one cache line of
// bits.
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

/// Checks all live ids once a pass. A derived class says how long a pass takes.
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
      const unsigned about = std::min(budget, kMostAtOnce);
      std::array<ConnId, kMostAtOnce> batch;
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

  /// The number of connections in `config` is that of all `workers` together.
  Passes(Memory memory, const AgeingConfig& config, unsigned workers)
      : memory_(std::move(memory)),
        live_(memory_.data(), config.ids),
        ids_(config.ids),
        most_of_worker_(config.connections / workers),
        interval_ms_(std::max(config.interval_ms, 1U)) {}

  /// Returns the time in ms that a pass may take at present.
  virtual std::uint32_t pass_ms() const = 0;
  /// True if this worker has at least that many quarters of the largest number of connections,
  /// divided by the number of workers.
  bool has_quarters(unsigned quarters) const { return count_ >= most_of_worker_ * quarters / 4; }

  /// Makes a `Scheme`, which derives from this class, for each worker. Errors (failed): no memory.
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

  /// Advances the time. Each interval adds a slice to the ids to check now, up to a whole pass.
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
  std::uint64_t interval_ = 0;  // the latest interval whose slice was added to `left_`
  std::uint64_t left_ = 0;      // number of ids to check now
  std::uint64_t at_ = 0;        // the next id to check
  std::size_t count_ = 0;
};

}  // namespace millrace
