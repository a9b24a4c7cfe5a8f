// The functions that there are.
#pragma once

#include <memory>
#include <span>

#include "function/kind.h"

namespace millrace {

/// Returns all of them; where nothing is configured, the first is meant.
std::span<const FunctionKind* const> kinds();

/// Returns the first one's settings, where the file says nothing.
std::shared_ptr<const FunctionSettings> default_function();

}  // namespace millrace
