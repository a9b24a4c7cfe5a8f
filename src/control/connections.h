// Live connections as text for programs: a JSON object a line.
#pragma once

#include <string>

#include "worker/workers.h"

namespace millrace {

/// Appends the object, without an end of line.
void append_json(std::string& text, const WorkersConnection& connection, const FunctionView& view);

/// Of workers at rest.
std::string connections_text(const Workers& workers);

}  // namespace millrace
