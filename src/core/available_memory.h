// How much memory this process may still take.
#pragma once

#include <cstdint>

namespace millrace {

/// Bytes that can be allocated without swapping, as the kernel estimates it, but no more than the
/// limit of the process's control group; 2^63 where the system does not tell. Reads files: not for
/// the data path. An estimate: use it to refuse the hopeless in time.
std::uint64_t available_memory_bytes();

}  // namespace millrace
