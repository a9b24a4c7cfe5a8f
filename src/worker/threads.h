// Threads of workers.
#pragma once

#include <functional>

#include "millrace/types.h"

namespace millrace {

/// Calls `work(n)` for n from 0 to `count` - 1, each on a thread of its own that keeps to one
/// processor, the n-th that this process may use (from the first again where they are fewer), and
/// waits for all. They begin together, or, where one could not be started, none does. One alone
/// runs on the calling thread, and goes where the system puts it. Errors (failed): a thread could
/// not be started, or there was no memory left for the work of one.
Result<void> on_threads(unsigned count, const std::function<void(unsigned)>& work);

}  // namespace millrace
