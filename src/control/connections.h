// Writes live connections as text for programs: one JSON object a line.
#pragma once

#include <string>

#include "worker/workers.h"

namespace millrace {

/// Appends the JSON object of a connection, without an end of line.
void append_json(std::string& text, const WorkersConnection& connection, const FunctionView& view);

/// Returns the connections of workers that do not run.
std::string connections_text(const Workers& workers);

}  // namespace millrace
