// `locked-cuckoo`: one `cuckoo` table for all workers, under rte_hash's own reader-writer lock
// (RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY): rte_hash takes it for each burst of lookups, and for each
// key that is added or removed. rte_hash gives out positions outside of this lock, so one thread
// writes at a time.
#pragma once

#include <string_view>
#include <type_traits>

#include "conntrack/sharing/one_writer.h"
#include "conntrack/table/cuckoo_rte_hash.h"
#include "conntrack/table_scheme.h"

namespace millrace {

struct LockedCuckoo {
  static constexpr std::string_view kName = "locked-cuckoo";
  static constexpr std::string_view kSummary =
      "one cuckoo table for all workers, under rte_hash's reader-writer lock";
  using Guards = OneWriter;
  template <class K>
  using Shared = CuckooRteHash<K, RteHashFlags::kReadersAndWriter>;
  template <class Table>
  using Form =
      std::conditional_t<std::is_same_v<Table, TableScheme<Cuckoo>>, TableScheme<Shared>, void>;
  static Guards create() { return {}; }
};

}  // namespace millrace
