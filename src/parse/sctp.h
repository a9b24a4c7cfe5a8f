// Reads the SCTP header fields by which associations are followed (RFC 9260, 3).
#pragma once

#include <cstddef>

#include "core/burst.h"
#include "core/signal.h"

namespace millrace {

namespace detail {

/// Returns the signal of an SCTP packet with captured ports.
Signal signal_of_chunks(const std::byte* data, const Headers& headers);

}  // namespace detail

/// Returns the tags of an SCTP packet; tags that are not whole if they were not captured.
Tags read_tags(const std::byte* data, const Headers& headers);

}  // namespace millrace
