// The model `pipeline`: one thread receives and parses for all workers, which track, translate and
// send. Bursts pass through rings, as in the DHash paper (its input and application processors).
//
// Each worker has a port of its own, whose packets belong to it. The reading thread receives from
// all of them in turn; a worker's line sees a port that gives it parsed bursts.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "millrace/detail/waiting.h"
#include "port/port.h"
#include "port/ring.h"
#include "worker/workers.h"

namespace millrace::bench {

/// A ring of bursts. One thread pushes, one pops.
class BurstRing {
 public:
  /// Makes room for `capacity`, 1 or more. Errors (failed): no memory.
  static Result<BurstRing> create(unsigned capacity);

  /// Returns false where there is no room.
  bool push(Burst* burst) {
    void* const pointer = burst;
    return ring_.push({&pointer, 1}) == 1;
  }
  /// Returns the burst that was pushed first, or null.
  Burst* pop() {
    void* pointer = nullptr;
    ring_.pop({&pointer, 1});
    return static_cast<Burst*>(pointer);
  }

 private:
  explicit BurstRing(PointerRing ring) : ring_(std::move(ring)) {}

  PointerRing ring_;
};

/// A worker's end of the pipeline.
class ParsedPort final : public Port {
 public:
  /// Bursts that may wait for the worker.
  static constexpr unsigned kBursts = 16;

  /// `source` outlives the port, and lets one thread receive while another sends. Errors (failed):
  /// no memory.
  static Result<std::unique_ptr<ParsedPort>> create(Port& source);

  // The worker calls these.
  LinkType link_type() const override { return source_->link_type(); }
  bool receives_parsed() const override { return true; }
  /// Gives an empty burst while none is ready.
  bool receive(Burst& burst) override;
  void send(const Burst& burst, std::uint64_t forward) override;
  void finish() override;

  // The reading thread calls these.
  enum class Fed : std::uint8_t { burst, full, end };
  /// Receives a burst from the source, and parses it. Ends a wait for room before that.
  Fed feed(std::optional<detail::Backoff>& waiting);
  /// Says that nothing more will come.
  void end() { ended_.store(true, std::memory_order_release); }

 private:
  ParsedPort(Port& source, BurstRing parsed, BurstRing free);

  Port* source_;
  std::unique_ptr<Burst[]> bursts_;
  BurstRing parsed_;
  BurstRing free_;
  std::atomic<bool> ended_ = false;
  std::atomic<bool> left_ = false;  // the worker takes nothing more
  Tick now_;
  unsigned in_hand_ = 0;                    // bursts that the worker has taken and not sent
  std::optional<detail::Backoff> waiting_;  // only while there are none
};

class Pipeline {
 public:
  /// Bursts of a worker's port that are in flight at once, at most: so many must its memory last.
  static constexpr unsigned kInFlight = ParsedPort::kBursts + kBurstsInFlight;

  /// `sources` are the workers' ports, and outlive the pipeline. Errors (failed): no memory.
  static Result<Pipeline> create(std::span<Port* const> sources);

  /// Runs the workers until all sources are at their ends, with one thread more, which reads.
  /// Errors: as `Workers::run`.
  Result<void> run(Workers& workers);
  /// Returns what the last run took the reading thread.
  Workers::Time reading_time() const { return reading_time_; }

 private:
  void read();

  std::vector<std::unique_ptr<ParsedPort>> ports_;
  std::vector<ParsedPort*> open_;  // whose sources are not at their ends
  Workers::Time reading_time_;
};

}  // namespace millrace::bench
