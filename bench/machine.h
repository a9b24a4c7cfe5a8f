// What a result must say about where it was measured.
#pragma once

#include <nlohmann/json.hpp>

namespace millrace::bench {

/// Processor, caches, cores, kernel, huge pages, compiler, flags and commit.
nlohmann::ordered_json describe_machine();

}  // namespace millrace::bench
