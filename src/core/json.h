// JSON as the program writes it: keys stay in the order in which they were given. Headers that only
// name it include <nlohmann/json_fwd.hpp>, by json_fwd.h.
#pragma once

#include <nlohmann/json.hpp>

#include "core/json_fwd.h"
