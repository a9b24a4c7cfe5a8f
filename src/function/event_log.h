// Logs: events that functions write for people and their programs, such as connections that a
// firewall has refused. A function has an event of its own kind, and writes it as JSON; this
// file carries the events from all workers to any number of readers.
//
// Each worker has a ring (event_ring.h) and never waits for a reader. A reader that is too slow
// misses events; it learns how many.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "function/event_ring.h"

namespace millrace {

/// One reader's place in a log. One thread at a time uses it; it need not be the same thread, and
/// no lock is needed.
class LogReader {
 public:
  virtual ~LogReader() = default;
  /// Appends lines of JSON to `text` (docs/control.md): the next events, at most `kMost`; nothing
  /// if there is none.
  virtual void append(std::string& text) = 0;

  static constexpr std::size_t kMost = 64;
};

/// Returns a time in UTC with milliseconds, as RFC 3339 has it; `time_ns`: since 1970.
std::string time_text(std::uint64_t time_ns);
/// Appends the beginning and the end of an event's line. The event's own members stand between.
void begin_event(std::string& text, std::uint64_t time_ns);
void end_event(std::string& text, unsigned worker, std::uint64_t missed);

/// Returns the time in nanoseconds since 1970. Makes no system call where the kernel offers the
/// clock to programs (vDSO).
inline std::uint64_t wall_time_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

/// The rings of all workers. An `Event` has a member `time_ns`: nanoseconds since 1970.
template <class Event>
class EventLog {
 public:
  explicit EventLog(unsigned workers) : rings_(workers) {}

  /// Returns the ring into which that worker writes.
  EventRing<Event>& ring(unsigned worker) { return rings_[worker]; }

  /// A reader's place in all rings.
  class Reader {
   public:
    /// With `only_new`, skips the events that are there already.
    Reader(std::shared_ptr<const EventLog> log, bool only_new)
        : log_(std::move(log)), cursors_(log_->rings_.size()) {
      if (!only_new) return;
      for (std::size_t n = 0; n < cursors_.size(); ++n) cursors_[n] = log_->rings_[n].end();
    }

    /// Calls `take(event, worker, missed)` for the next events, at most about `most`, in the order
    /// of their times as far as they are there. `missed`: events of that worker before this one
    /// that the reader has not got.
    template <class Take>
    void read(std::size_t most, Take&& take) {
      struct Read {
        Event event;
        unsigned worker;
        std::uint64_t missed;
      };
      std::vector<Read> all;
      const std::size_t share = std::max<std::size_t>(most / cursors_.size(), 1);
      for (unsigned n = 0; n < cursors_.size(); ++n) {
        std::uint64_t missed = 0;
        for (std::size_t i = 0; i < share; ++i) {
          const auto event = log_->rings_[n].next(cursors_[n], missed);
          if (!event) break;
          all.push_back({*event, n, missed});
        }
      }
      std::ranges::stable_sort(all, {}, [](const Read& one) { return one.event.time_ns; });
      for (const Read& one : all) take(one.event, one.worker, one.missed);
    }

   private:
    std::shared_ptr<const EventLog> log_;
    std::vector<typename EventRing<Event>::Cursor> cursors_;
  };

 private:
  std::vector<EventRing<Event>> rings_;
};

}  // namespace millrace
