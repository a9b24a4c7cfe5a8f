// Level load: several workers go through a capture in rounds, and between two of them entries of
// the indirection table change hands, with the connections behind them, so that all have as much to
// do (shard/level.h).
//
// At the end of a round every worker has served all its packets and waits for the others. Then
// those who take open what they are given in their own tables, reading the givers', which rest;
// those who give let go; all go on. So no packet waits for a lock, none overtakes another of its
// connection, and no connection is ever without an entry. What a worker has no place for stays
// where it is.
//
// Loads are packets of the round that has ended. A round is an interval of the capture's time,
// joined with the next where it has too few packets to tell loads apart.
#pragma once

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "port/replay_port.h"
#include "shard/indirection.h"
#include "shard/level.h"
#include "worker/workers.h"

namespace millrace {

/// Made, and asked at rest, by one thread.
class Rebalance final : public Rounds {
 public:
  /// Packets of a round, a worker, at least: with fewer, loads differ by chance.
  static constexpr std::size_t kLeastPackets = 4096;

  struct Report {
    std::uint64_t rounds = 0;
    std::uint64_t moved = 0;   ///< entries
    std::uint64_t stayed = 0;  ///< entries that were to move and found no place
    /// The busiest worker's packets against the mean, in each round, on average weighted by
    /// packets; `unmoved`: as it would have been if nothing had moved. 1 at least.
    double busiest = 1;
    double busiest_unmoved = 1;
  };

  /// `entries` are the capture's, which outlives it; `loops` 1 or more, `interval_ms` too.
  Rebalance(const Capture& capture, std::vector<std::uint16_t> entries, Indirection indirection,
            unsigned workers, std::uint32_t loops, std::uint32_t interval_ms);

  /// Of that worker's port; it walks nothing before `begin`.
  CapturePart part(unsigned worker) const { return {worker, {}, entries_}; }
  /// Before `workers` run with these ports, which outlive the run.
  void begin(Workers& workers, std::vector<ReplayPort>& ports);

  bool next(unsigned worker) override;
  void leave(unsigned worker) noexcept override;

  Report report() const;
  /// Time that a worker spent looking for its packets, which a NIC would have brought.
  std::uint64_t looked_ns(unsigned worker) const { return own_[worker].looked_ns; }

 private:
  struct alignas(64) Own {
    std::vector<std::uint32_t> packets;  // of this round, by entry
    std::uint64_t looked_ns = 0;
  };
  struct Decide {
    Rebalance* self;
    void operator()() noexcept { self->decide(); }
  };
  struct SettleMoves {
    Rebalance* self;
    void operator()() noexcept { self->settle_moves(); }
  };

  /// Of a round: more than one where a loop has too few packets.
  std::uint32_t loops_of_round() const { return std::min(loops_at_once_, loops_ - loop_); }
  bool is_last() const { return loop_ + loops_of_round() == loops_ && round_ + 1 == ends_.size(); }
  void go_on(unsigned worker);
  // All wait meanwhile.
  void decide() noexcept;
  void count_round();
  void find_moves();
  void settle_moves() noexcept;

  std::vector<std::size_t> ends_;  // positions of rounds' ends, in every loop
  std::vector<std::uint16_t> entries_;
  Indirection first_;  // as it was
  Indirection now_;
  std::uint32_t loops_;
  std::uint32_t loops_at_once_;
  std::vector<Own> own_;
  Workers* workers_ = nullptr;
  std::vector<ReplayPort>* ports_ = nullptr;
  std::barrier<Decide> served_;
  std::barrier<SettleMoves> adopted_;
  std::atomic<bool> left_ = false;

  // Written while all wait.
  std::uint32_t loop_ = 0;
  std::size_t round_ = 0;  // of the loop
  bool ended_ = false;
  Line::Live most_;  // that one worker may have
  std::vector<double> load_of_entry_;
  std::vector<Move> moves_;
  std::vector<char> done_;  // of `moves_`: each written by the one who adopts
  std::uint64_t rounds_ = 0;
  std::uint64_t moved_ = 0;
  std::uint64_t stayed_ = 0;
  double busiest_ = 0;  // sums over rounds, of packets
  double busiest_unmoved_ = 0;
  double mean_ = 0;
};

}  // namespace millrace
