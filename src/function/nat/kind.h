// The kind of NAT, for the list of functions.
#pragma once

#include "function/kind.h"

namespace millrace {

const FunctionKind& nat_kind();

}  // namespace millrace
