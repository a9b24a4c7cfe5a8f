// Reads a packet's signal.
#pragma once

#include <cstddef>

#include "core/burst.h"
#include "core/protocol.h"
#include "core/signal.h"
#include "parse/sctp.h"
#include "parse/tcp.h"

namespace millrace {

/// Returns the signal of a tracked packet. A TCP packet without captured flags counts as an ACK, an
/// SCTP packet without a captured chunk as one with data.
inline Signal read_signal(const std::byte* data, const Headers& headers) {
  if (headers.protocol == kProtocolTcp) {
    const unsigned at = headers.l4 + detail::kTcpFlags;
    return at < headers.l4_end ? detail::signal_of_flags(detail::u8(data + at)) : Signal::ack;
  }
  return headers.protocol == kProtocolSctp ? detail::signal_of_chunks(data, headers)
                                           : Signal::packet;
}

}  // namespace millrace
