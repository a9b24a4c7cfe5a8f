// A ring of events of one kind, such as connections that a function has refused. One worker writes;
// any number of readers read, each at its own pace.
//
// 1. The worker never waits for a reader: it overwrites the oldest event, whether or not anybody
//    has read it. It makes no system call and allocates nothing.
// 2. Events are numbered from 1 on, those included that the worker counts and does not write
//    (`leave_out`). So a gap between the numbers of two events is the number of events between them
//    that a reader has missed, for whichever reason.
// 3. A reader never sees half an event: each place has a version, which is 0 while the worker
//    writes there (a sequence lock; H. Boehm, "Can seqlocks get along with programming language
//    memory models?", 2012).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>
#include <vector>

namespace millrace {

template <class Event>
class EventRing {
  static_assert(std::is_trivially_copyable_v<Event>);

 public:
  /// Number of the latest events that a reader finds.
  static constexpr std::size_t kRoom = 4095;

  struct Numbered {
    std::uint64_t number = 0;
    Event event;
  };

  /// @name Called by the worker
  /// @{
  void write(const Event& event) {
    const std::uint64_t at = written_.load(std::memory_order_relaxed);
    const Numbered numbered{count(), event};
    Words words{};
    std::memcpy(words.data(), &numbered, sizeof(numbered));
    Place& place = places_[at % kPlaces];
    place.version.store(0, std::memory_order_relaxed);
    // A reader that sees one of these words sees the version 0 or a later one.
    for (std::size_t i = 0; i < kWords; ++i)
      place.words[i].store(words[i], std::memory_order_release);
    place.version.store(at + 1, std::memory_order_release);
    written_.store(at + 1, std::memory_order_release);
  }
  /// Counts an event that is not written.
  void leave_out() { count(); }
  /// @}

  /// @name Called by any thread
  /// @{
  /// The place of a reader: `at` events were written before the next one that the reader has not
  /// seen; `number` is that of the last event before.
  struct Cursor {
    std::uint64_t at = 0;
    std::uint64_t number = 0;
  };
  /// Returns a place behind the last event.
  Cursor end() const {
    for (;;) {
      const std::uint64_t at = written_.load(std::memory_order_acquire);
      const std::uint64_t number = number_.load(std::memory_order_relaxed);
      if (written_.load(std::memory_order_acquire) == at) return {at, number};
    }
  }
  /// Returns the next event, and moves the cursor behind it; none if there is none yet. Events that
  /// have been overwritten are skipped. `missed` becomes the number of events skipped or left out.
  std::optional<Event> next(Cursor& cursor, std::uint64_t& missed) const {
    for (;;) {
      const std::uint64_t end = written_.load(std::memory_order_acquire);
      if (cursor.at >= end) return std::nullopt;
      if (end > kRoom) cursor.at = std::max(cursor.at, end - kRoom);
      const Place& place = places_[cursor.at % kPlaces];
      if (place.version.load(std::memory_order_acquire) != cursor.at + 1) continue;
      Words words;
      for (std::size_t i = 0; i < kWords; ++i)
        words[i] = place.words[i].load(std::memory_order_acquire);
      if (place.version.load(std::memory_order_relaxed) != cursor.at + 1) continue;
      Numbered numbered;
      std::memcpy(static_cast<void*>(&numbered), words.data(), sizeof(numbered));
      // `end` may have counted an event that was about to be written.
      missed = numbered.number > cursor.number ? numbered.number - cursor.number - 1 : 0;
      cursor = {cursor.at + 1, numbered.number};
      return numbered.event;
    }
  }
  /// @}

 private:
  // One place more than a reader looks at: the worker writes there.
  static constexpr std::size_t kPlaces = kRoom + 1;
  static constexpr std::size_t kWords = (sizeof(Numbered) + 7) / 8;
  using Words = std::array<std::uint64_t, kWords>;

  struct Place {
    std::atomic<std::uint64_t> version = 0;  // events written until and with this one
    std::array<std::atomic<std::uint64_t>, kWords> words{};
  };

  std::uint64_t count() {
    const std::uint64_t number = number_.load(std::memory_order_relaxed) + 1;
    number_.store(number, std::memory_order_relaxed);
    return number;
  }

  alignas(64) std::atomic<std::uint64_t> written_ = 0;
  std::atomic<std::uint64_t> number_ = 0;  // of the last event, written or not
  std::vector<Place> places_ = std::vector<Place>(kPlaces);
};

}  // namespace millrace
