// The result of a function's command.
#pragma once

#include "core/json.h"
#include "function/deployment.h"

namespace millrace {

struct CommandDone {
  Json result;
  Review review =
      Review::none;  ///< the connections to review, as after `FunctionDeployment::update`
};

}  // namespace millrace
