#include "function/forward/kind.h"

#include "function/forward/forward.h"
#include "function/plain.h"

namespace millrace {

const FunctionKind& forward_kind() {
  static constexpr FunctionKind kKind{.name = "forward",
                                      .summary = "tracks every connection and changes nothing",
                                      .defaults = PlainSettings<forward_kind>::make,
                                      .reader = PlainReader<forward_kind>::make,
                                      .deploy = PlainDeployment<Forwarder>::deploy};
  return kKind;
}

}  // namespace millrace
