// The processors on which the calling thread may run. Any thread may call these functions.
#pragma once

#include <vector>

namespace millrace {

/// Returns the numbers of the processors on which the calling thread may run; none if the kernel
/// does not say, as on machines with more than 1024 processors.
std::vector<unsigned> allowed_processors();
/// Returns on how many processors the calling thread may run, 1 or more; the number of the
/// machine's processors if the kernel does not say.
unsigned processors();

}  // namespace millrace
