// Classes of connections: by the rule that accepted them and where their originator's packets
// arrive. An entry keeps the number of its class, in 2 bytes, so that records stay small.
//
// All workers share the classes: an open-addressed table whose places are the classes' numbers.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/burst.h"

namespace millrace {

/// The link of packets that the host itself sends.
inline constexpr std::uint8_t kHostLink = kNoLink - 1;

/// A rule for as long as the process runs: the number of a rule's name. 0: the default.
using RuleId = std::uint16_t;

struct FlowClass {
  RuleId rule = 0;
  /// The link on which the originator's packets arrive, `kNoLink` or `kHostLink`.
  std::uint8_t link = kNoLink;
  std::uint8_t icmp_type = 0;  ///< type of an ICMP query; 0: no ICMP, or not known
  bool to_host = false;        ///< the connection is to the host itself
};

class FlowClasses {
 public:
  /// Most classes; a class's number is below.
  static constexpr std::size_t kMost = 65'536;

  /// Returns the number of a class, which becomes known if it was not. If there is no room near its
  /// place, the class 0 stands for it: the default, without a link. Any thread may call
  /// it while others do.
  std::uint16_t number_of(const FlowClass& is) {
    const std::uint32_t wanted = word(is);
    std::size_t at = wanted * 0x9e3779b1U >> 16;
    for (unsigned tries = 0; tries < kTries; ++tries, at = (at + 1) % kMost) {
      std::uint32_t found = words_[at].load(std::memory_order_relaxed);
      if (at == kSpare) continue;
      if (found == 0 &&
          words_[at].compare_exchange_strong(found, wanted, std::memory_order_relaxed))
        return static_cast<std::uint16_t>(at);
      if (found == wanted) return static_cast<std::uint16_t>(at);
    }
    return kSpare;
  }
  /// Returns the class with a number that `number_of` has returned.
  FlowClass operator[](std::uint16_t number) const {
    const std::uint32_t is = words_[number].load(std::memory_order_relaxed);
    if (number == kSpare) return {};
    return {static_cast<RuleId>(is >> 1), link_of(is), kTypes[is >> 25 & 15], (is >> 29 & 1) != 0};
  }
  /// True if that class's packets of that side go to the host itself.
  bool goes_to_host(std::uint16_t number, Side side) const {
    const std::uint32_t is = words_[number].load(std::memory_order_relaxed);
    return side == Side::originator ? (is >> 29 & 1) != 0 : link_of(is) == kHostLink;
  }
  /// Forgets a class that no connection has, and that no thread looks for any more.
  void forget(std::uint16_t number) { words_[number].store(0, std::memory_order_relaxed); }
  bool is_known(std::uint16_t number) const {
    return number == kSpare || words_[number].load(std::memory_order_relaxed) != 0;
  }

 private:
  static constexpr unsigned kTries = 256;
  static constexpr std::size_t kSpare = 0;
  /// The types of queries (`Ipv4::message`, `Ipv6::message` in parse/ip.h), and 0 first.
  static constexpr std::array<std::uint8_t, 16> kTypes{0, 8, 13, 15, 17, 42, 128, 160};

  // From the lowest bit: | used 1 | rule 16 | link 8 | type 4 | to_host 1 |
  static constexpr std::uint32_t word(const FlowClass& is) {
    std::uint32_t type = 0;
    while (type < kTypes.size() && kTypes[type] != is.icmp_type) ++type;
    return 1U | std::uint32_t{is.rule} << 1 | std::uint32_t{is.link} << 17 |
           (type < kTypes.size() ? type : 0) << 25 | std::uint32_t{is.to_host} << 29;
  }
  static constexpr std::uint8_t link_of(std::uint32_t is) {
    return static_cast<std::uint8_t>(is >> 17);
  }

  std::array<std::atomic<std::uint32_t>, kMost> words_{};
};

}  // namespace millrace
