// Writes a capture: beside its final name first, renamed when it is whole. pcap, or pcapng where
// pcap cannot hold what is written (`CaptureFormat::needs_pcapng`).
//
// One thread uses a writer. What is not a regular file (a pipe, /dev/null), and standard output, is
// written directly. Without `finish` nothing appears under the final name, and what was there
// stays.
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
  /// unreadable (no directory, no permission, a directory itself), failed (no space).
  static Result<CaptureWriter> create(const std::string& path, const CaptureFormat& format);

  CaptureWriter(const CaptureWriter&) = delete;
  CaptureWriter& operator=(const CaptureWriter&) = delete;
  CaptureWriter(CaptureWriter&& other) noexcept;
  CaptureWriter& operator=(CaptureWriter&& other) noexcept;
  /// Removes the temporary file unless finished.
  ~CaptureWriter();

  /// Writes one packet whose captured bytes are `head` and then `tail`, and whose link type is
  /// `format.dlts[link]`. In pcap, timestamps are cut to microseconds where `format.nanoseconds` is
  /// false. Gathers in memory and writes in large blocks.
  void write(std::uint64_t timestamp_ns, std::uint32_t wire_length, std::span<const std::byte> head,
             std::span<const std::byte> tail = {}, unsigned link = 0);

  /// True once anything could not be written: further packets are ignored, `finish` says why.
  bool failed() const { return failure_ != 0; }
  /// Packets written so far.
  std::uint64_t packets() const { return packets_; }

  /// Ends the file and gives it its name. Error (failed): it could not be written whole; it is gone
  /// then. To be called once.
  Result<void> finish();

 private:
  struct State;  // the file, and libpcap's handles

  CaptureWriter() = default;
  bool begin(const CaptureFormat& format);
  void remove_temporary();

  std::unique_ptr<State> state_;
  std::string path_;       // as the user named it, for messages
  std::string final_;      // where it belongs, symbolic links followed
  std::string temporary_;  // empty: written directly
  std::uint64_t packets_ = 0;
  int failure_ = 0;  // errno
};

}  // namespace millrace
