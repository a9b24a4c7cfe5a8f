// An Ethernet frame on its way out.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/burst.h"

namespace millrace {

struct Outgoing {
  Handle handle = 0;
  std::byte* data = nullptr;  ///< in the handle's memory
  std::uint16_t length = 0;
  std::uint8_t link = 0;  ///< on which it goes
};

}  // namespace millrace
