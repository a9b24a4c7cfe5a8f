// Makes the entrant at one place of the list of contenders. Each entrant is compiled as a source of
// its own.
#pragma once

#include <cstddef>

#include "bench/contender.h"

namespace millrace::bench {

template <std::size_t place>
Entrant entrant_at();

}  // namespace millrace::bench
