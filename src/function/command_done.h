// What a command of a function has done.
#pragma once

#include "core/json.h"

namespace millrace {

struct CommandDone {
  Json answer;
  bool review = false;  ///< as `FunctionDeployment::update` returns it
};

}  // namespace millrace
