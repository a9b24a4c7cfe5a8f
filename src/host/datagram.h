// UDP datagrams of the host's own (RFC 768).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/burst.h"
#include "millrace/key.h"
#include "parse/rewrite.h"

namespace millrace {

/// Bytes of the headers, from the IP header on.
template <class K>
inline constexpr std::size_t kDatagramHead = detail::IpOf<K>::kHeader + 8;

/// Writes a datagram between the ends of a key: `kDatagramHead<K>` bytes, and the payload, 65,000
/// bytes at most.
template <class K>
void write_datagram(std::byte* to, const K& ends, std::span<const std::byte> payload);

/// Returns where the headers of a datagram are in an Ethernet frame without a tag that is one; none
/// if it is not.
std::optional<Headers> headers_of_datagram(std::span<const std::byte> frame);

/// Returns the payload of a parsed packet that is a whole datagram; none if it is not.
std::optional<std::span<std::byte>> payload_of(std::span<std::byte> packet, const Headers& headers);

}  // namespace millrace
