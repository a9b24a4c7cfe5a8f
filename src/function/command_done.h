// What a command of a function has done.
#pragma once

#include "core/json.h"
#include "function/deployment.h"

namespace millrace {

struct CommandDone {
  Json answer;
  Review review = Review::none;  ///< as `FunctionDeployment::update` returns it
};

}  // namespace millrace
