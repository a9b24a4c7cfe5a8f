// Checksums that a sender left to its hardware, and that no hardware has completed: between a
// kernel's virtual interfaces such packets arrive with the sum of the pseudo header alone.
#pragma once

#include "core/burst.h"

namespace millrace {

/// Completes the checksums of TCP and UDP packets of a parsed burst whose checksum field is the
/// folded sum of their pseudo header (Linux, Documentation/networking/checksum-offloads.rst). One
/// that is right and looks like that, one in 65536, stays right.
void complete_checksums(Burst& burst);

}  // namespace millrace
