// Sealed datagrams: what members of a cluster send each other is encrypted and authenticated with
// the cluster's key, so that neither a stranger nor a stored datagram can change anything.
//
// AES-256-GCM (NIST SP 800-38D). Each member has a key of its own for what it sends, made from the
// cluster's key and its number (HKDF with SHA-256, RFC 5869), and numbers its datagrams: so no
// number is used twice with a key, as long as no two processes have the same member number, which
// is random. A datagram names its sender and its receiver, and is of use to that receiver alone; of
// its numbers the receiver takes each once (`ReplayWindow`).
//
//      0        8        16       24           28          28 + n       44 + n
//      | sender | receiver | number | version   | n bytes    | tag        |
//
// One thread uses a `Sealer` or an `Opener`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/types.h"
#include "replicate/message.h"

struct evp_cipher_ctx_st;

namespace millrace {

/// The key that all members of a cluster have.
using ClusterKey = std::array<std::byte, 32>;

/// Makes bytes for a purpose from the cluster's key: the same at all members, and of no use to find
/// the key. Errors (failed): the library for encryption does not work.
Result<void> derive(const ClusterKey& key, std::string_view purpose, std::span<std::byte> to);

/// Returns a digest that two members compare, to see that they have the same text.
std::uint32_t digest_of(std::string_view text);

/// Version of the datagrams, and of the messages in them.
inline constexpr std::uint32_t kSealVersion = 1;

/// The ends of a sealed datagram, as it says itself: not yet authenticated.
struct SealedFor {
  Member sender = Member::none;
  Member receiver = Member::none;
};
/// Returns them; none if it is too short.
std::optional<SealedFor> ends_of(std::span<const std::byte> datagram);

/// Bytes by which a sealed datagram is longer than its content.
inline constexpr std::size_t kSealBytes = 44;

/// The numbers that have come from one sender (RFC 4303, 3.4.3). Numbers that are `kBehind` or more
/// below the highest, or up to 127 less, count as known.
class ReplayWindow {
 public:
  static constexpr unsigned kBehind = 1024;

  /// True if the number has not come before; then it is known from now on.
  bool take(std::uint64_t number);

 private:
  std::uint64_t highest_ = 0;
  bool has_any_ = false;
  std::array<std::uint64_t, kBehind / 64> seen_{};  // by number, modulo `kBehind`
};

namespace detail {
struct FreeCipher {
  void operator()(evp_cipher_ctx_st* context) const;
};
using Cipher = std::unique_ptr<evp_cipher_ctx_st, FreeCipher>;
}  // namespace detail

/// Seals what one member sends.
class Sealer {
 public:
  /// Errors (failed): the library for encryption does not work.
  static Result<Sealer> create(const ClusterKey& key, Member self);

  /// Appends a sealed datagram with that content to `to`.
  void seal(Member receiver, std::span<const std::byte> content, std::vector<std::byte>& to);

 private:
  Sealer(detail::Cipher cipher, Member self) : cipher_(std::move(cipher)), self_(self) {}

  detail::Cipher cipher_;
  Member self_;
  std::uint64_t number_ = 0;
};

/// Opens what others have sealed for one member.
class Opener {
 public:
  struct Counters {
    std::uint64_t foreign =
        0;  ///< sent by no admitted member, not sealed with the cluster's key, or changed
    std::uint64_t misled = 0;    ///< sealed for another member
    std::uint64_t replayed = 0;  ///< came before, or is much too late
    std::uint64_t version = 0;   ///< sealed by a version that this program does not know
  };
  struct Opened {
    Member sender;
    std::uint64_t number;                ///< the datagram's, from 1 on: greater than those before
    std::span<const std::byte> content;  ///< valid until the next call
  };

  Opener(const ClusterKey& key, Member self) : key_(key), self_(self) {}

  /// From now on opens what that member seals. Errors (failed): the library does not work.
  Result<void> admit(Member sender);
  bool has_admitted(Member sender) const { return senders_.contains(sender); }
  std::size_t senders() const { return senders_.size(); }
  /// Opens nothing more of that member, ...
  void forget(Member sender) { senders_.erase(sender); }
  /// Opens nothing more of members of which `is_gone(member)` is true.
  template <class IsGone>
  void forget_if(IsGone&& is_gone) {
    std::erase_if(senders_, [&](const auto& one) { return is_gone(one.first); });
  }
  /// ... or of any.
  void forget_all() { senders_.clear(); }
  /// Opens a datagram. None: it is not for this member from one that is admitted, or it came
  /// before; a counter says which.
  std::optional<Opened> open(std::span<const std::byte> datagram);
  const Counters& counters() const { return counters_; }

 private:
  struct Sender {
    detail::Cipher cipher;
    ReplayWindow window;
  };

  ClusterKey key_;
  Member self_;
  std::map<Member, Sender> senders_;
  std::vector<std::byte> content_;
  Counters counters_;
};

}  // namespace millrace
