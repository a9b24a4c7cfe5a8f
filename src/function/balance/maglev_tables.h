// The Maglev tables of a load balancer: made when a service uses them, and shared by services whose
// members are equal.
//
// Making a table takes some milliseconds, in which a worker should serve packets. So threads of
// their own make tables, and a worker that wants one gets none until it is made.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "function/balance/maglev.h"

namespace millrace {

/// A table that may not be made yet. Any thread may read it.
class MaglevTable {
 public:
  using Members = std::vector<Maglev::Member>;

  explicit MaglevTable(Members members) : members_(std::move(members)) {}

  const Members& members() const { return members_; }
  /// Null: it is not made.
  const Maglev* made() const { return made_.load(std::memory_order_acquire); }

 private:
  friend class MaglevTables;

  Members members_;
  std::once_flag once_;
  Maglev table_;
  std::atomic<const Maglev*> made_ = nullptr;
  std::atomic<bool> is_wanted_ = false;
  // While it waits to be made:
  std::shared_ptr<MaglevTable> self_;
  MaglevTable* next_ = nullptr;
};

class MaglevTables {
 public:
  /// `of` makes tables at once as long as all have so many entries together, which takes some
  /// hundred milliseconds: so with few services every table is there from the start.
  static constexpr std::size_t kAtOnceEntries = std::size_t{64} * Maglev::kDefaultSize;

  /// Tables of `size` entries (as `Maglev::build`), made by so many threads; 0: by the caller of
  /// `want`.
  MaglevTables(std::uint32_t size, unsigned threads);
  ~MaglevTables();
  MaglevTables(const MaglevTables&) = delete;
  MaglevTables& operator=(const MaglevTables&) = delete;

  /// Returns the table of these members, which may not be made yet. By one thread at a time.
  std::shared_ptr<MaglevTable> of(MaglevTable::Members members);
  /// Returns the Maglev table; null while it is being made, which the first call causes. Any
  /// thread; no lock where threads make tables, and only the first call makes a system call.
  const Maglev* want(const std::shared_ptr<MaglevTable>& table);
  /// Returns the Maglev table, which the calling thread makes, or waits for, if need be. Any
  /// thread.
  const Maglev* make(MaglevTable& table) const;

  struct Statistics {
    std::size_t tables = 0;        ///< in use
    std::size_t made = 0;          ///< of these
    std::size_t memory_bytes = 0;  ///< entries of those that are made
  };
  /// Not to be called while another thread calls `of`.
  Statistics statistics() const;

  std::uint32_t size() const { return size_; }

 private:
  void make_wanted();
  std::shared_ptr<MaglevTable> take_wanted();

  struct HashOf {
    std::size_t operator()(const MaglevTable::Members& members) const;
  };

  std::uint32_t size_;
  std::unordered_map<MaglevTable::Members, std::weak_ptr<MaglevTable>, HashOf> all_;
  std::size_t swept_at_ = 1;  ///< how many `all_` has when those that are gone are forgotten
  std::atomic<MaglevTable*> wanted_ = nullptr;   ///< a stack; threads take from it one at a time
  std::atomic<std::uint32_t> wanted_times_ = 0;  ///< what threads wait for
  std::mutex taking_;
  std::atomic<bool> is_ending_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace millrace
