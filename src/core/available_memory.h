// The memory that this process may still take.
#pragma once

#include <cstdint>

namespace millrace {

/// Returns an estimate of the bytes that can be allocated: by the kernel without swapping, and by
/// the limits of the process's control groups. 2^63 if the system does not say. Meant for refusing
/// early a request that cannot succeed. Reads files: not for the data path.
std::uint64_t available_memory_bytes();

}  // namespace millrace
