// absl::flat_hash_map, in the same layout as the packaged library. Under the address sanitizer, the
// headers would choose another layout and poison empty slots, and the library, compiled without the
// sanitizer, would not fit.
#pragma once

#include <absl/base/config.h>
#undef ABSL_HAVE_ADDRESS_SANITIZER
#include <absl/container/flat_hash_map.h>
