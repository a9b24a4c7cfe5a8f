// `lock-free-cuckoo`: one `cuckoo` table for all workers. Readers take no lock
// (RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF: rte_hash repeats a lookup if its counter of changes has
// moved); one thread writes at a time. Positions are reclaimed after a grace period by rte_rcu
// (grace.h), not by rte_hash's own reclamation, which does not report the positions that it has
// freed.
#pragma once

#include <string_view>
#include <type_traits>

#include "conntrack/sharing/one_writer.h"
#include "conntrack/table/cuckoo_rte_hash.h"
#include "conntrack/table_scheme.h"

namespace millrace {

struct LockFreeCuckoo {
  static constexpr std::string_view kName = "lock-free-cuckoo";
  static constexpr std::string_view kSummary =
      "one cuckoo table for all workers: rte_hash's readers without a lock, one writer";
  using Guards = OneWriter;
  template <class K>
  using Shared = CuckooRteHash<K, RteHashFlags::kLockFreeReaders>;
  template <class Table>
  using Form =
      std::conditional_t<std::is_same_v<Table, TableScheme<Cuckoo>>, TableScheme<Shared>, void>;
  static Guards create() { return {}; }
};

}  // namespace millrace
