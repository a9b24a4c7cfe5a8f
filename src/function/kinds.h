// The list of all kinds of functions.
#pragma once

#include <memory>
#include <span>

#include "function/kind.h"

namespace millrace {

/// Returns all kinds. The first is the default.
std::span<const FunctionKind* const> kinds();

/// Returns the default settings of the default kind.
std::shared_ptr<const FunctionSettings> default_function();

}  // namespace millrace
