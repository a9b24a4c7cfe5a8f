// Where ports put what leaves: one capture, in the order of the capture that they read, however
// many ports share the reading.
//
// Each port is numbered and used by one thread; different ports may write at the same time.
//
// Invariants:
//  1. The file is in ascending order.
//  2. A packet is written only when every other port has shown a later one, settled beyond it, or
//     ended.
//  3. The port that all wait for has nothing waiting, so it never waits itself.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <vector>

#include "port/capture_writer.h"

namespace millrace {

class CaptureOutput {
 public:
  struct Packet {
    std::uint64_t order;  ///< its place among the packets of all ports
    std::uint64_t timestamp_ns;
    std::uint32_t wire_length;
    std::span<const std::byte> head;  ///< captured bytes: copied if it has to wait
    std::span<const std::byte> tail;  ///< and these: they stay where they are until `finish`
    unsigned link = 0;                ///< place of its link type in `CaptureFormat::dlts`
  };

  CaptureOutput(CaptureWriter writer, unsigned ports);

  /// Packets of that port, later in order than all it wrote before. It will write nothing more that
  /// is below `settled`. Waits where the port is far ahead of another.
  void write(unsigned port, std::span<const Packet> packets, std::uint64_t settled);
  /// The port writes nothing more.
  void end(unsigned port);

  /// True once anything could not be written.
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  /// Ends the file, after all ports have ended; see CaptureWriter::finish.
  Result<void> finish();

 private:
  struct Waiting {
    std::uint64_t order;
    std::uint64_t timestamp_ns;
    std::uint32_t wire_length;
    std::vector<std::byte> head;
    std::span<const std::byte> tail;
    unsigned link;
  };
  struct PortState {
    std::deque<Waiting> waiting;
    std::uint64_t settled = 0;
  };
  /// A port waits while more of its packets than this wait for others'.
  static constexpr std::size_t kMostWaiting = 4096;

  void put(const Packet& packet);
  bool is_next(unsigned port) const;
  void write_what_is_next();

  std::mutex mutex_;
  std::condition_variable written_;
  CaptureWriter writer_;
  std::vector<PortState> ports_;
  std::atomic<bool> failed_ = false;
};

}  // namespace millrace
