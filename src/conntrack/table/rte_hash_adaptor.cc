#include "conntrack/table/rte_hash_adaptor.h"

#include <rte_config.h>  // before DPDK's other headers

#include <rte_errno.h>
#include <rte_hash.h>
#include <rte_malloc.h>
#include <rte_ring_core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>

#include "core/dpdk_eal.h"

namespace millrace {

static_assert(RteHashFlags::kExtendable == RTE_HASH_EXTRA_FLAGS_EXT_TABLE);
static_assert(RteHashFlags::kReadersAndWriter == RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY);
static_assert(RteHashFlags::kLockFreeReaders == RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF);
static_assert(RteHashFlags::kReleaseLater == RTE_HASH_EXTRA_FLAGS_NO_FREE_ON_DEL);

namespace {

constexpr std::size_t kHugeBytes = std::size_t{2} << 20;
constexpr std::size_t kBucketBytes = 64;
/// Room for the table's own structures, and for the heap's header of each piece.
constexpr std::size_t kSundryBytes = 8192;

/// Returns the bytes of a key and the 8 bytes of data that rte_hash keeps beside it.
constexpr std::size_t key_entry_bytes(std::size_t key_bytes) {
  return (8 + key_bytes + 15) / 16 * 16;
}

/// Returns the same as rte_ring_get_memsize_elem for elements of 4 bytes. That function cannot be
/// linked from C++ with DPDK 24.11, as its header declares it without extern "C".
std::size_t ring_bytes(std::size_t places) {
  const std::size_t bytes = sizeof(rte_ring) + places * sizeof(std::uint32_t);
  return (bytes + RTE_CACHE_LINE_MASK) & ~std::size_t{RTE_CACHE_LINE_MASK};
}

/// Returns the bytes that rte_hash_create of DPDK 22.11 allocates. With less memory, that function
/// returns an error.
std::size_t bytes_needed(std::size_t slots, std::size_t key_bytes, std::uint8_t flags) {
  const std::size_t buckets = slots / RteHash::kBucketSlots;
  std::size_t bytes = kSundryBytes + ring_bytes(slots) + slots * key_entry_bytes(key_bytes);
  bytes += buckets * kBucketBytes;
  if ((flags & RteHashFlags::kExtendable) != 0)
    bytes += buckets * kBucketBytes + ring_bytes(2 * buckets);
  return bytes;
}

/// Returns the id of a position of rte_hash; none for an error, which is negative.
ConnId id_of(std::int32_t position) {
  return position < 0 ? ConnId::none : ConnId{static_cast<std::uint32_t>(position)};
}

std::string fresh_name() {
  static std::atomic<unsigned> count{0};
  return "millrace-" + std::to_string(count++);
}

std::unexpected<Error> refused(const std::string& what) {
  return std::unexpected(Error{"DPDK refuses " + what + ": " + rte_strerror(rte_errno)});
}

}  // namespace

std::size_t RteHash::max_slots(std::size_t key_bytes) {
  return std::min<std::size_t>(RTE_HASH_ENTRIES_MAX,
                               std::bit_floor((std::size_t{1} << 32) / key_entry_bytes(key_bytes)));
}

Result<RteHash> RteHash::create(std::size_t slots, std::size_t key_bytes, std::uint8_t flags,
                                Pages pages) {
  if (auto started = start_dpdk_eal(); !started) return std::unexpected(started.error());
  auto memory = Memory::map(bytes_needed(slots, key_bytes, flags), pages);
  if (!memory) return std::unexpected(memory.error());
  RteHash hash(fresh_name(), std::move(*memory), slots);
  if (!hash.own_heap()) {
    return std::unexpected(
        Error{"DPDK has 32 heaps, each of its hash tables takes one, and none is left: use fewer "
              "workers, or a sharing scheme with one table for all, or another table"});
  }
  // Asks for one entry less than there are slots, which halves rte_hash's ring of free positions.
  const rte_hash_parameters parameters{
      .name = hash.heap_.c_str(),
      .entries = static_cast<std::uint32_t>(slots - 1),
      .reserved = 0,
      .key_len = static_cast<std::uint32_t>(key_bytes),
      .hash_func = nullptr,
      .hash_func_init_val = 0,
      .socket_id = rte_malloc_heap_get_socket(hash.heap_.c_str()),
      .extra_flag = flags,
  };
  hash.table_ = rte_hash_create(&parameters);
  if (hash.table_ == nullptr) return refused("a hash of " + std::to_string(slots) + " slots");
  return hash;
}

/// Makes a DPDK heap of `memory_`. False if DPDK refuses.
bool RteHash::own_heap() {
  if (rte_malloc_heap_create(heap_.c_str()) != 0) return false;
  const std::size_t page = memory_.bytes() % kHugeBytes == 0 ? kHugeBytes : 4096;
  return rte_malloc_heap_memory_add(heap_.c_str(), memory_.data(), memory_.bytes(), nullptr,
                                    static_cast<unsigned>(memory_.bytes() / page), page) == 0;
}

RteHash::~RteHash() {
  if (memory_.data() == nullptr) return;  // moved from
  rte_hash_free(table_);
  rte_malloc_heap_memory_remove(heap_.c_str(), memory_.data(), memory_.bytes());
  rte_malloc_heap_destroy(heap_.c_str());
}

void RteHash::find(const void* keys, std::size_t stride, std::span<const Hash> hashes,
                   std::span<ConnId> ids) const {
  constexpr std::size_t kMost = RTE_HASH_LOOKUP_BULK_MAX;
  std::array<const void*, kMost> key;
  std::array<hash_sig_t, kMost> signatures;
  std::array<std::int32_t, kMost> positions;
  const auto* at = static_cast<const std::byte*>(keys);
  for (std::size_t done = 0; done < hashes.size(); done += kMost) {
    const std::size_t count = std::min(kMost, hashes.size() - done);
    for (std::size_t i = 0; i < count; ++i, at += stride) {
      key[i] = at;
      signatures[i] = signature(hashes[done + i]);
    }
    rte_hash_lookup_with_hash_bulk(table_, key.data(), signatures.data(),
                                   static_cast<std::uint32_t>(count), positions.data());
    for (std::size_t i = 0; i < count; ++i) ids[done + i] = id_of(positions[i]);
  }
}

ConnId RteHash::add(const void* key, Hash hash) {
  return id_of(rte_hash_add_key_with_hash(table_, key, signature(hash)));
}

ConnId RteHash::remove(const void* key, Hash hash) {
  return id_of(rte_hash_del_key_with_hash(table_, key, signature(hash)));
}

void RteHash::release(ConnId id) {
  rte_hash_free_key_with_position(table_, static_cast<std::int32_t>(index(id)));
}

void RteHash::advance(Step& step) const {
  const void* key = nullptr;
  void* data = nullptr;
  step.id = id_of(rte_hash_iterate(table_, &key, &data, &step.next));
}

std::size_t RteHash::taken() const { return static_cast<std::size_t>(rte_hash_count(table_)); }

}  // namespace millrace
