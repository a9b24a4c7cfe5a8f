// Loads, stores and locks of a table's index and of the keys in its records: plain for one thread,
// atomic for several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "millrace/detail/waiting.h"

namespace millrace::detail {

/// Plain accesses: only one thread at a time may use the table.
struct OneThread {
  static constexpr bool kShared = false;

  template <class Word>
  static Word load(const Word& word) {
    return word;
  }
  template <class Word>
  static void store(Word& word, Word value) {
    word = value;
  }
  template <class K>
  static bool equal(const K& stored, const K& key) {
    return stored == key;
  }
  template <class K>
  static void write(K& stored, const K& key) {
    stored = key;
  }
  static void lock(std::uint64_t&, std::uint64_t) {}
  static bool try_lock(std::uint64_t&, std::uint64_t) { return true; }
  static void unlock(std::uint64_t&, std::uint64_t) {}
};

/// Atomic accesses: several threads may use the table at once. `load` acquires and `store`
/// releases: a thread that loads a value sees all that was written before that value was stored.
struct ManyThreads {
  static constexpr bool kShared = true;

  template <class Word>
  static Word load(const Word& word) {
    return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
  }
  template <class Word>
  static void store(Word& word, Word value) {
    __atomic_store_n(&word, value, __ATOMIC_RELEASE);
  }
  /// Compares word by word: a thread writes a key only while the slot is not live, so the key under
  /// a live tag is whole.
  template <class K>
  static bool equal(const K& stored, const K& key) {
    std::uint64_t difference = 0;
    for (std::size_t i = 0; i < sizeof(K); i += 8)
      difference |= __atomic_load_n(word_at(stored, i), __ATOMIC_RELAXED) ^ key.word(i);
    return difference == 0;
  }
  template <class K>
  static void write(K& stored, const K& key) {
    for (std::size_t i = 0; i < sizeof(K); i += 8)
      __atomic_store_n(const_cast<Aliasing*>(word_at(stored, i)), key.word(i), __ATOMIC_RELAXED);
  }
  /// Waits until this thread has set the bit, which locks the word: only the thread that has set
  /// the bit may store the word.
  static void lock(std::uint64_t& word, std::uint64_t bit) {
    Backoff backoff;
    while (!try_lock(word, bit)) {
      while ((__atomic_load_n(&word, __ATOMIC_RELAXED) & bit) != 0) backoff.wait();
    }
  }
  static bool try_lock(std::uint64_t& word, std::uint64_t bit) {
    return (__atomic_fetch_or(&word, bit, __ATOMIC_ACQUIRE) & bit) == 0;
  }
  static void unlock(std::uint64_t& word, std::uint64_t bit) { store(word, load(word) & ~bit); }

 private:
  using Aliasing [[gnu::may_alias]] = std::uint64_t;

  template <class K>
  static const Aliasing* word_at(const K& key, std::size_t offset) {
    return reinterpret_cast<const Aliasing*>(reinterpret_cast<const std::byte*>(&key) + offset);
  }
};

}  // namespace millrace::detail
