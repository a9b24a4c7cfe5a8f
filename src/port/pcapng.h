// Writes pcapng (draft-ietf-opsawg-pcapng): several interfaces in one file, each with a link type
// of its own, and comments on packets. libpcap can write neither. Blocks are made one by one, for a
// stream.
//
// Plain functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace millrace {

/// Returns the beginning of a file: a section header, and descriptions of these interfaces, all
/// Ethernet, numbered from 0. Times are in nanoseconds, `snap_length` in bytes.
std::string pcapng_beginning(std::span<const std::string> interfaces, std::uint32_t snap_length);

/// Returns the beginning of a file for interfaces without names, of these link types
/// (LINKTYPE_...).
std::string pcapng_beginning(std::span<const std::uint16_t> link_types, std::uint32_t snap_length);

struct PcapngPacket {
  std::uint32_t interface = 0;
  std::uint64_t time_ns = 0;
  std::uint32_t wire_length = 0;
  std::span<const std::byte> data;
  std::string_view comment;  ///< empty: none
};
std::string pcapng_packet(const PcapngPacket& packet);
/// Returns a block to end a file with, which reports how many packets of all interfaces were lost
/// for want of room.
std::string pcapng_lost(std::uint64_t packets);

}  // namespace millrace
