#include "traffic/windows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "core/sanitizers.h"
#include "port/test_files.h"
#include "traffic/generate.h"
#include "traffic/test_packet.h"

namespace millrace {
namespace {

using test::View;

Capture campus(std::uint64_t connections, std::uint64_t packets) {
  TrafficPlan plan;
  plan.connections = connections;
  plan.packets = packets;
  return std::move(*generate(plan));
}

Capture windows_of(const Capture& capture, unsigned count, const Shift& shift = {}) {
  auto result = windows(capture, count, shift);
  EXPECT_TRUE(result.has_value()) << result.error().message;
  return result ? std::move(*result) : Capture(CaptureFormat{});
}

/// Keeps the servers of the address plan, as virtual addresses would be.
Shift keep_servers() {
  return {[](const AddressV4& a) { return a.bytes[0] == 198 && a.bytes[1] == 19; },
          [](const AddressV6& a) { return a.bytes[0] == 0x20 && a.bytes[5] == 0x19; }};
}

bool is_server(const std::string& address) {
  return address.size() == 4 ? address.starts_with("\xc6\x13") : address[5] == 0x19;
}

TEST(Windows, OneIsTheCaptureItself) {
  const Capture in = campus(100, 1000);
  const Capture out = windows_of(in, 1);
  ASSERT_EQ(out.size(), in.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    ASSERT_TRUE(std::ranges::equal(in.packet(i).bytes(), out.packet(i).bytes()));
  }
}

TEST(Windows, CopiesAreInterleavedAtTheSameTimes) {
  const Capture in = campus(100, 1000);
  const Capture out = windows_of(in, 3);
  ASSERT_EQ(out.size(), 3 * in.size());
  EXPECT_EQ(out.format().snaplen, in.format().snaplen);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto& from = in.packet(i / 3);
    ASSERT_EQ(out.packet(i).timestamp_ns, from.timestamp_ns);
    ASSERT_EQ(out.packet(i).wire_length, from.wire_length);
    const bool same = std::ranges::equal(out.packet(i).bytes(), from.bytes());
    ASSERT_EQ(same, i % 3 == 0) << i;
  }
}

/// Expects that each window maps connections one to one, alike in both directions, and that no two
/// windows share a connection.
void check_bijection(const Capture& in, unsigned count, const Shift& shift, bool servers_stay) {
  const Capture out = windows_of(in, count, shift);
  std::set<View::Five> taken;
  for (unsigned w = 0; w < count; ++w) {
    std::map<View::Five, View::Five> image;
    std::set<View::Five> images;
    for (std::size_t i = 0; i < in.size(); ++i) {
      const View from(in.packet(i));
      const View to(out.packet(i * count + w));
      const auto [at, is_new] = image.emplace(from.conversation(), to.conversation());
      ASSERT_EQ(at->second, to.conversation()) << "window " << w << " packet " << i;
      if (is_new) {
        ASSERT_TRUE(taken.insert(to.conversation()).second) << w << " " << i;
      }
      if (servers_stay) {
        const bool from_server = is_server(from.source());
        ASSERT_EQ(from_server ? to.source() : to.destination(),
                  from_server ? from.source() : from.destination());
        if (from.has_ports()) {
          ASSERT_EQ(from_server ? to.source_port() : to.destination_port(),
                    from_server ? from.source_port() : from.destination_port());
        }
      }
    }
  }
}

TEST(Windows, ConnectionsNeverCoincide) {
  const std::uint64_t connections = kSanitized ? 100 : 1000;
  check_bijection(campus(connections, 8 * connections), 9, {}, false);
  check_bijection(campus(connections, 8 * connections), 9, keep_servers(), true);
  // If all addresses are kept, both ends are shifted nevertheless.
  check_bijection(campus(100, 500), 2,
                  {[](const AddressV4& a) { return a.bytes[0] == 198; },
                   [](const AddressV6& a) { return a.bytes[0] == 0x20; }},
                  false);
}

// In windows of windows the first candidates for addresses are in use; then a test keeps them.
TEST(Windows, PassOverWhatIsTaken) {
  check_bijection(windows_of(campus(100, 500), 3), 3, {}, false);
  const Shift keep{[](const AddressV4& a) { return a.bytes[0] == 1; }, nullptr};
  const Capture out = windows_of(campus(100, 500), 2, keep);
  for (std::size_t i = 1; i < out.size(); i += 2) {
    const View to(out.packet(i));
    if (!to.ipv6()) {
      ASSERT_NE(to.source()[0], 1);
    }
  }
}

TEST(Windows, PortsShiftByTheWindow) {
  const Capture in = campus(200, 1000);
  const Capture out = windows_of(in, 3, keep_servers());
  for (std::size_t i = 0; i < in.size(); ++i) {
    const View from(in.packet(i));
    if (!from.has_ports() || is_server(from.source())) continue;
    for (unsigned w = 1; w < 3; ++w) {
      ASSERT_EQ(View(out.packet(3 * i + w)).source_port(),
                (from.source_port() - 1 + w) % 65535 + 1);
    }
  }
}

TEST(Windows, NewAddressesAreUnicastAndNew) {
  const Capture in = campus(2000, 4000);
  const Capture out = windows_of(in, 4);
  std::set<std::string> old;
  for (std::size_t i = 0; i < in.size(); ++i) {
    old.insert(View(in.packet(i)).source());
    old.insert(View(in.packet(i)).destination());
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (i % 4 == 0) continue;
    const std::string source = View(out.packet(i)).source();
    ASSERT_FALSE(old.contains(source));
    const auto first = static_cast<unsigned char>(source[0]);
    ASSERT_TRUE(source.size() == 16 || (first > 0 && first < 224 && first != 127 && first != 10));
  }
}

TEST(Windows, ChecksumsStayRight) {
  const Capture out = windows_of(campus(1000, 8000), 5);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const View view(out.packet(i));
    if (!view.ipv6()) {
      ASSERT_EQ(view.header_sum(), 0xffffU) << i;
    }
    ASSERT_EQ(view.payload_sum(), 0xffffU) << i;
  }
}

TEST(Windows, WrongChecksumsStayAsWrong) {
  const Capture right = campus(100, 1000);
  Capture in(right.format());
  for (std::size_t i = 0; i < right.size(); ++i) {
    const auto& packet = right.packet(i);
    std::vector<std::byte> bytes(packet.bytes().begin(), packet.bytes().end());
    // Damages a byte behind the IPv6 header, or of the IPv4 header checksum.
    bytes[View(packet).ipv6() ? 63 : 25] ^= std::byte{0x5a};
    ASSERT_TRUE(in.append(packet.timestamp_ns, packet.wire_length, bytes).has_value());
  }
  const Capture out = windows_of(in, 2);
  for (std::size_t i = 0; i < in.size(); ++i) {
    const View from(in.packet(i));
    const View to(out.packet(2 * i + 1));
    if (!from.ipv6()) {
      ASSERT_EQ(to.header_sum() % 0xffff, from.header_sum() % 0xffff) << i;
    }
    ASSERT_EQ(to.payload_sum() % 0xffff, from.payload_sum() % 0xffff) << i;
  }
}

TEST(Windows, PacketsWithoutAKeyAreCopied) {
  Capture in({});
  const auto noise = test::numbered_bytes(60, 1);
  ASSERT_TRUE(in.append(5, 60, noise).has_value());
  ASSERT_TRUE(in.append(6, 0, {}).has_value());
  const Capture out = windows_of(in, 3);
  ASSERT_EQ(out.size(), 6U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(std::ranges::equal(out.packet(i).bytes(), noise));
    EXPECT_EQ(out.packet(3 + i).captured, 0U);
  }
}

TEST(Windows, RefusesWhatCannotBe) {
  const Capture in = campus(10, 100);
  EXPECT_EQ(windows(in, 0, {}).error().kind, Error::Kind::usage);
  const auto many = windows(in, 100'000'000, {});
  ASSERT_FALSE(many.has_value());
  EXPECT_EQ(many.error().kind, Error::Kind::failed);
  EXPECT_NE(many.error().message.find("ask for at most"), std::string::npos)
      << many.error().message;
  const auto no_addresses = windows(in, 2, {[](const AddressV4&) { return true; }, nullptr});
  ASSERT_FALSE(no_addresses.has_value());
  EXPECT_NE(no_addresses.error().message.find("not enough addresses"), std::string::npos);
}

}  // namespace
}  // namespace millrace
