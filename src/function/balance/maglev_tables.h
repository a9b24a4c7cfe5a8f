// The Maglev tables of a load balancer. Services with equal members share a table. The first tables
// are made at once (`kAtOnceEntries`), each later one when a service first uses it.
//
// Making a table takes some milliseconds, in which a worker should serve packets. So in a live run
// other threads make the later tables, and a worker that wants a table gets none until the table is
// made.
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

/// A table that is made, or will be made later. Any thread may read it.
class MaglevTable {
 public:
  using Members = std::vector<Maglev::Member>;

  explicit MaglevTable(Members members) : members_(std::move(members)) {}

  const Members& members() const { return members_; }
  /// Returns the table; null: it is not made yet.
  const Maglev* made() const { return made_.load(std::memory_order_acquire); }

 private:
  friend class MaglevTables;

  Members members_;
  std::once_flag once_;
  Maglev table_;
  std::atomic<const Maglev*> made_ = nullptr;
  std::atomic<bool> is_wanted_ = false;
  // Valid while the table waits in the list of wanted tables:
  std::shared_ptr<MaglevTable> self_;
  MaglevTable* next_ = nullptr;
};

class MaglevTables {
 public:
  /// `of` makes tables at once as long as all tables together have at most `kAtOnceEntries`
  /// entries. Making that many takes about 0.13 s. So with few services every table is
  /// made from the start.
  static constexpr std::size_t kAtOnceEntries = std::size_t{64} * Maglev::kDefaultSize;

  /// Tables will have `size` entries (as `Maglev::build`). Tables that `of` does not make will be
  /// made by `threads` threads; 0: by the caller of `want`.
  MaglevTables(std::uint32_t size, unsigned threads);
  ~MaglevTables();
  MaglevTables(const MaglevTables&) = delete;
  MaglevTables& operator=(const MaglevTables&) = delete;

  /// Returns the table of these members, made or not. Called by one thread at a time.
  std::shared_ptr<MaglevTable> of(MaglevTable::Members members);
  /// Returns the Maglev table; null while it is being made. The first call for a table has it made.
  /// Any thread. Where other threads make tables, this takes no lock, and only the first call for a
  /// table makes a system call.
  const Maglev* want(const std::shared_ptr<MaglevTable>& table);
  /// Returns the Maglev table. If it is not made, the calling thread makes it, or waits for the
  /// thread that is making it. Any thread.
  const Maglev* make(MaglevTable& table) const;

  struct Statistics {
    std::size_t tables = 0;        ///< tables in use
    std::size_t made = 0;          ///< tables in use that are made
    std::size_t memory_bytes = 0;  ///< size of the entries of the tables that are made
  };
  /// Returns counts of the tables. Not to be called while another thread calls `of`.
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
  std::size_t swept_at_ = 1;  ///< size of `all_` at which tables that are gone are removed from it
  std::atomic<MaglevTable*> wanted_ = nullptr;   ///< a stack; one thread at a time takes from it
  std::atomic<std::uint32_t> wanted_times_ = 0;  ///< threads wait for a change of this number
  std::mutex taking_;
  std::atomic<bool> is_ending_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace millrace
