// JSON with its keys in the order in which they were added. Headers that only name the type
// include json_fwd.h.
#pragma once

#include <nlohmann/json.hpp>

#include "core/json_fwd.h"
