// By how many powers of two the ends of a TCP connection scale their windows (RFC 7323, 2), so how
// far a segment may lie beyond what its receiver has.
#pragma once

#include <cstdint>

#include "core/signal.h"

namespace millrace {

/// How far beyond its sender's mark a segment may end after a gap, and what it acknowledges be from
/// the other side's mark, whatever windows are.
inline constexpr std::uint32_t kReach = 1 << 20;

/// A wider gap within the receiver's window, times the distance of what is acknowledged, may be so
/// much: who guesses both numbers is hardly more often right than within `kReach`.
inline constexpr std::uint64_t kReachOfBoth = std::uint64_t{1} << 38;

/// Of both ends, in one byte: the originator's scale, and above it the other's, each as a `Segment`
/// has it. Unknown are those of a handshake that was not seen, or is not over.
class Windows {
 public:
  constexpr Windows() = default;
  static constexpr Windows from_byte(std::uint8_t byte) { return Windows(byte); }
  static constexpr Windows offered(std::uint8_t scale) { return Windows(scale); }
  /// Windows are scaled only where both ends say so.
  constexpr Windows answered(std::uint8_t scale) const {
    if (scale == kUnscaled || originators() == kUnscaled)
      return Windows(kUnscaled << 4 | kUnscaled);
    return Windows(unsigned{scale} << 4 | originators());
  }

  constexpr std::uint8_t byte() const { return bits_; }
  /// The widest that the originator's window may be, or the other's.
  constexpr std::uint32_t widest(bool is_originators) const {
    const unsigned scale = is_originators ? originators() : bits_ >> 4;
    if (scale == kUnscaled) return UINT16_MAX;
    return std::uint32_t{UINT16_MAX}
           << (scale == kScaleUnknown || bits_ >> 4 == kScaleUnknown ? kMostScale : scale);
  }

 private:
  static constexpr unsigned kMostScale = 14;
  constexpr explicit Windows(unsigned bits) : bits_(static_cast<std::uint8_t>(bits)) {}
  constexpr unsigned originators() const { return bits_ & 15U; }

  std::uint8_t bits_ = 0;
};

}  // namespace millrace
