#include "port/pcapng_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

namespace millrace {
namespace {

__extension__ using Int128 = __int128;
__extension__ using Uint128 = unsigned __int128;

// Blocks.
constexpr std::uint32_t kSectionBlock = 0x0a0d0d0a;
constexpr std::uint32_t kInterfaceBlock = 1;
constexpr std::uint32_t kOldPacketBlock = 2;
constexpr std::uint32_t kSimplePacketBlock = 3;
constexpr std::uint32_t kEnhancedPacketBlock = 6;
// In a section's header.
constexpr std::uint32_t kByteOrder = 0x1a2b3c4d;
// Options of an interface.
constexpr unsigned kEndOfOptions = 0;
constexpr unsigned kIfResolution = 9;
constexpr unsigned kIfOffset = 14;

constexpr std::size_t kAround = 12;  // type, length, and length again

std::unexpected<Error> broken(std::string message) {
  return std::unexpected(Error{std::move(message), Error::Kind::unreadable});
}

bool is_read(std::uint32_t type) {
  return type == kSectionBlock || type == kInterfaceBlock || type == kOldPacketBlock ||
         type == kSimplePacketBlock || type == kEnhancedPacketBlock;
}

/// Converts a time in the units that if_tsresol names to nanoseconds since 1970.
std::uint64_t nanoseconds(std::uint64_t units, std::uint8_t resolution, std::int64_t offset_s) {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  const unsigned exponent = resolution & 0x7f;
  Uint128 ns = units;
  if ((resolution & 0x80) != 0) {
    ns = ns * kSecond >> exponent;
  } else if (exponent <= 9) {
    for (unsigned i = exponent; i < 9; ++i) ns *= 10;
  } else {
    for (unsigned i = 9; i < exponent && ns > 0; ++i) ns /= 10;
  }
  const Int128 at = static_cast<Int128>(ns) + static_cast<Int128>(offset_s) * kSecond;
  return static_cast<std::uint64_t>(std::clamp<Int128>(at, 0, INT64_MAX));
}

template <class T>
T number_at(std::span<const std::byte> bytes, std::size_t at, bool swapped) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return swapped ? std::byteswap(value) : value;
}

}  // namespace

std::uint16_t PcapngReader::u16(std::size_t at) const {
  return number_at<std::uint16_t>(body_, at, swapped_);
}
std::uint32_t PcapngReader::u32(std::size_t at) const {
  return number_at<std::uint32_t>(body_, at, swapped_);
}
std::uint64_t PcapngReader::u64(std::size_t at) const {
  return number_at<std::uint64_t>(body_, at, swapped_);
}

Result<bool> PcapngReader::next(Packet& packet) {
  for (;;) {
    const auto more = read_block();
    if (!more || !*more) return more;
    Result<void> ok;
    switch (type_) {
      case kSectionBlock:
        ok = read_section();
        break;
      case kInterfaceBlock:
        ok = read_interface();
        break;
      case kSimplePacketBlock:
        ok = read_simple(packet);
        break;
      case kOldPacketBlock:
      case kEnhancedPacketBlock:
        ok = read_packet(packet);
        break;
      default:
        continue;
    }
    if (!ok) return std::unexpected(ok.error());
    if (type_ != kSectionBlock && type_ != kInterfaceBlock) return true;
  }
}

/// Reads the next block: its type, and its body if the reader needs it. False: the end of the file.
Result<bool> PcapngReader::read_block() {
  std::array<std::byte, 12> head;
  const std::size_t got = std::fread(head.data(), 1, 8, file_);
  if (got == 0 && std::ferror(file_) == 0) return false;
  if (got < 8) return broken(std::ferror(file_) != 0 ? std::strerror(errno) : "cut short");
  type_ = number_at<std::uint32_t>(head, 0, swapped_);
  if (!has_begun_ && type_ != kSectionBlock)
    return broken("the file does not begin with a section header");
  if (type_ == kSectionBlock) {  // a section states its own byte order
    if (std::fread(head.data() + 8, 1, 4, file_) < 4) return broken("cut short");
    const auto order = number_at<std::uint32_t>(head, 8, false);
    if (order != kByteOrder && order != std::byteswap(kByteOrder))
      return broken("a section header with a wrong byte-order magic");
    swapped_ = order != kByteOrder;
  }
  const auto length = number_at<std::uint32_t>(head, 4, swapped_);
  const std::uint32_t already = type_ == kSectionBlock ? 4 : 0;
  if (length < kAround + already || length % 4 != 0)
    return broken(fmt::format("a block with the impossible length {}", length));
  const std::uint32_t rest = length - static_cast<std::uint32_t>(kAround) - already;
  if (is_read(type_) && length > kLargestBlock)
    return broken(
        fmt::format("a block of {} bytes; at most {} can be read", length, kLargestBlock));
  if (auto ok = is_read(type_) ? read_exactly(rest) : pass_over(rest); !ok)
    return std::unexpected(ok.error());
  std::array<std::byte, 4> again;
  if (std::fread(again.data(), 1, 4, file_) < 4) return broken("cut short");
  if (number_at<std::uint32_t>(again, 0, swapped_) != length)
    return broken("a block whose two lengths differ");
  return true;
}

Result<void> PcapngReader::read_exactly(std::size_t bytes) {
  body_.resize(bytes);
  if (std::fread(body_.data(), 1, bytes, file_) == bytes) return {};
  return broken(std::ferror(file_) != 0 ? std::strerror(errno) : "cut short");
}

Result<void> PcapngReader::pass_over(std::uint32_t bytes) {
  constexpr std::uint32_t kAtOnce = std::uint32_t{1} << 16;
  for (std::uint32_t left = bytes; left > 0;) {
    const std::uint32_t now = std::min(left, kAtOnce);
    if (auto ok = read_exactly(now); !ok) return ok;
    left -= now;
  }
  return {};
}

/// Reads a section header; `body_` begins behind the byte-order magic.
Result<void> PcapngReader::read_section() {
  if (body_.size() < 12) return broken("a section's header that is too short");
  if (u16(0) != 1)
    return broken(fmt::format("pcapng version {}.{}: only version 1 can be read", u16(0), u16(2)));
  has_begun_ = true;
  interfaces_before_ += interfaces_.size();
  interfaces_.clear();
  return {};
}

Result<void> PcapngReader::read_interface() {
  constexpr std::size_t kFixed = 8;
  if (body_.size() < kFixed) return broken("an interface's description that is too short");
  Interface interface{.link_type = u16(0), .snap_length = u32(4)};
  for (std::size_t at = kFixed; at + 4 <= body_.size();) {
    const unsigned code = u16(at);
    const std::size_t length = u16(at + 2);
    at += 4;
    if (code == kEndOfOptions) break;
    if (length > body_.size() - at) return broken("an option that is longer than its block");
    if (auto ok = read_option(interface, code, at, length); !ok) return ok;
    at += (length + 3) / 4 * 4;
  }
  unlimited_ |= interface.snap_length == 0;
  snap_length_ = std::max(snap_length_, interface.snap_length);
  if (!first_link_type_) first_link_type_ = interface.link_type;
  interfaces_.push_back(interface);
  return {};
}

Result<void> PcapngReader::read_option(Interface& interface, unsigned code, std::size_t at,
                                       std::size_t length) {
  if (code == kIfResolution) {
    if (length != 1) return broken(fmt::format("a time resolution of {} bytes, not 1", length));
    interface.resolution = static_cast<std::uint8_t>(body_[at]);
  } else if (code == kIfOffset) {
    if (length != 8) return broken(fmt::format("a time offset of {} bytes, not 8", length));
    interface.offset_s = static_cast<std::int64_t>(u64(at));
  }
  return {};
}

Result<void> PcapngReader::read_packet(Packet& packet) const {
  constexpr std::size_t kFixed = 20;
  if (body_.size() < kFixed) return broken("a packet's block that is too short");
  const std::size_t number = type_ == kOldPacketBlock ? u16(0) : u32(0);
  if (number >= interfaces_.size())
    return broken(fmt::format("a packet of interface {}, which no block describes", number));
  const Interface& interface = interfaces_[number];
  const std::uint32_t captured = u32(12);
  if (captured > body_.size() - kFixed)
    return broken(fmt::format("a packet of {} bytes, more than its block has", captured));
  const std::uint64_t units = std::uint64_t{u32(4)} << 32 | u32(8);
  packet = {.link_type = interface.link_type,
            .interface = interfaces_before_ + number,
            .time_ns = nanoseconds(units, interface.resolution, interface.offset_s),
            .wire_length = u32(16),
            .data = std::span(body_).subspan(kFixed, captured)};
  return {};
}

/// Reads a simple packet block, which has neither a time nor the number of captured bytes.
Result<void> PcapngReader::read_simple(Packet& packet) const {
  constexpr std::size_t kFixed = 4;
  if (body_.size() < kFixed) return broken("a packet's block that is too short");
  if (interfaces_.empty()) return broken("a packet of interface 0, which no block describes");
  const Interface& interface = interfaces_.front();
  const std::uint32_t wire = u32(0);
  const std::size_t limit = interface.snap_length == 0 ? SIZE_MAX : interface.snap_length;
  const std::size_t captured = std::min<std::size_t>(wire, limit);
  if (captured > body_.size() - kFixed)
    return broken(fmt::format("a packet of {} bytes, more than its block has", captured));
  packet = {.link_type = interface.link_type,
            .interface = interfaces_before_,
            .time_ns = std::nullopt,
            .wire_length = wire,
            .data = std::span(body_).subspan(kFixed, captured)};
  return {};
}

}  // namespace millrace
