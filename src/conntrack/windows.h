// Window scales of a TCP connection (RFC 7323, 2). They bound how far a segment may lie beyond the
// data that its receiver has.
#pragma once

#include <cstdint>

#include "core/signal.h"

namespace millrace {

/// Bound in bytes for the gap between a sender's mark and the end of its segment, and for the
/// distance between the acknowledged number and the opposite side's mark, however small the windows
/// are.
inline constexpr std::uint32_t kReach = 1 << 20;

/// Bound for gap times (2 distance + 1), if the gap or the distance exceeds `kReach` and the gap is
/// within the receiver's window. An attacker that guesses both numbers succeeds hardly more often
/// than with `kReach` as the bound.
inline constexpr std::uint64_t kReachOfBoth = std::uint64_t{1} << 38;
/// The same bound if packets are checked. A mark that stays behind then costs packets of real ends,
/// so it must also follow a sender that loses 64 KiB at once while 128 MiB are under way to it. Of
/// random pairs of numbers, one in 2^17 or fewer moves a mark.
inline constexpr std::uint64_t kReachOfBothChecked = std::uint64_t{1} << 44;

/// Bytes of a connection after which a side's mark and what the opposite side acknowledges are
/// compared at the latest, if packets are checked.
inline constexpr std::uint32_t kSettlingBytes = std::uint32_t{1} << 28;

/// The window scales of both ends in one byte: the originator's in the lower half, the replying
/// side's in the upper half, each as in `Segment`. A side's scale is unknown until that side's SYN
/// was seen.
class Windows {
 public:
  constexpr Windows() = default;
  static constexpr Windows from_byte(std::uint8_t byte) { return Windows(byte); }
  /// Returns the scales after a SYN of the originator.
  static constexpr Windows offered(std::uint8_t scale) { return Windows(scale); }
  /// Returns the scales after the SYN and ACK. Windows are scaled only if both ends offer it. A SYN
  /// and ACK offers it only if a SYN did (RFC 7323, 2.2): if the latest SYN did not, it answers an
  /// earlier one.
  constexpr Windows answered(std::uint8_t scale) const {
    if (scale == kUnscaled) return Windows(kUnscaled << 4 | kUnscaled);
    const unsigned other = originators() == kUnscaled ? kScaleUnknown : originators();
    return Windows(unsigned{scale} << 4 | other);
  }

  constexpr std::uint8_t byte() const { return bits_; }
  /// True if both scales are known: both SYNs were seen.
  constexpr bool are_known() const {
    return originators() != kScaleUnknown && bits_ >> 4 != kScaleUnknown;
  }
  /// Returns the widest window in bytes that the originator (`is_originators`), or else the
  /// replying side, may have: 65,535 if that side does not scale windows; scaled by 14, the most
  /// that is possible, while that side's or the replying side's scale is unknown.
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
