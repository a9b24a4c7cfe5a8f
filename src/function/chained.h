// Several functions as one to the rest of the program: their settings, and their deployments, whose
// workers' functions stand in a chain (chain.h).
#pragma once

#include <memory>
#include <vector>

#include "function/settings.h"

namespace millrace {

/// Returns the settings of a chain of these, in the order in which originators' packets meet them;
/// one alone is itself. Chains of the same kinds, in the same order, are of one kind.
std::shared_ptr<const FunctionSettings> chained(
    std::vector<std::shared_ptr<const FunctionSettings>> functions);

}  // namespace millrace
