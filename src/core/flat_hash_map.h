// absl::flat_hash_map, as the packaged library was compiled: under the address sanitizer its
// headers would lay tables out, and poison empty slots, in ways which that library does not know
// of.
#pragma once

#include <absl/base/config.h>
#undef ABSL_HAVE_ADDRESS_SANITIZER
#include <absl/container/flat_hash_map.h>
