// Data that a tracker keeps for shards that have a copy at another server (src/replicate): for each
// connection its shard, and what the two copies know of it; for each shard whether its connections
// age here. One worker's.
//
// The slave of a shard does not let connections age, and none gives way to another: all count as
// seen just now. When the slave becomes the master, they count as seen then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "millrace/memory.h"
#include "millrace/types.h"

namespace millrace {

class CopiedShards {
 public:
  struct Mark {
    std::uint16_t shard = 0;
    bool is_queued : 1 = false;  ///< it is to be told
    bool is_told : 1 = false;    ///< it has been told, so its end must be
    /// The other copy has had it: it has told it, or acknowledged it.
    bool is_with_other : 1 = false;
    /// Number of the time that the other copy has told everything and this connection, modulo 256;
    /// 0: it has not told it.
    std::uint8_t heard = 0;
  };
  static_assert(std::is_trivially_copyable_v<Mark> && sizeof(Mark) == 4);

  /// Makes marks for `ids` ids. Errors (failed): no memory.
  static Result<CopiedShards> create(std::size_t ids, unsigned shards, Pages pages) {
    auto memory = Memory::map(ids * sizeof(Mark), pages);
    if (!memory) return std::unexpected(memory.error());
    return CopiedShards(std::move(*memory), shards);
  }

  Mark& mark(ConnId id) const { return reinterpret_cast<Mark*>(memory_.data())[index(id)]; }
  unsigned shard_of(ConnId id) const { return mark(id).shard; }
  /// Returns the number of the shard's connections.
  std::uint32_t count(unsigned shard) const { return shards_[shard].count; }

  void born(ConnId id, unsigned shard) {
    mark(id) = {.shard = static_cast<std::uint16_t>(shard)};
    ++shards_[shard].count;
  }
  void gone(ConnId id) { --shards_[shard_of(id)].count; }

  /// From now on the shard's connections do not age here, ...
  void keep(unsigned shard) { shards_[shard].age = Age::kept; }
  /// ... or do so as if all had been seen at `now`.
  void let_age(unsigned shard, Tick now) {
    if (shards_[shard].age == Age::kept) shards_[shard] = {shards_[shard].count, Age::since, now};
  }
  /// True if the connection neither ages nor gives way to another.
  bool is_kept(ConnId id) const { return shards_[shard_of(id)].age == Age::kept; }

  /// To be called before the deadlines at that tick are read, once an hour at least.
  void note_time(Tick now) {
    if (now - looked_ > kLookAgain) {
      looked_ = now;
      forget_old(now);
    }
    now_ = now;
  }
  /// Returns the tick at which a connection counts as seen whose last packet came at `seen`.
  Tick last_seen(ConnId id, Tick seen) const {
    const Shard& shard = shards_[shard_of(id)];
    if (shard.age == Age::seen) [[likely]]
      return seen;
    const Tick floor = shard.age == Age::kept ? now_ : shard.since;
    return floor - seen > 0 ? floor : seen;
  }
  std::size_t memory_bytes() const { return memory_.bytes() + shards_.size() * sizeof(Shard); }

 private:
  static constexpr std::int32_t kLookAgain = 1'000'000;
  /// No timeout is so long (23 days), and ticks can be compared that are this far apart.
  static constexpr std::int32_t kLongAgo = 2'010'000'000;
  enum class Age : std::uint8_t { seen, since, kept };
  struct Shard {
    std::uint32_t count = 0;
    Age age = Age::seen;
    Tick since{};
  };

  CopiedShards(Memory memory, unsigned shards) : memory_(std::move(memory)), shards_(shards) {}

  void forget_old(Tick now) {
    for (Shard& shard : shards_) {
      if (shard.age == Age::since && now - shard.since > kLongAgo) shard.age = Age::seen;
    }
  }

  Memory memory_;
  std::vector<Shard> shards_;
  Tick now_{};
  Tick looked_{};  // when `forget_old` was last called
};

}  // namespace millrace
