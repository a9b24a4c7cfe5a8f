// How a benchmark says what it is about to do, and is told to end.
#pragma once

#include <functional>
#include <string_view>

namespace millrace::bench {

/// Called, on the benchmark's own thread, with what comes next; false: it shall end here.
using Progress = std::function<bool(std::string_view what)>;

}  // namespace millrace::bench
