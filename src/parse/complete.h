// Completes checksums that a sender left to its hardware and no hardware completed: between the
// kernel's virtual interfaces such packets arrive with the pseudo header's sum alone.
#pragma once

#include "core/burst.h"

namespace millrace {

/// Completes the checksums of whole TCP and UDP packets in a parsed burst if the checksum field is
/// the folded sum of the pseudo header (Linux, Documentation/networking/checksum-offloads.rst). One
/// right checksum in 65536 has the same value by chance, and stays right.
void complete_checksums(Burst& burst);

}  // namespace millrace
