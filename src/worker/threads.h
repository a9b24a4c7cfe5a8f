// Threads for workers.
#pragma once

#include <functional>

#include "millrace/types.h"

namespace millrace {

/// Calls `work(n)` for n from 0 to `count` - 1, each on a thread of its own, and waits for all. The
/// n-th thread is bound to the n-th processor that this process may use, counted from the first
/// again if there are fewer. All threads begin together; if one could not be started, `work` is not
/// called at all. With a `count` of 1 the calling thread does the work, unbound. Errors (failed): a
/// thread could not be started, or `work` threw std::bad_alloc.
Result<void> on_threads(unsigned count, const std::function<void(unsigned)>& work);

}  // namespace millrace
