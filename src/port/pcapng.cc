#include "port/pcapng.h"

#include <cstring>

namespace millrace {
namespace {

constexpr std::uint16_t kEthernet = 1;    // LINKTYPE_ETHERNET
constexpr std::uint16_t kComment = 1;     // opt_comment
constexpr std::uint16_t kName = 2;        // if_name
constexpr std::uint16_t kDropped = 5;     // isb_ifdrop
constexpr std::uint16_t kResolution = 9;  // if_tsresol
constexpr std::uint8_t kNanoseconds = 9;  // 10^-9 s

/// Appends a number in this machine's byte order, which the section header declares.
template <class T>
void put(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void pad(std::string& to) { to.append((4 - to.size() % 4) % 4, '\0'); }

void put_option(std::string& to, std::uint16_t code, std::string_view value) {
  put(to, code);
  put(to, static_cast<std::uint16_t>(value.size()));
  to.append(value);
  pad(to);
}
void end_options(std::string& to) { put(to, std::uint32_t{0}); }

/// Returns a block: type, length, body, length.
std::string block(std::uint32_t type, const std::string& body) {
  std::string all;
  const auto length = static_cast<std::uint32_t>(body.size() + 12);
  put(all, type);
  put(all, length);
  all += body;
  put(all, length);
  return all;
}

std::string section() {
  std::string body;
  put(body, std::uint32_t{0x1a2b3c4d});
  put(body, std::uint16_t{1});  // version 1.0
  put(body, std::uint16_t{0});
  put(body, std::int64_t{-1});  // unknown length
  return block(0x0a0d0d0a, body);
}

std::string interface(std::uint16_t link_type, std::string_view name, std::uint32_t snap_length) {
  std::string body;
  put(body, link_type);
  put(body, std::uint16_t{0});
  put(body, snap_length);
  if (!name.empty()) put_option(body, kName, name);
  put_option(body, kResolution, {reinterpret_cast<const char*>(&kNanoseconds), 1});
  end_options(body);
  return block(1, body);
}

}  // namespace

std::string pcapng_beginning(std::span<const std::string> interfaces, std::uint32_t snap_length) {
  std::string all = section();
  for (const std::string& name : interfaces) all += interface(kEthernet, name, snap_length);
  return all;
}

std::string pcapng_beginning(std::span<const std::uint16_t> link_types, std::uint32_t snap_length) {
  std::string all = section();
  for (const std::uint16_t link_type : link_types) all += interface(link_type, {}, snap_length);
  return all;
}

std::string pcapng_lost(std::uint64_t packets) {
  std::string body;
  body.append(12, '\0');  // interface 0, no time
  put_option(body, kDropped, {reinterpret_cast<const char*>(&packets), sizeof(packets)});
  end_options(body);
  return block(5, body);
}

std::string pcapng_packet(const PcapngPacket& packet) {
  std::string body;
  put(body, packet.interface);
  put(body, static_cast<std::uint32_t>(packet.time_ns >> 32));
  put(body, static_cast<std::uint32_t>(packet.time_ns));
  put(body, static_cast<std::uint32_t>(packet.data.size()));
  put(body, packet.wire_length);
  body.append(reinterpret_cast<const char*>(packet.data.data()), packet.data.size());
  pad(body);
  if (!packet.comment.empty()) {
    put_option(body, kComment, packet.comment);
    end_options(body);
  }
  return block(6, body);
}

}  // namespace millrace
