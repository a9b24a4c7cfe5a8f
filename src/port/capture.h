// A capture in memory: read once, or built packet by packet, and then walked as often as wanted.
//
// The caller that loads or builds a capture owns it. One thread builds a capture; afterwards the
// capture is never written, and any number of threads may read it. Packets never move: spans stay
// valid for the life of the capture, also when the `Capture` object is moved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/link_type.h"
#include "millrace/types.h"
#include "port/capture_clock.h"

namespace millrace {

/// The properties of a capture file.
struct CaptureFormat {
  /// libpcap's numbers of the packets' link types: one or more, all known to `link_type_of`, each
  /// once. With several, only pcapng can hold the packets.
  std::vector<int> dlts = {1};
  std::uint32_t snaplen = 262144;  ///< bytes of a packet that are kept, at most
  bool nanoseconds = false;        ///< false: all timestamps are whole microseconds
  bool beyond_2106 = false;        ///< true: some timestamps do not fit into pcap's 32 bits

  bool needs_pcapng() const { return dlts.size() > 1 || beyond_2106; }
};

/// Least number of seconds since 1970 that does not fit into pcap's 32 bits.
inline constexpr std::uint64_t kPcapSeconds = std::uint64_t{1} << 32;

/// Returns how packets of libpcap's link type `dlt` begin. Errors: unreadable (millrace cannot read
/// this link type).
Result<LinkType> link_type_of(int dlt);

class Capture {
 public:
  struct Packet {
    std::uint64_t timestamp_ns;  ///< nanoseconds since 1970; below 2^63
    const std::byte* data;       ///< never null, even if `captured` is 0
    std::uint32_t captured;      ///< bytes at `data`
    std::uint32_t wire_length;   ///< bytes on the wire as the file says, even if below `captured`

    std::span<const std::byte> bytes() const { return {data, captured}; }
  };
  static_assert(sizeof(Packet) == 24);

  /// Largest number of packets: a position fits in 32 bits.
  static constexpr std::size_t kMaxPackets = UINT32_MAX;
  /// Bytes behind each packet that may be read but not used: a copy may move whole vectors.
  static constexpr std::size_t kSlack = 64;

  /// Makes an empty capture to append to. `link_type_of` must know all of `format.dlts`.
  explicit Capture(const CaptureFormat& format);

  /// Reads the whole pcap or pcapng file `path`; `-` is standard input. A file that ends or breaks
  /// in the middle is read up to that point, and `loss` says so. Errors: unreadable (no such file,
  /// not a capture, a link type that cannot be read), failed (no memory, or more than
  /// `kMaxPackets`).
  static Result<Capture> load(const std::string& path);

  /// Appends a packet of link type `format().dlts[link]`. `timestamp_ns` is since 1970, below 2^63.
  /// Returns the packet's bytes, which may be written until the capture is shared. Errors: failed
  /// (no memory, or more than `kMaxPackets`).
  Result<std::byte*> append(std::uint64_t timestamp_ns, std::uint32_t wire_length,
                            std::span<const std::byte> bytes, unsigned link = 0);

  std::size_t size() const { return size_; }
  /// Returns packet `i`, which is below `size()`.
  const Packet& packet(std::size_t i) const { return index_[i >> kBlockShift][i & kBlockMask]; }

  /// Returns the nanoseconds from the first packet to the latest by `clock()`; 0 without packets.
  std::uint64_t span_ns() const { return clock_.latest_ns() - clock_.first_ns(); }
  const CaptureClock& clock() const { return clock_; }
  /// Returns the index of packet `i`'s link type in `format().dlts`.
  unsigned link(std::size_t i) const { return links_.empty() ? 0 : links_[i]; }
  /// Returns how packet `i` begins. In a capture without packets: how a packet of the first link
  /// type would.
  LinkType link_type(std::size_t i) const { return link_types_[link(i)]; }
  /// True if all packets are of the first link type and the clock shifts none of them
  /// (`CaptureClock::is_plain`).
  bool is_uniform() const { return links_.empty() && clock_.is_plain(); }
  const CaptureFormat& format() const { return format_; }
  /// Returns the sum of captured bytes.
  std::uint64_t captured_bytes() const { return captured_bytes_; }
  /// Returns the bytes allocated for packets and index.
  std::size_t memory_bytes() const { return memory_bytes_; }
  /// Returns one line about the part of the file that could not be read; empty if there is none.
  const std::string& loss() const { return loss_; }

 private:
  friend class CaptureLoader;
  // The index consists of blocks. Packets' bytes lie in chunks, in order of arrival; no packet
  // spans two chunks.
  static constexpr unsigned kBlockShift = 16;
  static constexpr std::size_t kBlockMask = (std::size_t{1} << kBlockShift) - 1;
  static constexpr std::size_t kFirstChunk = std::size_t{1} << 20;
  static constexpr std::size_t kLargestChunk = std::size_t{64} << 20;

  bool add_block();
  bool add_chunk(std::size_t at_least);
  void set_dlts(std::vector<int> dlts);
  void note_link(unsigned link);

  CaptureFormat format_;
  std::vector<LinkType> link_types_;  // same indices as `format_.dlts`
  std::vector<std::uint8_t> links_;   // each packet's index in `format_.dlts`; empty: all 0
  CaptureClock clock_;
  std::vector<std::unique_ptr<Packet[]>> index_;
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  std::byte* free_ = nullptr;  // next free byte of the last chunk; `free_bytes_` excludes the slack
  std::size_t free_bytes_ = 0;
  std::size_t next_chunk_ = kFirstChunk;
  std::size_t size_ = 0;
  std::size_t memory_bytes_ = 0;
  std::uint64_t captured_bytes_ = 0;
  std::string loss_;
};

}  // namespace millrace
