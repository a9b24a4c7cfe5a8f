// The model `pipeline`: one thread receives and parses for all workers; the workers track,
// translate and send. Bursts pass through rings, as between the DHash paper's input and application
// processors.
//
// Each worker has a port of its own, with packets that belong to the worker. The reading thread
// receives from all these ports in turn. A worker's line receives parsed bursts from a
// `ParsedPort`.
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

/// A ring of bursts. One thread pushes, and one thread pops.
class BurstRing {
 public:
  /// Makes a ring with room for `capacity` bursts, 1 or more. Errors (failed): no memory.
  static Result<BurstRing> create(unsigned capacity);

  /// Adds a burst. Returns false if the ring is full.
  bool push(Burst* burst) {
    void* const pointer = burst;
    return ring_.push({&pointer, 1}) == 1;
  }
  /// Takes out the oldest burst and returns it; null if the ring is empty.
  Burst* pop() {
    void* pointer = nullptr;
    ring_.pop({&pointer, 1});
    return static_cast<Burst*>(pointer);
  }

 private:
  explicit BurstRing(PointerRing ring) : ring_(std::move(ring)) {}

  PointerRing ring_;
};

/// The port of a worker in the pipeline, with the rings of bursts between the reading thread and
/// the worker.
class ParsedPort final : public Port {
 public:
  /// Bursts that may wait for the worker.
  static constexpr unsigned kBursts = 16;

  /// `source` must outlive the port, and must allow that one thread receives from it while another
  /// thread sends. Errors (failed): no memory.
  static Result<std::unique_ptr<ParsedPort>> create(Port& source);

  // For the worker.
  LinkType link_type() const override { return source_->link_type(); }
  bool receives_parsed() const override { return true; }
  /// Gives the next parsed burst. If none is ready, gives an empty burst, after a wait if the
  /// worker holds no burst. Returns false after the last burst.
  bool receive(Burst& burst) override;
  void send(const Burst& burst, std::uint64_t forward) override;
  void finish() override;

  // For the reading thread.
  enum class Fed : std::uint8_t { burst, full, end };
  /// Receives a burst from the source, parses it and passes it to the worker. If `kBursts` bursts
  /// wait for the worker, returns `full` instead. Otherwise ends `waiting` before it receives.
  /// Returns `end` if the source is at its end, or the worker receives no more.
  Fed feed(std::optional<detail::Backoff>& waiting);
  /// Marks the end: no more bursts will follow.
  void end() { ended_.store(true, std::memory_order_release); }

 private:
  ParsedPort(Port& source, BurstRing parsed, BurstRing free);

  Port* source_;
  std::unique_ptr<Burst[]> bursts_;
  BurstRing parsed_;
  BurstRing free_;
  std::atomic<bool> ended_ = false;
  std::atomic<bool> left_ = false;  // the worker receives no more
  Tick now_;
  unsigned in_hand_ = 0;                    // bursts that the worker has received and not sent
  std::optional<detail::Backoff> waiting_;  // set while no burst is ready
};

class Pipeline {
 public:
  /// Most bursts of a worker's port that are in flight at once: a source must keep the packets of
  /// that many bursts valid.
  static constexpr unsigned kInFlight = ParsedPort::kBursts + kBurstsInFlight;

  /// `sources` are the workers' ports, which must outlive the pipeline. Errors (failed): no memory.
  static Result<Pipeline> create(std::span<Port* const> sources);

  /// Runs the workers and one more thread, which reads, until all sources are at their ends.
  /// Errors: as `Workers::run`.
  Result<void> run(Workers& workers);
  /// Returns the reading thread's time in the last run.
  Workers::Time reading_time() const { return reading_time_; }

 private:
  void read();

  std::vector<std::unique_ptr<ParsedPort>> ports_;
  std::vector<ParsedPort*> open_;  // ports whose sources are not at their ends
  Workers::Time reading_time_;
};

}  // namespace millrace::bench
