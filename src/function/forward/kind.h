// The kind of `forward`, for the list of functions.
#pragma once

#include "function/kind.h"

namespace millrace {

const FunctionKind& forward_kind();

}  // namespace millrace
