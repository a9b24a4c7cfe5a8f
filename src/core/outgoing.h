// An Ethernet frame that is to be sent.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/burst.h"

namespace millrace {

struct Outgoing {
  Handle handle = 0;
  std::byte* data = nullptr;  ///< in the handle's memory
  std::uint16_t length = 0;   ///< bytes
  std::uint8_t link = 0;      ///< number of the link to send the frame on
};

}  // namespace millrace
