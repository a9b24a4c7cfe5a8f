// Writes live connections as text for programs, one JSON object a line, and explanations.
#pragma once

#include <string>

#include "control/control.h"
#include "core/json.h"
#include "worker/workers.h"

namespace millrace {

/// Appends the JSON object of a connection, without an end of line.
void append_json(std::string& text, const WorkersConnection& connection, const FunctionView& view);

/// Returns an explanation as JSON, with its connection, which may be null.
Json explanation_json(const Control::Explanation& is, const Json& connection);

/// Returns the connections of workers that do not run.
std::string connections_text(const Workers& workers);

}  // namespace millrace
