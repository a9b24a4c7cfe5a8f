#include "parse/sctp.h"

#include <cstdint>

#include "parse/bytes.h"

namespace millrace {
namespace {

constexpr unsigned kVerificationTag = 4;
constexpr unsigned kCommonHeader = 12;
constexpr unsigned kChunkHeader = 4;
constexpr unsigned kInitBytes = 20;  // an INIT or INIT ACK without parameters
constexpr unsigned kMostChunks = 16;
constexpr unsigned kTBit = 1;

enum class Chunk : std::uint8_t {
  data = 0,
  init = 1,
  init_ack = 2,
  heartbeat = 4,
  abort = 6,
  shutdown = 7,
  shutdown_ack = 8,
  error = 9,
  cookie_echo = 10,
  cookie_ack = 11,
  shutdown_complete = 14,
  i_data = 64,  // RFC 8260
};

Signal signal_of(Chunk type) {
  switch (type) {
    case Chunk::init:
      return Signal::sctp_init;
    case Chunk::init_ack:
      return Signal::sctp_init_ack;
    case Chunk::heartbeat:
      return Signal::sctp_heartbeat;
    case Chunk::abort:
      return Signal::sctp_abort;
    case Chunk::shutdown:
      return Signal::sctp_shutdown;
    case Chunk::shutdown_ack:
      return Signal::sctp_shutdown_ack;
    case Chunk::error:
      return Signal::sctp_nothing;
    case Chunk::cookie_echo:
      return Signal::sctp_cookie_echo;
    case Chunk::cookie_ack:
      return Signal::sctp_cookie_ack;
    case Chunk::shutdown_complete:
      return Signal::sctp_shutdown_complete;
    default:
      return Signal::sctp_data;
  }
}

/// True for chunks that must be alone in their packet (RFC 9260, 6.10).
bool must_be_alone(Signal signal) {
  return signal == Signal::sctp_init || signal == Signal::sctp_init_ack ||
         signal == Signal::sctp_shutdown_complete;
}

/// The chunk that decides a packet's signal.
struct Deciding {
  Signal signal = Signal::sctp_nothing;
  unsigned at = 0;  ///< the chunk's offset
};

/// Finds the deciding chunk: an ABORT, wherever it is; else the first chunk that more than data
/// would say (a COOKIE ECHO or COOKIE ACK must be the packet's first chunk); else DATA and the
/// like; else a HEARTBEAT. Control chunks precede DATA, and an ABORT shares no packet with DATA.
Deciding find_deciding(const std::byte* data, unsigned at, unsigned end) {
  Deciding found{Signal::sctp_nothing, at};
  for (unsigned n = 0; n < kMostChunks && at + kChunkHeader <= end; ++n) {
    const auto type = static_cast<Chunk>(detail::u8(data + at));
    const unsigned bytes = detail::u16(data + at + 2);
    const Signal signal = signal_of(type);
    const unsigned next = at + (bytes + 3) / 4 * 4;
    if (bytes < kChunkHeader) return {Signal::sctp_nothing, at};
    if (must_be_alone(signal)) {
      const bool is_alone = n == 0 && next + kChunkHeader > end;
      return {is_alone ? signal : Signal::sctp_nothing, at};
    }
    if (signal == Signal::sctp_abort) return {signal, at};
    const bool is_cookie = signal == Signal::sctp_cookie_echo || signal == Signal::sctp_cookie_ack;
    const bool says_more = signal == Signal::sctp_shutdown || signal == Signal::sctp_shutdown_ack ||
                           (is_cookie && n == 0);
    const bool had_more = found.signal > Signal::sctp_heartbeat;
    if (!had_more && says_more) found = {signal, at};
    if (found.signal == Signal::sctp_nothing && signal == Signal::sctp_heartbeat)
      found = {signal, at};
    if (!had_more && !says_more && signal == Signal::sctp_data) found = {signal, at};
    if (type == Chunk::data || type == Chunk::i_data) break;
    at = next;
  }
  return found;
}

}  // namespace

Signal detail::signal_of_chunks(const std::byte* data, const Headers& headers) {
  const unsigned chunks = headers.l4 + kCommonHeader;
  const unsigned end = headers.l4_end;
  if (chunks + kChunkHeader > end) return Signal::sctp_data;
  const Deciding deciding = find_deciding(data, chunks, end);
  const std::uint32_t tag = u32(data + headers.l4 + kVerificationTag);
  const bool is_init = deciding.signal == Signal::sctp_init;
  if (is_init != (tag == 0)) return Signal::sctp_nothing;  // RFC 9260, 8.5 and 8.5.1
  if (is_init || deciding.signal == Signal::sctp_init_ack) {
    const unsigned at = deciding.at + kChunkHeader;
    if (u16(data + deciding.at + 2) < kInitBytes) return Signal::sctp_nothing;
    if (at + 4 <= end && u32(data + at) == 0) return Signal::sctp_nothing;  // RFC 9260, 3.3.2
  }
  return deciding.signal;
}

Tags read_tags(const std::byte* data, const Headers& headers) {
  const unsigned chunks = headers.l4 + kCommonHeader;
  const unsigned end = headers.l4_end;
  if (chunks + kChunkHeader > end) return {};
  const Deciding deciding = find_deciding(data, chunks, end);
  Tags tags{.tag = detail::u32(data + headers.l4 + kVerificationTag), .is_whole = true};
  if (deciding.signal == Signal::sctp_abort || deciding.signal == Signal::sctp_shutdown_complete)
    tags.reflects = (detail::u8(data + deciding.at + 1) & kTBit) != 0;
  if (deciding.signal == Signal::sctp_init || deciding.signal == Signal::sctp_init_ack) {
    const unsigned at = deciding.at + kChunkHeader;
    if (at + 4 > end) return {};
    tags.initiate = detail::u32(data + at);
  }
  return tags;
}

}  // namespace millrace
