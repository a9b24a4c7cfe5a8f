#include "function/kinds.h"

#include <array>

#include "function/balance/kind.h"
#include "function/firewall/kind.h"
#include "function/forward/kind.h"
#include "function/nat/kind.h"

namespace millrace {

std::span<const FunctionKind* const> kinds() {
  static const std::array all{
      &balance_kind(),
      &forward_kind(),
      &firewall_kind(),
      &nat_kind(),
  };
  return all;
}

std::shared_ptr<const FunctionSettings> default_function() { return kinds().front()->defaults(); }

}  // namespace millrace
