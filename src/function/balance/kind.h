// The load balancer, as the list of functions has it.
#pragma once

#include "function/kind.h"

namespace millrace {

const FunctionKind& balance_kind();

}  // namespace millrace
