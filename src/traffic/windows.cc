#include "traffic/windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <utility>
#include <vector>

#include "core/available_memory.h"
#include "parse/capture_bursts.h"
#include "parse/rewrite.h"

namespace millrace {
namespace {

/// Candidates for new addresses, `kCandidates` in number. `candidate(i)` returns none if the i-th
/// must not be used.
template <class A>
struct Pool;

template <>
struct Pool<AddressV4> {
  static constexpr std::uint64_t kFirst = 0x01000000;
  static constexpr std::uint64_t kCandidates = 0xe0000000 - kFirst;  // multicast follows

  static std::optional<AddressV4> candidate(std::uint64_t i) {
    const auto a = static_cast<std::uint32_t>(kFirst + i);
    if (a >> 24 == 10 || a >> 24 == 127 || a >> 16 == 0xa9fe) return std::nullopt;
    return AddressV4{{static_cast<std::uint8_t>(a >> 24), static_cast<std::uint8_t>(a >> 16),
                      static_cast<std::uint8_t>(a >> 8), static_cast<std::uint8_t>(a)}};
  }
};

template <>
struct Pool<AddressV6> {
  static constexpr std::uint64_t kCandidates = std::uint64_t{1} << 48;

  static std::optional<AddressV6> candidate(std::uint64_t i) {
    AddressV6 address{{0xfd, 0x6d, 0x69, 0x6c, 0x6c}};  // RFC 4193
    for (unsigned byte = 0; byte < 8; ++byte) {
      address.bytes[15 - byte] = static_cast<std::uint8_t>((i + 1) >> (8 * byte));
    }
    return address;
  }
};

/// The addresses of one family, and their images in each window.
template <class K>
class Relabelling {
 public:
  using A = typename K::Address;
  using Keep = std::function<bool(const A&)>;

  explicit Relabelling(const Keep& keep) : keep_(keep) {}

  void note(const K& key) {
    present_.push_back(key.source);
    present_.push_back(key.destination);
    if (present_.size() >= next_tidy_) tidy();
  }

  /// Chooses new addresses for windows 1 to `count` - 1. False if there are not enough, or if
  /// `kPatience` candidates in a row are rejected.
  bool choose(unsigned count) {
    tidy();
    const std::size_t wanted = present_.size() * (count - 1);
    images_.reserve(wanted);
    std::uint64_t in_vain = 0;
    for (std::uint64_t i = 0; images_.size() < wanted; ++i) {
      if (i == Pool<A>::kCandidates || in_vain == kPatience) return false;
      const auto candidate = Pool<A>::candidate(i);
      const bool good = candidate && !kept(*candidate) && !is_present(*candidate);
      in_vain = good ? 0 : in_vain + 1;
      if (good) images_.push_back(*candidate);
    }
    return true;
  }

  /// Returns `key`, which was noted, as it is in window `w`, 1 or more.
  K shifted(const K& key, unsigned w) const {
    const bool source = !kept(key.source);
    const bool destination = !kept(key.destination);
    const bool both = source == destination;
    K to = key;
    if (source || both) {
      to.source = image(key.source, w);
      to.source_port = port(key.source_port, w);
    }
    if (destination || both) {
      to.destination = image(key.destination, w);
      to.destination_port = port(key.destination_port, w);
    }
    return to;
  }

 private:
  /// Rejected candidates in a row after which `choose` gives up: the number of addresses of two
  /// IPv4 /8.
  static constexpr std::uint64_t kPatience = std::uint64_t{1} << 25;

  static std::uint16_t port(std::uint16_t p, unsigned w) {
    return p == 0 ? p : static_cast<std::uint16_t>(1 + (p - 1U + w % 65535) % 65535);
  }

  bool kept(const A& address) const { return keep_ && keep_(address); }
  bool is_present(const A& address) const {
    return std::binary_search(present_.begin(), present_.end(), address);
  }
  const A& image(const A& address, unsigned w) const {
    const auto rank =
        std::lower_bound(present_.begin(), present_.end(), address) - present_.begin();
    return images_[(w - 1) * present_.size() + static_cast<std::size_t>(rank)];
  }

  void tidy() {
    std::sort(present_.begin(), present_.end());
    present_.erase(std::unique(present_.begin(), present_.end()), present_.end());
    next_tidy_ = std::max(present_.size() * 2, std::size_t{1} << 20);
  }

  const Keep& keep_;
  std::vector<A> present_;  // sorted and unique after `choose`
  std::vector<A> images_;   // all of window 1, then all of window 2, ...
  std::size_t next_tidy_ = std::size_t{1} << 20;
};

class Windows {
 public:
  Windows(const Capture& capture, unsigned count, const Shift& shift)
      : in_(capture),
        count_(count),
        v4_(shift.keep_v4),
        v6_(shift.keep_v6),
        out_(capture.format()) {}

  Result<Capture> make() {
    auto done = for_each_burst(in_, [this](const Burst& burst) { return note(burst); });
    if (done && !(v4_.choose(count_) && v6_.choose(count_))) {
      done = std::unexpected(Error{fmt::format(
          "not enough addresses for {} windows: ask for fewer windows, or keep fewer addresses",
          count_)});
    }
    if (done) done = for_each_burst(in_, [this](const Burst& burst) { return copy(burst); });
    if (!done) return std::unexpected(done.error());
    return std::move(out_);
  }

 private:
  Result<void> note(const Burst& burst) {
    for (const KeyV4& key : burst.v4.keys()) v4_.note(key);
    for (const KeyV6& key : burst.v6.keys()) v6_.note(key);
    return {};
  }

  Result<void> copy(const Burst& burst) {
    std::array<const KeyV4*, Burst::kMax> v4{};
    std::array<const KeyV6*, Burst::kMax> v6{};
    find_keys(burst.v4, v4);
    find_keys(burst.v6, v6);
    for (unsigned i = 0; i < burst.size; ++i) {
      const Capture::Packet& packet = in_.packet(burst.handle[i] & UINT32_MAX);
      for (unsigned w = 0; w < count_; ++w) {
        auto at = out_.append(packet.timestamp_ns, packet.wire_length, packet.bytes(),
                              in_.link(burst.handle[i] & UINT32_MAX));
        if (!at) return std::unexpected(at.error());
        if (w == 0) continue;
        if (v4[i] != nullptr) write(*v4[i], v4_.shifted(*v4[i], w), *at, burst, i);
        if (v6[i] != nullptr) write(*v6[i], v6_.shifted(*v6[i], w), *at, burst, i);
      }
    }
    return {};
  }

  template <class K>
  static void find_keys(const Lane<K>& lane, std::array<const K*, Burst::kMax>& keys) {
    for (unsigned j = 0; j < lane.size; ++j) keys[lane.packet[j]] = &lane.key[j];
  }

  template <class K>
  static void write(const K& was, const K& is, std::byte* packet, const Burst& burst, unsigned i) {
    rewrite(packet, burst.headers[i], was, is);
  }

  const Capture& in_;
  unsigned count_;
  Relabelling<KeyV4> v4_;
  Relabelling<KeyV6> v6_;
  Capture out_;
};

/// Checks the count, the number of packets and a lower bound of the memory needed, before any work.
Result<void> check(const Capture& capture, unsigned count) {
  if (count == 0) {
    return std::unexpected(Error{"0 windows: ask for 1 or more", Error::Kind::usage});
  }
  const std::uint64_t one = capture.captured_bytes() + capture.size() * sizeof(Capture::Packet);
  const std::uint64_t available = available_memory_bytes();
  if (one > available / count) {
    return std::unexpected(
        Error{fmt::format("{} windows of {} MiB do not fit into the {} MiB of memory available: "
                          "ask for at most {}",
                          count, one >> 20, available >> 20, available / one)});
  }
  if (capture.size() > Capture::kMaxPackets / count) {
    return std::unexpected(
        Error{fmt::format("{} windows have more than {} packets: ask for fewer windows", count,
                          Capture::kMaxPackets)});
  }
  return {};
}

}  // namespace

Result<Capture> windows(const Capture& capture, unsigned count, const Shift& shift) {
  if (auto possible = check(capture, count); !possible) return std::unexpected(possible.error());
  return Windows(capture, count, shift).make();
}

}  // namespace millrace
