#include "port/pcapng.h"

#include <gtest/gtest.h>
#include <pcap/pcap.h>

#include <array>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "port/test_files.h"

namespace millrace {
namespace {

// libpcap, which shares no code with the writer, reads the file. libpcap does not show comments:
// tests/control_test.py has tshark read those.
TEST(Pcapng, IsReadByLibpcap) {
  const test::Directory directory;
  const std::string path = directory / "trace.pcapng";
  const std::vector<std::string> ports{"outside", "in"};
  std::array<std::byte, 61> data;
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i);
  {
    std::ofstream file(path, std::ios::binary);
    file << pcapng_beginning(ports, 9728);
    for (std::uint32_t n = 0; n < 5; ++n) {
      file << pcapng_packet({.interface = n % 2,
                             .time_ns = 1'700'000'000'000'000'001U + n,
                             .wire_length = 1000 + n,
                             .data = std::span(data).first(57 + n),
                             .comment = std::string("tracked").substr(n)});
    }
    file << pcapng_lost(7);
  }
  std::array<char, PCAP_ERRBUF_SIZE> error{};
  pcap_t* const capture = ::pcap_open_offline_with_tstamp_precision(
      path.c_str(), PCAP_TSTAMP_PRECISION_NANO, error.data());
  ASSERT_NE(capture, nullptr) << error.data();
  EXPECT_EQ(::pcap_datalink(capture), DLT_EN10MB);
  for (std::uint32_t n = 0; n < 5; ++n) {
    pcap_pkthdr* header = nullptr;
    const unsigned char* bytes = nullptr;
    ASSERT_EQ(::pcap_next_ex(capture, &header, &bytes), 1) << ::pcap_geterr(capture);
    EXPECT_EQ(header->ts.tv_sec, 1'700'000'000);
    EXPECT_EQ(header->ts.tv_usec, 1 + n);
    EXPECT_EQ(header->caplen, 57 + n);
    EXPECT_EQ(header->len, 1000 + n);
    EXPECT_EQ(bytes[56], 56);
  }
  pcap_pkthdr* header = nullptr;
  const unsigned char* bytes = nullptr;
  EXPECT_EQ(::pcap_next_ex(capture, &header, &bytes), PCAP_ERROR_BREAK);
  ::pcap_close(capture);
}

}  // namespace
}  // namespace millrace
