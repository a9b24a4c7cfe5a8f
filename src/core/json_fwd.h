// Declares the type of json.h for headers that only name it: quick to compile.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace millrace {

using Json = nlohmann::ordered_json;

}  // namespace millrace
