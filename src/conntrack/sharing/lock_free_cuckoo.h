// `lock-free-cuckoo`: one `cuckoo` table for all workers, whose readers rte_hash lets through
// without a lock (RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF: they look again when its counter of
// changes has moved), with one writer at a time. Positions are given out again when every worker
// has ended a burst since, by rte_rcu as rte_hash's own reclamation does; but that would not tell
// us which position is whose anew.
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
