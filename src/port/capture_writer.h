// Writes a capture to a temporary file beside its final name, and renames the file when it is
// whole. The format is pcap, or pcapng where pcap cannot hold the packets
// (`CaptureFormat::needs_pcapng`).
//
// One thread uses a writer. Standard output, and files that are not regular (a pipe, /dev/null),
// are written directly. Without `finish` no file appears under the final name, and an older file of
// that name stays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>

#include "millrace/types.h"
#include "port/capture.h"

namespace millrace {

class CaptureWriter {
 public:
  /// Creates the temporary file, `PATH.PID-N.partial`; the path `-` is standard output. Errors:
  /// unreadable (no directory, no permission, the path is a directory), failed (no space).
  static Result<CaptureWriter> create(const std::string& path, const CaptureFormat& format);

  CaptureWriter(const CaptureWriter&) = delete;
  CaptureWriter& operator=(const CaptureWriter&) = delete;
  CaptureWriter(CaptureWriter&& other) noexcept;
  CaptureWriter& operator=(CaptureWriter&& other) noexcept;
  /// Removes the temporary file unless `finish` has succeeded.
  ~CaptureWriter();

  /// Writes one packet of link type `format.dlts[link]`; its captured bytes are `head` followed by
  /// `tail`. In a pcap file, timestamps are cut to microseconds if `format.nanoseconds` is false.
  /// Packets are buffered and written in large blocks.
  void write(std::uint64_t timestamp_ns, std::uint32_t wire_length, std::span<const std::byte> head,
             std::span<const std::byte> tail = {}, unsigned link = 0);

  /// True once a write has failed: further packets are ignored, and `finish` returns the error.
  bool failed() const { return failure_ != 0; }
  /// Returns the number of packets written so far.
  std::uint64_t packets() const { return packets_; }

  /// Ends the file and gives it its final name. To be called once. Errors: failed (the file could
  /// not be written whole, and is removed).
  Result<void> finish();

 private:
  struct State;  // the file, and libpcap's handles

  CaptureWriter() = default;
  bool begin(const CaptureFormat& format);
  void remove_temporary();

  std::unique_ptr<State> state_;
  std::string path_;       // the user's spelling, for messages
  std::string final_;      // the final name, symbolic links resolved
  std::string temporary_;  // name of the temporary file; empty: written directly
  std::uint64_t packets_ = 0;
  int failure_ = 0;  // errno of the first failure; 0: none
};

}  // namespace millrace
