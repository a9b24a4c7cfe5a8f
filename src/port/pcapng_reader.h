// Reads pcapng (draft-ietf-opsawg-pcapng) block by block: all sections, in either byte order, with
// interfaces of any link type, snapshot length and time resolution. (libpcap 1.10 stops at the
// first interface that differs from the previous one.)
//
// One thread uses a reader. The file belongs to the caller and may be a pipe. After each call the
// file is positioned behind the last block that was read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "millrace/types.h"

namespace millrace {

class PcapngReader {
 public:
  struct Packet {
    std::uint16_t link_type = 0;  ///< LINKTYPE_... as in the file
    std::size_t interface = 0;    ///< number of the interface from 0, over all sections
    /// Nanoseconds since 1970; a time before 1970 becomes 0, and a time of 2^63 or more becomes
    /// 2^63 - 1. None: the block has no time.
    std::optional<std::uint64_t> time_ns;
    std::uint32_t wire_length = 0;    ///< bytes
    std::span<const std::byte> data;  ///< valid until the next call
  };

  /// Largest block that is read, in bytes. A larger block of a section, interface or packet is an
  /// error; a larger block of another kind is skipped.
  static constexpr std::uint32_t kLargestBlock = std::uint32_t{1} << 24;

  /// `file` must be positioned at the beginning of a section, and outlive the reader.
  explicit PcapngReader(std::FILE* file) : file_(file) {}

  /// Reads on to the next packet. Returns false at the end of the file. Errors: unreadable (the
  /// file breaks here; the message does not name the file). Must not be called again after false or
  /// an error.
  Result<bool> next(Packet& packet);

  /// True once the first section's header has been read: the file is pcapng.
  bool has_begun() const { return has_begun_; }
  /// Returns the largest snapshot length of the interfaces so far, in bytes; 0: no interface yet,
  /// or one has no limit.
  std::uint32_t snap_length() const { return unlimited_ ? 0 : snap_length_; }
  /// Returns the link type of the first interface; none until it has been read.
  std::optional<std::uint16_t> first_link_type() const { return first_link_type_; }

 private:
  struct Interface {
    std::uint16_t link_type = 0;
    std::uint32_t snap_length = 0;  // 0: no limit
    std::uint8_t resolution = 6;    // if_tsresol
    std::int64_t offset_s = 0;      // if_tsoffset
  };

  std::uint16_t u16(std::size_t at) const;
  std::uint32_t u32(std::size_t at) const;
  std::uint64_t u64(std::size_t at) const;

  Result<bool> read_block();
  Result<void> read_exactly(std::size_t bytes);
  Result<void> pass_over(std::uint32_t bytes);
  Result<void> read_section();
  Result<void> read_interface();
  Result<void> read_option(Interface& interface, unsigned code, std::size_t at, std::size_t length);
  Result<void> read_packet(Packet& packet) const;
  Result<void> read_simple(Packet& packet) const;

  std::FILE* file_;
  bool swapped_ = false;  // the section's byte order is not this machine's
  bool has_begun_ = false;
  std::uint32_t type_ = 0;  // type of the current block
  std::vector<std::byte> body_;
  std::vector<Interface> interfaces_;  // interfaces of this section
  std::size_t interfaces_before_ = 0;  // interfaces of earlier sections
  std::uint32_t snap_length_ = 0;
  bool unlimited_ = false;
  std::optional<std::uint16_t> first_link_type_;
};

}  // namespace millrace
