// Tests the host's own datagrams, by reading them with the parser.
#include "host/datagram.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "core/protocol.h"
#include "parse/checksum.h"

namespace millrace {
namespace {

template <class K>
void round_trip(std::size_t bytes) {
  K ends;
  ends.source.bytes[0] = 10;
  ends.destination.bytes[0] = 11;
  ends.source_port = 7000;
  ends.destination_port = 7001;
  std::vector<std::byte> payload(bytes);
  for (std::size_t n = 0; n < bytes; ++n) payload[n] = static_cast<std::byte>(n * 7 + 1);
  std::vector<std::byte> packet(kDatagramHead<K> + bytes);
  write_datagram(packet.data(), ends, std::span<const std::byte>(payload));
  const std::size_t l4 = kDatagramHead<K> - 8;
  const std::uint64_t sum = pseudo_header_sum(ends.source, ends.destination, kProtocolUdp,
                                              static_cast<std::uint32_t>(8 + bytes));
  EXPECT_EQ(internet_checksum(std::span(packet).subspan(l4), sum), 0U);
  const Headers headers{.l3 = 0,
                        .l4 = static_cast<std::uint16_t>(l4),
                        .l4_end = static_cast<std::uint16_t>(packet.size()),
                        .family = K::Address::kBytes == 4 ? std::uint8_t{4} : std::uint8_t{6},
                        .protocol = kProtocolUdp};
  const auto read = payload_of(packet, headers);
  ASSERT_TRUE(read.has_value());
  EXPECT_TRUE(std::ranges::equal(*read, payload));
  EXPECT_FALSE(payload_of(std::span(packet).first(l4 + 7), headers).has_value());
  if (bytes > 0) {
    EXPECT_FALSE(payload_of(std::span(packet).first(packet.size() - 1), headers).has_value());
  }
}

TEST(Datagram, ComesBackAsItWas) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{1356}}) {
    round_trip<KeyV4>(bytes);
    round_trip<KeyV6>(bytes);
  }
}

}  // namespace
}  // namespace millrace
