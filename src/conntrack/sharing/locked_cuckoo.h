// `locked-cuckoo`: one `cuckoo` table for all workers, under rte_hash's own reader-writer lock
// (RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY): it is taken for each burst that is looked up, and for each
// key that is added or removed. What rte_hash does outside of it, giving out positions, wants one
// writer at a time.
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
