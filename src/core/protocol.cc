#include "core/protocol.h"

#include <array>

namespace millrace {
namespace {

constexpr std::array<std::pair<std::string_view, std::uint8_t>, 10> kProtocols{
    {{"tcp", kProtocolTcp},
     {"udp", kProtocolUdp},
     {"sctp", kProtocolSctp},
     {"icmp", kProtocolIcmp},
     {"icmpv6", kProtocolIcmpV6},
     {"udplite", kProtocolUdpLite},
     {"dccp", kProtocolDccp},
     {"gre", kProtocolGre},
     {"esp", kProtocolEsp},
     {"ah", kProtocolAuthentication}}};

}  // namespace

std::string protocol_name(std::uint8_t protocol) {
  for (const auto& [name, number] : kProtocols) {
    if (number == protocol) return std::string(name);
  }
  return std::to_string(protocol);
}

std::span<const std::pair<std::string_view, std::uint8_t>> protocols() { return kProtocols; }

}  // namespace millrace
