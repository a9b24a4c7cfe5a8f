// The processors that this process may use. Any thread may call these functions.
#pragma once

#include <vector>

namespace millrace {

/// Returns the numbers of these processors; none if the kernel does not say, as on machines of more
/// than 1024 processors.
std::vector<unsigned> allowed_processors();
/// Returns the number of these processors, 1 or more.
unsigned processors();

}  // namespace millrace
