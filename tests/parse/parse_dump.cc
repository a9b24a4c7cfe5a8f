// Prints the parser's results for a capture, one line a packet: index (from 1), verdict, source,
// source port, destination, destination port, protocol, and of SCTP the signal.
// compare_tshark.py compares them with tshark's.
//
// Exit status 3: libpcap refuses the file, or the parser does not read its link type.

#include <arpa/inet.h>
#include <pcap/pcap.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "parse/parse.h"

namespace millrace {
namespace {

std::optional<LinkType> link_type_of(int dlt) {
  constexpr int kLinkTypeSll2 = 276;
  switch (dlt) {
    case DLT_EN10MB:
      return LinkType::ethernet;
    case DLT_RAW:
    case DLT_IPV4:
    case DLT_IPV6:
      return LinkType::raw_ip;
    case DLT_LINUX_SLL:
      return LinkType::linux_cooked;
    case kLinkTypeSll2:
      return LinkType::linux_cooked2;
    default:
      return std::nullopt;
  }
}

template <class A>
std::array<char, INET6_ADDRSTRLEN> text(const A& address) {
  std::array<char, INET6_ADDRSTRLEN> buffer{};
  inet_ntop(A::kBytes == 4 ? AF_INET : AF_INET6, address.bytes.data(), buffer.data(),
            buffer.size());
  return buffer;
}

std::string name(Verdict verdict) { return std::string(to_string(verdict)); }

/// Returns the name of a signal of SCTP; "" for others.
const char* name(Signal signal) {
  constexpr std::array<const char*, kSctpSignals> kNames{
      "nothing",           "data",  "heartbeat", "cookie_ack",  "shutdown", "shutdown_ack",
      "shutdown_complete", "abort", "restart",   "cookie_echo", "init_ack", "init"};
  return is_sctp(signal) ? kNames[static_cast<std::size_t>(signal)] : "";
}

template <class K>
void print(const Lane<K>& lane, unsigned number, Verdict verdict, Signal signal) {
  const K& key = lane.key[0];
  std::printf("%u %s %s %u %s %u %u %s\n", number, name(verdict).c_str(), text(key.source).data(),
              key.source_port, text(key.destination).data(), key.destination_port, key.protocol,
              name(signal));
}

void print(Burst& burst, LinkType link, unsigned number) {
  parse(burst, link);
  const Verdict verdict = burst.verdict[0];
  if (burst.v4.size != 0) {
    print(burst.v4, number, verdict, burst.signal[0]);
  } else if (burst.v6.size != 0) {
    print(burst.v6, number, verdict, burst.signal[0]);
  } else {
    std::printf("%u %s\n", number, name(verdict).c_str());
  }
}

/// Parses each packet in a block of exactly its captured size, so that a sanitizer finds reads
/// beyond it.
int dump(pcap_t* capture, LinkType link) {
  const auto burst = std::make_unique<Burst>();
  burst->size = 1;
  pcap_pkthdr* header = nullptr;
  const unsigned char* data = nullptr;
  unsigned number = 0;
  int status = 0;
  while ((status = pcap_next_ex(capture, &header, &data)) == 1) {
    const auto length = std::min<std::uint32_t>(header->caplen, 0xffff);
    const auto copy = std::make_unique<std::byte[]>(length);
    std::memcpy(copy.get(), data, length);
    burst->data[0] = copy.get();
    burst->length[0] = static_cast<std::uint16_t>(length);
    burst->wire_length[0] = std::max(header->len, length);
    print(*burst, link, ++number);
  }
  if (status == PCAP_ERROR) std::fprintf(stderr, "%s\n", pcap_geterr(capture));
  return 0;
}

int run(const char* path) {
  std::array<char, PCAP_ERRBUF_SIZE> error{};
  const std::unique_ptr<pcap_t, decltype(&pcap_close)> capture(
      pcap_open_offline(path, error.data()), pcap_close);
  if (!capture) {
    std::fprintf(stderr, "%s\n", error.data());
    return 3;
  }
  const int dlt = pcap_datalink(capture.get());
  const auto link = link_type_of(dlt);
  if (!link) {
    const char* name = pcap_datalink_val_to_name(dlt);
    std::fprintf(stderr, "link type %s (%d) is not read\n", name == nullptr ? "?" : name, dlt);
    return 3;
  }
  return dump(capture.get(), *link);
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: parse_dump CAPTURE\n");
    return 2;
  }
  return millrace::run(argv[1]);
}
