// `forward`, as the list of functions has it.
#pragma once

#include "function/kind.h"

namespace millrace {

const FunctionKind& forward_kind();

}  // namespace millrace
