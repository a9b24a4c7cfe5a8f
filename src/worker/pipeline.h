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
#include <vector>

#include "millrace/detail/waiting.h"

#include "port/port.h"
#include "port/ring.h"

namespace millrace {

/// A worker's end of the pipeline.
class ParsedPort final : public Port {
 public:
  /// Bursts that may wait for the worker.
  static constexpr unsigned kBursts = 16;

  /// `source` outlives it, and lets one thread receive while another sends. Errors (failed): no
  /// memory.
  static Result<std::unique_ptr<ParsedPort>> create(Port& source);

  // By the worker.
  LinkType link_type() const override { return source_->link_type(); }
  bool receives_parsed() const override { return true; }
  /// An empty burst while none is ready.
  bool receive(Burst& burst) override;
  void send(const Burst& burst, std::uint64_t forward) override;
  void finish() override;

  // By the reading thread.
  enum class Fed : std::uint8_t { burst, full, end };
  /// Receives a burst from the source, and parses it. Ends a wait for room before that.
  Fed feed(std::optional<detail::Backoff>& waiting);
  /// Nothing more will come.
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

  static Result<Pipeline> create(std::span<Port* const> sources);
  /// What workers are given in place of the sources.
  std::vector<Port*> ports() const;
  /// On the reading thread, once: until all sources are at their ends. Throws nothing.
  void read();

 private:
  std::vector<std::unique_ptr<ParsedPort>> ports_;
  std::vector<ParsedPort*> open_;  // whose sources are not at their ends
};

}  // namespace millrace
