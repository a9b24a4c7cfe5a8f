// The vocabulary that every part of millrace shares: connection ids, coarse time, errors.
//
// Everything here is a plain value: any thread may use its own copies.
#pragma once

#if __cplusplus <= 202002L
#error "millrace needs C++23: -std=c++23"
#endif

#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>

namespace millrace {

/// Index of an entry in one table instance; `none` where there is none. Outside the instance it
/// means nothing. Whoever keeps one (a timer, a peer) treats it as a hint and compares the key.
enum class ConnId : std::uint32_t { none = 0xffffffff };

constexpr std::uint32_t index(ConnId id) { return static_cast<std::uint32_t>(id); }

/// Which entry of a connection: that of its first packet's direction, or that of the replies.
enum class Side : std::uint8_t { originator, reply };

/// Coarse time: milliseconds since start, wrapping after 49.7 days. Differences are signed, so two
/// ticks compare correctly when they are less than 24.8 days apart.
struct Tick {
  std::uint32_t ms = 0;

  /// The tick of a clock that counts milliseconds, from whenever; it wraps as said above.
  static constexpr Tick from_ms(std::uint64_t ms) { return {static_cast<std::uint32_t>(ms)}; }

  friend constexpr bool operator==(Tick, Tick) = default;
  friend constexpr Tick operator+(Tick t, std::uint32_t later_ms) { return {t.ms + later_ms}; }
  friend constexpr std::int32_t operator-(Tick a, Tick b) {
    return static_cast<std::int32_t>(a.ms - b.ms);
  }
};

/// What failed, in one line that says what would be right; and whose mistake it was, as the exit
/// status tells it.
struct Error {
  enum class Kind : std::uint8_t {
    failed = 1,      ///< the run itself failed: no memory, no disk space
    usage = 2,       ///< a command line, a configuration or an argument is wrong
    unreadable = 3,  ///< a file or device cannot be opened or read
  };
  std::string message;
  Kind kind = Kind::failed;
};

template <class T>
using Result = std::expected<T, Error>;

}  // namespace millrace
