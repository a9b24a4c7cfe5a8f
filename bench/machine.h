// The description of the machine and the build that every result contains.
#pragma once

#include <nlohmann/json.hpp>

namespace millrace::bench {

/// Returns processor, caches, cores, kernel, huge pages, compiler, flags and commit.
nlohmann::ordered_json describe_machine();

}  // namespace millrace::bench
