// JSON as the program writes it: keys stay in the order in which they were given.
#pragma once

#include <nlohmann/json.hpp>

namespace millrace::cli {

using Json = nlohmann::ordered_json;

}  // namespace millrace::cli
