// The signatures of `dhash`: 32-bit digests of a key, by the four algorithms of the DHash paper
// (Zhang et al., section III.B), and the slot that a signature prefers (III.C).
//
// The paper digests the IPv4 4-tuple. Here a key's protocol and zone count as one further word. An
// algorithm that only XORs folds an IPv6 address into 32 bits word by word; a CRC reads all of the
// address. Signatures are not keyed: an attacker that chooses the five-tuples can make them equal
// (docs/dhash.md).
//
// A signature is *symmetric* if both directions of a connection have the same one; otherwise the
// signature of the opposite direction has its halves swapped.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "millrace/detail/isa.h"
#include "millrace/key.h"

namespace millrace {

namespace detail {

inline constexpr auto kCrc32cBytes = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    table[i] = crc;
  }
  return table;
}();

/// Computes CRC32c, not inverted, as the `crc32` instruction of SSE4.2 does.
constexpr std::uint32_t crc32c_portable(std::uint32_t crc, std::uint64_t word) {
  for (int byte = 0; byte < 8; ++byte, word >>= 8)
    crc = crc >> 8 ^ kCrc32cBytes[(crc ^ static_cast<std::uint32_t>(word)) & 0xff];
  return crc;
}

inline namespace MILLRACE_ISA {

/// Adds eight bytes to a CRC32c, not inverted.
inline std::uint32_t crc32c(std::uint32_t crc, std::uint64_t word) {
#if defined(__SSE4_2__)
  return static_cast<std::uint32_t>(_mm_crc32_u64(crc, word));
#else
  return crc32c_portable(crc, word);
#endif
}

/// Adds two addresses to a CRC, `a` first.
template <unsigned kBytes>
std::uint32_t crc32c(std::uint32_t crc, const Address<kBytes>& a, const Address<kBytes>& b) {
  std::array<std::uint64_t, kBytes / 4> words;
  std::memcpy(words.data(), a.bytes.data(), kBytes);
  std::memcpy(reinterpret_cast<unsigned char*>(words.data()) + kBytes, b.bytes.data(), kBytes);
  for (const std::uint64_t word : words) crc = crc32c(crc, word);
  return crc;
}

template <unsigned kBytes>
Address<kBytes> xor_of(const Address<kBytes>& a, const Address<kBytes>& b) {
  Address<kBytes> both;
  for (unsigned i = 0; i < kBytes; ++i)
    both.bytes[i] = static_cast<std::uint8_t>(a.bytes[i] ^ b.bytes[i]);
  return both;
}

/// Returns the last eight bytes of the key: ports in the lower half, source first; protocol and
/// zone in the upper half.
template <class K>
std::uint64_t ports_word(const K& key) {
  return key.word(sizeof(K) - 8);
}
/// Returns the last eight bytes of the key, but with the XOR of the ports in the lower half.
template <class K>
std::uint64_t ports_xored(const K& key) {
  const std::uint64_t word = ports_word(key);
  return (word & 0xffffffff'00000000) | ((word ^ word >> 16) & 0xffff);
}

inline constexpr std::uint32_t kCrcStart = 0xffffffff;

}  // namespace MILLRACE_ISA
}  // namespace detail

inline namespace MILLRACE_ISA {

constexpr std::uint32_t halves_swapped(std::uint32_t signature) { return std::rotl(signature, 16); }

/// Algorithm 1: SrcIP ^ DestIP ^ SrcPort ^ DestPort.
struct XorSignature {
  static constexpr std::string_view kPlainName = "dhash-xor-plain";
  static constexpr std::string_view kSummary = "dhash with signatures by XOR";
  static constexpr bool kSymmetric = true;

  template <class K>
  static std::uint32_t of(const K& key) {
    const auto both = detail::xor_of(key.source, key.destination);
    const std::uint64_t ports = detail::ports_xored(key);
    auto signature = static_cast<std::uint32_t>(ports ^ ports >> 32);
    for (unsigned i = 0; i < both.kBytes; i += 4) {
      std::uint32_t word = 0;
      std::memcpy(&word, both.bytes.data() + i, 4);
      signature ^= word;
    }
    return signature;
  }
};

/// Algorithm 2: CRC(SrcIP ^ DestIP | SrcPort ^ DestPort).
struct CrcOfXorSignature {
  static constexpr std::string_view kPlainName = "dhash-crc-xor-plain";
  static constexpr std::string_view kSummary = "dhash with signatures by CRC of XORs";
  static constexpr bool kSymmetric = true;

  template <class K>
  static std::uint32_t of(const K& key) {
    const auto both = detail::xor_of(key.source, key.destination);
    return detail::crc32c(detail::crc32c(detail::kCrcStart, both, {}), detail::ports_xored(key));
  }
};

/// Algorithm 3: CRC(SrcIP | DestIP | SrcPort ^ DestPort) ^ CRC(DestIP | SrcIP | SrcPort ^
/// DestPort). A CRC is linear, so the ports, which both CRCs read alike, cancel in the XOR: all
/// connections between two hosts have the same signature.
struct XorOfCrcSignature {
  static constexpr std::string_view kPlainName = "dhash-xor-crc-plain";
  static constexpr std::string_view kSummary = "dhash with signatures by XOR of CRCs";
  static constexpr bool kSymmetric = true;

  template <class K>
  static std::uint32_t of(const K& key) {
    const std::uint64_t ports = detail::ports_xored(key);
    const auto crc = [&](const auto& a, const auto& b) {
      return detail::crc32c(detail::crc32c(detail::kCrcStart, a, b), ports);
    };
    return crc(key.source, key.destination) ^ crc(key.destination, key.source);
  }
};

/// Algorithm 4, the paper's best: the upper 16 bits of CRC(SrcIP | DestIP | SrcPort | DestPort),
/// then the upper 16 bits of CRC(DestIP | SrcIP | DestPort | SrcPort).
struct CrcPairSignature {
  static constexpr std::string_view kPlainName = "dhash-plain";
  static constexpr std::string_view kSummary =
      "each bucket is a cache line of 16 signatures, keys are in the records, conflict lists "
      "(DHash)";
  static constexpr bool kSymmetric = false;

  template <class K>
  static std::uint32_t of(const K& key) {
    const std::uint64_t ports = detail::ports_word(key);
    const std::uint64_t reversed =
        (ports & 0xffffffff'00000000) | (ports & 0xffff) << 16 | (ports >> 16 & 0xffff);
    using detail::crc32c;
    const std::uint32_t there =
        crc32c(crc32c(detail::kCrcStart, key.source, key.destination), ports);
    const std::uint32_t back =
        crc32c(crc32c(detail::kCrcStart, key.destination, key.source), reversed);
    return (there & 0xffff0000) | back >> 16;
  }
};

/// Returns the slot, 0 to 15, at which a search begins. The slot is the same in both directions.
/// The paper's function (1) computes it for symmetric signatures, function (2) for others.
template <class Signature>
constexpr unsigned major_location(std::uint32_t signature) {
  if constexpr (Signature::kSymmetric) return signature & 0xf;
  return (signature & 0xf) ^ (signature >> 16 & 0xf);
}

}  // namespace MILLRACE_ISA
}  // namespace millrace
