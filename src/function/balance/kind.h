// The kind of the load balancer, for the list of functions.
#pragma once

#include "function/kind.h"

namespace millrace {

const FunctionKind& balance_kind();

}  // namespace millrace
