// The output of one or several ports: one capture file, in the order of the capture that the ports
// read.
//
// Each port has a number and is used by one thread; different ports may write at the same time.
//
// Invariants:
//  1. The packets in the file ascend by `order`.
//  2. A packet is written only after every other port has a later packet waiting, has promised by
//     `complete_up_to` to write no earlier one, or has ended.
//  3. The port that the other ports wait for has no packet waiting, so that port never waits
//     itself.
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
    std::uint64_t order;  ///< position among the packets of all ports
    std::uint64_t timestamp_ns;
    std::uint32_t wire_length;
    std::span<const std::byte> head;  ///< first captured bytes: need not stay valid after `write`
    std::span<const std::byte> tail;  ///< remaining captured bytes: must stay valid until `finish`
    unsigned link = 0;                ///< index of the packet's link type in `CaptureFormat::dlts`
  };

  CaptureOutput(CaptureWriter writer, unsigned ports);

  /// Writes packets of `port`, which must ascend by `order` and follow all packets that the port
  /// wrote before. The port promises to write no packet below `complete_up_to` from now on. Blocks
  /// while more than `kMostWaiting` of the port's packets wait for other ports.
  void write(unsigned port, std::span<const Packet> packets, std::uint64_t complete_up_to);
  /// Ends the port: it writes nothing more.
  void end(unsigned port);

  /// True once a write has failed.
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  /// Ends the file, after all ports have ended. Errors: those of `CaptureWriter::finish`.
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
    std::uint64_t complete_up_to = 0;
  };
  /// Packets of one port that may wait for other ports before `write` blocks.
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
