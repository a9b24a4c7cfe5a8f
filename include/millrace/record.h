// The records of a table, one for each entry: a header that is the same in all tables, then the
// state of the function that uses the table (the load balancer, for example). The distance from one
// record to the next, the stride, is a power of two.
//
//      0                  16 / 40     20 / 44   24 / 48                stride
//      +------------------+-----------+---------+----------------------+
//      | key (IPv4/IPv6)  | last_seen | peer    | State of function    |
//      +------------------+-----------+---------+----------------------+
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <optional>
#include <string>

#include "millrace/detail/check.h"
#include "millrace/detail/prefetch.h"
#include "millrace/key.h"
#include "millrace/memory.h"
#include "millrace/types.h"

namespace millrace {

template <class K>
struct RecordHeader {
  K key;
  /// Tick of the latest packet of this direction. When the tracker reads the ticks of both entries
  /// of a connection, it raises the earlier tick to the later one.
  Tick last_seen;
  /// The entry of the opposite direction, or none. While other workers must not see the connection,
  /// the tracker stores a value here that is no entry's id (`kUnconfirmed`, conntrack/entry.h).
  ConnId peer = ConnId::none;
};
static_assert(sizeof(RecordHeader<KeyV4>) == 24 && sizeof(RecordHeader<KeyV6>) == 48);

/// Returns `peer`. The load acquires: the caller sees all that was written before by the worker
/// that set `peer`. Any thread may call it.
template <class K>
ConnId peer_of(const RecordHeader<K>& header) {
  auto& peer = const_cast<ConnId&>(header.peer);
  return std::atomic_ref(peer).load(std::memory_order_acquire);
}

/// An array of records indexed by `ConnId`. One table instance owns the array, and the table's
/// thread rule holds for it. An `id` must be below `count()`; only debug builds check that.
template <class K>
class Records {
 public:
  static constexpr std::size_t kMinStride = 32;
  static constexpr std::size_t kMaxStride = 256;

  Records() = default;

  /// Makes `count` records with `state_bytes` for the function: 0 to 232 for IPv4 keys, 0 to 208
  /// for IPv6. Errors: `state_bytes` out of that range (usage); no memory (failed).
  static Result<Records> create(std::size_t count, std::size_t state_bytes, Pages pages) {
    const std::size_t bytes = sizeof(RecordHeader<K>) + state_bytes;
    const std::size_t stride = std::bit_ceil(bytes < kMinStride ? kMinStride : bytes);
    if (stride > kMaxStride) {
      return std::unexpected(Error{"a record of " + std::to_string(bytes) +
                                       " bytes is over the maximum of 256: make the state smaller",
                                   Error::Kind::usage});
    }
    auto memory = Memory::map(count * stride, pages);
    if (!memory) return std::unexpected(memory.error());
    return Records(std::move(*memory), count, static_cast<unsigned>(std::countr_zero(stride)));
  }

  RecordHeader<K>& header(ConnId id) const { return *reinterpret_cast<RecordHeader<K>*>(at(id)); }
  /// Returns the function's state, 8-byte aligned.
  std::byte* state(ConnId id) const { return at(id) + sizeof(RecordHeader<K>); }
  void prefetch(ConnId id) const { detail::prefetch(place_of(id)); }

  std::size_t count() const { return count_; }
  std::size_t stride() const { return std::size_t{1} << shift_; }
  std::size_t memory_bytes() const { return memory_.bytes(); }
  Pages pages() const { return memory_.pages(); }

 private:
  Records(Memory memory, std::size_t count, unsigned shift)
      : memory_(std::move(memory)), count_(count), shift_(shift) {}

  std::byte* place_of(ConnId id) const {
    return memory_.data() + (std::size_t{index(id)} << shift_);
  }
  std::byte* at(ConnId id) const {
    MILLRACE_CHECK(index(id) < count_, "Records", "an id must be below count()");
    return place_of(id);
  }

  Memory memory_;
  std::size_t count_ = 0;
  unsigned shift_ = 0;
};

/// A view of the functions' states in a table's records. A state begins a fixed number of bytes
/// into the record's state, behind what the tracker keeps there, and is at least 2-byte aligned.
/// The view is valid as long as the records.
template <class K>
class States {
 public:
  explicit States(const Records<K>& records, std::size_t from = 0)
      : records_(&records), from_(from) {}

  std::byte* operator[](ConnId id) const { return records_->state(id) + from_; }
  /// Returns the originator's entry of a connection, given its reply's entry; nothing if another
  /// worker has just ended the connection.
  std::optional<ConnId> originator(ConnId reply) const {
    const ConnId id = peer_of(header(reply));
    return index(id) < records_->count() ? std::optional(id) : std::nullopt;
  }
  const RecordHeader<K>& header(ConnId id) const { return records_->header(id); }
  /// Returns a view of the states' parts from `offset` bytes on.
  States from(std::size_t offset) const { return States(*records_, from_ + offset); }

 private:
  const Records<K>* records_;
  std::size_t from_;
};

}  // namespace millrace
