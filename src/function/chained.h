// Makes one `FunctionSettings` of several functions, for the rest of the program. The deployment of
// these settings makes a chain (chain.h) for each worker.
#pragma once

#include <memory>
#include <vector>

#include "function/settings.h"

namespace millrace {

/// Returns the settings of a chain of these functions, in the order in which they serve
/// originators' packets; for one function, its own settings. Chains of the same kinds in the same
/// order have the same kind.
std::shared_ptr<const FunctionSettings> chained(
    std::vector<std::shared_ptr<const FunctionSettings>> functions);

}  // namespace millrace
