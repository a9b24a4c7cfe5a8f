// Threads of workers.
#pragma once

#include <functional>

#include "millrace/types.h"

namespace millrace {

/// Processors that this process may use.
unsigned processors();

/// Calls `work(n)` for n from 0 to `count` - 1, each on a thread of its own that keeps to one
/// processor, the n-th that this process may use (from the first again where they are fewer), and
/// waits for all. One alone runs on the calling thread, and goes where the system puts it. `work`
/// must not throw. Error (failed): a thread could not be started; those that were have run.
Result<void> on_threads(unsigned count, const std::function<void(unsigned)>& work);

}  // namespace millrace
