// Ids in numbered slots, for timer wheels. A slot is a list of chunks of one cache line each, so
// that ids that fire together lie together. If an id is removed early, the last id of its slot
// takes its place.
//
// Invariants:
//  1. All chunks of a slot but the last are full; the last is not empty.
//  2. An id stands in the chunk that `chunk_of` names. That chunk names its slot, the chunk before
//     it, and the chunk before that one.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/detail/prefetch.h"
#include "millrace/memory.h"
#include "millrace/types.h"

namespace millrace {

/// Memory for the slots of several workers. The workers share the ids; at any time an id is in the
/// slots of at most one worker. Thread rule: any worker may call `take_list` and `give_back`; only
/// the worker that has a chunk or an id may use the chunk or the id's place.
class SlotMemory {
 public:
  static constexpr unsigned kIdsOfChunk = 13;
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct alignas(64) Chunk {
    std::uint32_t before;   ///< the chunk before this one in its slot, or in a free list
    std::uint32_t before2;  ///< the chunk before `before`: two chunks are prefetched at a time
    std::uint32_t slot;
    ConnId ids[kIdsOfChunk];
  };

  /// Makes memory for ids below `ids`, of which `most` at a time are in slots. Errors (failed): no
  /// memory.
  static Result<SlotMemory> create(std::size_t ids, std::size_t most, std::uint32_t slots,
                                   unsigned workers, Pages pages) {
    // One chunk of each slot may be partly filled, and each worker keeps some free chunks.
    const std::size_t of_worker = std::min<std::size_t>(slots, most) + std::size_t{3} * kHandedOver;
    const std::size_t chunks = most / kIdsOfChunk + workers * of_worker + 1;
    auto all = Memory::map(chunks * sizeof(Chunk), pages);
    if (!all) return std::unexpected(all.error());
    // There may be twice as many ids as connections, so a byte less for each id pays.
    const std::size_t bytes = chunks < kNone24 ? 3 : sizeof(std::uint32_t);
    auto places = Memory::map(ids * bytes, pages);
    if (!places) return std::unexpected(places.error());
    return SlotMemory(std::move(*all), std::move(*places), bytes,
                      static_cast<std::uint32_t>(chunks));
  }

  Chunk& chunk(std::uint32_t number) const {
    return reinterpret_cast<Chunk*>(chunks_.data())[number];
  }
  /// Returns the number of the chunk that holds `id`, which is in a slot.
  std::uint32_t chunk_of(ConnId id) const {
    std::uint32_t number = 0;
    place_bytes_ == 3 ? std::memcpy(&number, place(id), 3) : std::memcpy(&number, place(id), 4);
    return number;
  }
  void put_in_chunk(ConnId id, std::uint32_t number) const {
    place_bytes_ == 3 ? std::memcpy(place(id), &number, 3) : std::memcpy(place(id), &number, 4);
  }
  void prefetch_place(ConnId id) const { detail::prefetch(place(id)); }
  std::size_t memory_bytes() const { return chunks_.bytes() + places_.bytes(); }

  /// The largest number of chunks in a list that a worker takes or gives back. The memory never
  /// runs out of chunks.
  static constexpr unsigned kHandedOver = 32;
  struct List {
    std::uint32_t first;
    unsigned size;
  };
  List take_list() {
    lock();
    assert(free_ != kNone);
    List list{free_, 1};
    std::uint32_t last = free_;
    for (; list.size < kHandedOver && chunk(last).before != kNone; ++list.size)
      last = chunk(last).before;
    free_ = std::exchange(chunk(last).before, kNone);
    unlock();
    return list;
  }
  void give_back(std::uint32_t first, std::uint32_t last) {
    lock();
    chunk(last).before = std::exchange(free_, first);
    unlock();
  }

 private:
  static constexpr std::size_t kNone24 = std::size_t{1} << 24;
  static_assert(std::endian::native == std::endian::little);

  SlotMemory(Memory chunks, Memory places, std::size_t place_bytes, std::uint32_t count)
      : chunks_(std::move(chunks)),
        places_(std::move(places)),
        place_bytes_(place_bytes),
        locked_(new std::atomic_flag) {
    for (std::uint32_t n = 0; n < count; ++n) chunk(n).before = n + 1 < count ? n + 1 : kNone;
  }

  std::byte* place(ConnId id) const { return places_.data() + index(id) * place_bytes_; }

  void lock() {
    while (locked_->test_and_set(std::memory_order_acquire)) {
    }
  }
  void unlock() { locked_->clear(std::memory_order_release); }

  Memory chunks_;
  Memory places_;
  std::size_t place_bytes_;
  std::uint32_t free_ = 0;
  std::unique_ptr<std::atomic_flag> locked_;
};

/// The slots of one worker, used by that worker's thread.
class Slots {
 public:
  Slots(std::shared_ptr<SlotMemory> memory, std::uint32_t slots)
      : memory_(std::move(memory)), slots_(slots) {}

  bool is_empty(std::uint32_t slot) const { return slots_[slot].last == kNone; }
  /// Prefetches what `take` reads first.
  void prefetch(std::uint32_t slot) const { prefetch_chunk(slots_[slot].last); }
  /// Prefetches what `append` writes for `id`.
  void prefetch_place(ConnId id) const { memory_->prefetch_place(id); }

  /// Returns the slot of an id that is in one.
  std::uint32_t slot_of(ConnId id) const { return memory_->chunk(memory_->chunk_of(id)).slot; }

  /// Adds an id that is in no slot.
  void append(std::uint32_t slot, ConnId id) {
    Slot& s = slots_[slot];
    if (s.last == kNone || s.size == SlotMemory::kIdsOfChunk) {
      const std::uint32_t fresh = take_chunk();
      SlotMemory::Chunk& chunk = memory_->chunk(fresh);
      chunk.before = s.last;
      chunk.before2 = s.last == kNone ? kNone : memory_->chunk(s.last).before;
      chunk.slot = slot;
      s = {fresh, 0};
    }
    memory_->chunk(s.last).ids[s.size] = id;
    memory_->put_in_chunk(id, s.last);
    ++s.size;
  }

  /// Removes an id that is in a slot of this worker.
  void remove(ConnId id) {
    const std::uint32_t number = memory_->chunk_of(id);
    SlotMemory::Chunk& chunk = memory_->chunk(number);
    Slot& s = slots_[chunk.slot];
    const ConnId last = memory_->chunk(s.last).ids[s.size - 1];
    *std::ranges::find(chunk.ids, id) = last;
    memory_->put_in_chunk(last, number);
    shrink(s, 1);
  }

  /// Takes ids out of the slot until `ids` is full or the slot is empty; returns how many.
  unsigned take(std::uint32_t slot, std::span<ConnId> ids) {
    Slot& s = slots_[slot];
    unsigned taken = 0;
    while (taken < ids.size() && s.last != kNone) {
      const SlotMemory::Chunk& chunk = memory_->chunk(s.last);
      prefetch_chunk(chunk.before);
      prefetch_chunk(chunk.before2);
      const unsigned count = std::min(s.size, static_cast<unsigned>(ids.size()) - taken);
      std::copy_n(chunk.ids + (s.size - count), count, ids.begin() + taken);
      taken += count;
      shrink(s, count);
    }
    return taken;
  }

  std::size_t memory_bytes() const {
    return memory_->memory_bytes() + slots_.size() * sizeof(Slot);
  }
  Result<void> check_invariants() const {
    for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
      unsigned size = slots_[slot].size;
      if (slots_[slot].last != kNone && size == 0) return broken("1: a chunk is empty");
      for (std::uint32_t n = slots_[slot].last; n != kNone; n = memory_->chunk(n).before) {
        const SlotMemory::Chunk& chunk = memory_->chunk(n);
        if (chunk.slot != slot) return broken("2: a chunk names another slot");
        const std::uint32_t before2 =
            chunk.before == kNone ? kNone : memory_->chunk(chunk.before).before;
        if (chunk.before2 != before2) return broken("2: a chunk names another chunk before it");
        for (unsigned i = 0; i < size; ++i) {
          if (memory_->chunk_of(chunk.ids[i]) != n)
            return broken("2: an id stands in another chunk");
        }
        size = SlotMemory::kIdsOfChunk;
      }
    }
    return {};
  }

 private:
  static constexpr std::uint32_t kNone = SlotMemory::kNone;
  struct Slot {
    std::uint32_t last = kNone;  // number of the last chunk
    unsigned size = 0;           // number of ids in the last chunk
  };

  void prefetch_chunk(std::uint32_t chunk) const {
    if (chunk != kNone) detail::prefetch(&memory_->chunk(chunk));
  }

  void shrink(Slot& s, unsigned by) {
    s.size -= by;
    if (s.size > 0) return;
    const std::uint32_t before = memory_->chunk(s.last).before;
    put_chunk(s.last);
    s = {before, before == kNone ? 0 : SlotMemory::kIdsOfChunk};
  }

  std::uint32_t take_chunk() {
    if (free_ == kNone) {
      const SlotMemory::List list = memory_->take_list();
      free_ = list.first;
      free_count_ = list.size;
    }
    --free_count_;
    return std::exchange(free_, memory_->chunk(free_).before);
  }
  void put_chunk(std::uint32_t chunk) {
    memory_->chunk(chunk).before = std::exchange(free_, chunk);
    if (++free_count_ < 2 * SlotMemory::kHandedOver) return;
    std::uint32_t last = free_;
    for (unsigned i = 1; i < SlotMemory::kHandedOver; ++i) last = memory_->chunk(last).before;
    const std::uint32_t rest = memory_->chunk(last).before;
    memory_->give_back(std::exchange(free_, rest), last);
    free_count_ -= SlotMemory::kHandedOver;
  }

  static std::unexpected<Error> broken(std::string_view what) {
    return std::unexpected(Error{"slots: " + std::string(what)});
  }

  std::shared_ptr<SlotMemory> memory_;  // shared by all workers
  std::vector<Slot> slots_;
  std::uint32_t free_ = kNone;  // list of this worker's free chunks
  unsigned free_count_ = 0;
};

}  // namespace millrace
