// The kind of `firewall`, for the list of functions.
#pragma once

#include "function/kind.h"

namespace millrace {

const FunctionKind& firewall_kind();

}  // namespace millrace
