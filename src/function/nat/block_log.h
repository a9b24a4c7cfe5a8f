// The log of port blocks (RFC 6888, REQ-12): which customer had which public ports, and when. A
// thread of its own takes the workers' records (block_events.h), and writes them to a file and to a
// collector. It remembers the customer of each block, and writes a list of these at every start, in
// every new file, and behind a gap; so the log tells the customer of a port at any time it covers.
//
// One thread at a time calls an object, but `statistics` may be called while `finish` waits.
// A slow disk delays only the log's thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "core/json_fwd.h"
#include "function/nat/log_target.h"
#include "function/nat/port_blocks.h"
#include "function/nat/settings.h"

namespace millrace {

class BlockLog {
 public:
  /// Makes a log of these blocks, before any worker has taken one; nothing is recorded until
  /// `start`. `takes_over`: another process may still write the log. Errors (unreadable): the file
  /// cannot be written; or failed: no thread can be started.
  static Result<std::unique_ptr<BlockLog>> open(std::shared_ptr<const NatSettings> settings,
                                                std::shared_ptr<PortBlocks> blocks,
                                                std::uint64_t capture_ms, bool takes_over);
  /// Finishes, unless that was done.
  ~BlockLog();
  BlockLog(const BlockLog&) = delete;
  BlockLog& operator=(const BlockLog&) = delete;

  /// Begins to record and to write, with a list of the blocks that customers have now. Called
  /// before workers run, once.
  void start();

  /// Writes what is recorded, and ends the thread. `hands_over`: customers keep their blocks in
  /// another process, and this process is to wait for at most `kPatience`; otherwise the log says
  /// that they lose them.
  void finish(bool hands_over);
  /// Writes lists with the forwards of these settings from now on, the first one at once if a
  /// customer may have other ends than before. Called before any worker changes to them.
  void change_settings(std::shared_ptr<const NatSettings> settings);
  static constexpr std::chrono::milliseconds kPatience{500};

  /// Returns a sentence, without its full stop, for each place where nothing can be written at
  /// present. It stays the same until that place can be written again.
  std::vector<std::string> alarms() const;
  /// Returns an object for each place where the log is written (docs/stats.schema.json).
  Json statistics() const;

 private:
  struct Target {
    std::string name;
    std::unique_ptr<LogTarget> to;        // null: the thread has ended
    std::vector<LogRecord> waiting;       // records that are not written yet
    std::optional<LogRecord::Kind> list;  // the head of a list that is to be written
    std::uint64_t missing = 0;            // events lost since the previous list
    bool is_ready = false;
    std::chrono::steady_clock::time_point retry_at;
    std::atomic<std::uint64_t> written = 0;
    std::atomic<std::uint64_t> lost = 0;
    mutable std::mutex mutex;            // protects the members below
    std::uint64_t failing_since_ms = 0;  // since 1970; 0: not failing
    std::string error;
    std::string first_error;  // since then
  };

  BlockLog(std::shared_ptr<const NatSettings> settings, std::shared_ptr<PortBlocks> blocks,
           const BlockEvents::Policy& policy, bool takes_over)
      : blocks_(std::move(blocks)),
        policy_(policy),
        takes_over_(takes_over),
        settings_(std::move(settings)) {}

  void work(const std::stop_token& stop);
  void step(bool is_last);
  std::vector<LogRecord> take_events();
  bool take_on_settings();
  void look_again();
  LogRecord record_of(LogRecord::Kind kind, std::uint64_t time_ms, std::uint32_t block,
                      CustomerNumber customer) const;
  static void lose(Target& target, std::uint64_t events);
  void write_to(Target& target, bool is_sure, bool is_last);
  Result<void> deliver(Target& target, bool is_sure);
  static Result<void> write_waiting(Target& target);
  void append_list(Target& target, LogRecord::Kind why);
  std::uint64_t now_ms() const;

  std::shared_ptr<PortBlocks> blocks_;  // of any pools of the run: it names the blocks of all
  BlockEvents::Policy policy_;
  bool takes_over_;
  std::deque<Target> targets_;
  // Used by the log's thread, once that runs:
  std::vector<std::uint32_t> held_;  // the customer of each block, as the records say; 0: none
  std::uint64_t lost_ = 0;           // records without room in `BlockEvents` so far
  std::uint64_t latest_ms_ = 0;      // time of the latest record

  std::atomic<bool> hands_over_ = false;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool has_begun_ = false;  // protected by `mutex_`, as are the next members
  bool has_ended_ = false;
  std::shared_ptr<const NatSettings> settings_;  // the present ones
  bool has_other_ends_ = false;                  // a list of these is not written yet
  std::jthread thread_;
};

}  // namespace millrace
