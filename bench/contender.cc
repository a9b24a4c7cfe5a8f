// Compiled once for each table.
#include "bench/contender_of.h"
#include "bench/contenders.h"
#include "bench/entrant_at.h"

namespace millrace::bench {

#ifdef MILLRACE_COUNTED
static_assert(AllContenders::kSize == MILLRACE_COUNTED,
              "the number of contenders is not the one that CMakeLists.txt counts");
#endif

template <>
Entrant entrant_at<MILLRACE_TABLE>() {
  using Scheme = AllContenders::At<MILLRACE_TABLE>;
  using V4 = Scheme::Of<KeyV4>;
  using V6 = Scheme::Of<KeyV6>;
  return {.name = V4::kName,
          .max_load = V4::kMaxLoad,
          .key_in_record = V4::kKeyInRecord,
          .v4 = ContenderOf<V4, KeyV4>::create,
          .v6 = ContenderOf<V6, KeyV6>::create};
}

}  // namespace millrace::bench
