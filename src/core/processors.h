// Processors that this process may use.
#pragma once

#include <vector>

namespace millrace {

/// Their numbers; none where the kernel does not say, as on machines of more than 1024 processors.
std::vector<unsigned> allowed_processors();
/// How many there are, 1 or more.
unsigned processors();

}  // namespace millrace
