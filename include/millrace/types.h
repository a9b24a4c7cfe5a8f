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

/// Index of an entry in one table instance, or `none`. An id means nothing outside its instance.
/// After its entry has ended, an id is given out again: code that keeps an id must learn of that
/// end, or compare the record's key.
enum class ConnId : std::uint32_t { none = 0xffffffff };

constexpr std::uint32_t index(ConnId id) { return static_cast<std::uint32_t>(id); }

/// One of a connection's two entries: that of its first packet's direction, or that of the replies.
enum class Side : std::uint8_t { originator, reply };

/// Coarse time: milliseconds since some start, wrapping after 49.7 days. Differences are signed, so
/// two ticks compare correctly if they are less than 24.8 days apart.
struct Tick {
  std::uint32_t ms = 0;

  /// Returns the tick of a millisecond clock: the low 32 bits of `ms`.
  static constexpr Tick from_ms(std::uint64_t ms) { return {static_cast<std::uint32_t>(ms)}; }

  friend constexpr bool operator==(Tick, Tick) = default;
  friend constexpr Tick operator+(Tick t, std::uint32_t later_ms) { return {t.ms + later_ms}; }
  friend constexpr std::int32_t operator-(Tick a, Tick b) {
    return static_cast<std::int32_t>(a.ms - b.ms);
  }
};

/// An error: one line that says what failed and what would be right, and the kind of mistake. The
/// kinds are the exit statuses of the programs.
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
