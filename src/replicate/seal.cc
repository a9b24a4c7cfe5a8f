#include "replicate/seal.h"

#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <string_view>

namespace millrace {

namespace {

constexpr std::size_t kNonce = 12;
constexpr std::size_t kTag = 16;

struct Head {
  std::uint64_t sender;
  std::uint64_t receiver;
  std::uint64_t number;
  std::uint32_t version;
};
constexpr std::size_t kHead = 28;
static_assert(kHead + kTag == kSealBytes);

using HeadBytes = std::array<std::byte, kHead>;

HeadBytes bytes_of(const Head& head) {
  HeadBytes bytes;
  std::memcpy(bytes.data(), &head, kHead);
  return bytes;
}

unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

/// Makes bytes from the cluster's key (RFC 5869; no salt). False: the library fails.
bool derive_bytes(ClusterKey cluster, std::string info, std::span<std::byte> to) {
  std::array<char, 7> digest{"SHA256"};
  const std::array<OSSL_PARAM, 4> parameters{
      OSSL_PARAM_construct_utf8_string("digest", digest.data(), 0),
      OSSL_PARAM_construct_octet_string("key", cluster.data(), cluster.size()),
      OSSL_PARAM_construct_octet_string("info", info.data(), info.size()),
      OSSL_PARAM_construct_end()};
  EVP_KDF* const kdf = EVP_KDF_fetch(nullptr, "HKDF", nullptr);
  EVP_KDF_CTX* const context = EVP_KDF_CTX_new(kdf);
  const bool is_derived = context != nullptr && EVP_KDF_derive(context, raw(to.data()), to.size(),
                                                               parameters.data()) == 1;
  EVP_KDF_CTX_free(context);
  EVP_KDF_free(kdf);
  return is_derived;
}

/// Returns the key with which that member seals; none if the library fails.
std::optional<ClusterKey> key_of(const ClusterKey& cluster, Member sender) {
  std::string info = "millrace replicate";
  const auto number = std::bit_cast<std::array<char, sizeof(sender)>>(sender);
  info.append(number.data(), number.size());
  ClusterKey key;
  return derive_bytes(cluster, std::move(info), key) ? std::optional(key) : std::nullopt;
}

/// Returns a context that seals, or opens, with that member's key; null if the library fails.
detail::Cipher cipher_of(const ClusterKey& cluster, Member sender, bool seals) {
  const auto key = key_of(cluster, sender);
  detail::Cipher cipher(EVP_CIPHER_CTX_new());
  if (!key || cipher == nullptr) return nullptr;
  const bool is_ready = EVP_CipherInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr,
                                          raw(key->data()), nullptr, seals ? 1 : 0) == 1;
  return is_ready ? std::move(cipher) : nullptr;
}

/// Begins a datagram with that head: its number is the nonce, and the head is authenticated.
bool begin(EVP_CIPHER_CTX* cipher, const HeadBytes& head, std::uint64_t number) {
  std::array<unsigned char, kNonce> nonce{};
  std::memcpy(nonce.data(), &number, sizeof(number));
  int length = 0;
  return EVP_CipherInit_ex(cipher, nullptr, nullptr, nullptr, nonce.data(), -1) == 1 &&
         EVP_CipherUpdate(cipher, nullptr, &length, raw(head.data()), kHead) == 1;
}

std::unexpected<Error> no_cipher() {
  return std::unexpected(
      Error{"OpenSSL offers no AES-256-GCM or no HKDF: check its configuration"});
}

}  // namespace

Result<void> derive(const ClusterKey& key, std::string_view purpose, std::span<std::byte> to) {
  if (!derive_bytes(key, "millrace " + std::string(purpose), to)) return no_cipher();
  return {};
}

std::uint32_t digest_of(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  EVP_Digest(text.data(), text.size(), digest.data(), nullptr, EVP_sha256(), nullptr);
  std::uint32_t first = 0;
  std::memcpy(&first, digest.data(), sizeof(first));
  return first;
}

std::optional<SealedFor> ends_of(std::span<const std::byte> datagram) {
  if (datagram.size() < kSealBytes) return std::nullopt;
  Head head{};
  std::memcpy(&head, datagram.data(), kHead);
  return SealedFor{Member{head.sender}, Member{head.receiver}};
}

void detail::FreeCipher::operator()(evp_cipher_ctx_st* context) const {
  EVP_CIPHER_CTX_free(context);
}

bool ReplayWindow::take(std::uint64_t number) {
  const auto word = [this](std::uint64_t of) -> std::uint64_t& {
    return seen_[of / 64 % seen_.size()];
  };
  const std::uint64_t bit = std::uint64_t{1} << number % 64;
  if (!has_any_ || number > highest_) {
    // The words between the highest number and the new one are of numbers that have not come.
    const std::uint64_t first = has_any_ ? highest_ / 64 + 1 : number / 64;
    const std::uint64_t steps = number / 64 + 1 - std::min(first, number / 64 + 1);
    for (std::uint64_t n = 0; n < std::min<std::uint64_t>(steps, seen_.size()); ++n)
      word((number / 64 - n) * 64) = 0;
    highest_ = number;
    has_any_ = true;
  } else if (highest_ / 64 - number / 64 >= seen_.size() - 1 || (word(number) & bit) != 0) {
    return false;
  }
  word(number) |= bit;
  return true;
}

Result<Sealer> Sealer::create(const ClusterKey& key, Member self) {
  detail::Cipher cipher = cipher_of(key, self, true);
  if (cipher == nullptr) return no_cipher();
  return Sealer(std::move(cipher), self);
}

void Sealer::seal(Member receiver, std::span<const std::byte> content, std::vector<std::byte>& to) {
  const Head head{.sender = static_cast<std::uint64_t>(self_),
                  .receiver = static_cast<std::uint64_t>(receiver),
                  .number = ++number_,
                  .version = kSealVersion};
  const HeadBytes bytes = bytes_of(head);
  const std::size_t at = to.size();
  to.resize(at + kSealBytes + content.size());
  std::byte* const out = to.data() + at;
  std::memcpy(out, bytes.data(), kHead);
  int length = 0;
  const bool is_sealed =
      begin(cipher_.get(), bytes, head.number) &&
      EVP_CipherUpdate(cipher_.get(), raw(out + kHead), &length, raw(content.data()),
                       static_cast<int>(content.size())) == 1 &&
      EVP_CipherFinal_ex(cipher_.get(), raw(out + kHead + content.size()), &length) == 1 &&
      EVP_CIPHER_CTX_ctrl(cipher_.get(), EVP_CTRL_AEAD_GET_TAG, kTag,
                          out + kHead + content.size()) == 1;
  if (!is_sealed) to.resize(at);
}

Result<void> Opener::admit(Member sender) {
  if (senders_.contains(sender)) return {};
  detail::Cipher cipher = cipher_of(key_, sender, false);
  if (cipher == nullptr) return no_cipher();
  senders_[sender].cipher = std::move(cipher);
  return {};
}

std::optional<Opener::Opened> Opener::open(std::span<const std::byte> datagram) {
  if (datagram.size() < kSealBytes) {
    ++counters_.foreign;
    return std::nullopt;
  }
  Head head{};
  std::memcpy(&head, datagram.data(), kHead);
  if (head.version != kSealVersion) {
    ++counters_.version;
    return std::nullopt;
  }
  const auto sender = senders_.find(Member{head.sender});
  if (sender == senders_.end()) {
    ++counters_.foreign;
    return std::nullopt;
  }
  auto& [cipher, window] = sender->second;
  const std::size_t bytes = datagram.size() - kSealBytes;
  content_.resize(bytes);
  std::array<std::byte, kTag> tag;
  std::memcpy(tag.data(), datagram.data() + kHead + bytes, kTag);
  int length = 0;
  const bool is_authentic =
      begin(cipher.get(), bytes_of(head), head.number) &&
      EVP_CipherUpdate(cipher.get(), raw(content_.data()), &length, raw(datagram.data() + kHead),
                       static_cast<int>(bytes)) == 1 &&
      EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_AEAD_SET_TAG, kTag, tag.data()) == 1 &&
      EVP_CipherFinal_ex(cipher.get(), raw(content_.data() + bytes), &length) == 1;
  if (!is_authentic) {
    ++counters_.foreign;
    return std::nullopt;
  }
  if (head.receiver != static_cast<std::uint64_t>(self_)) {
    ++counters_.misled;
    return std::nullopt;
  }
  if (!window.take(head.number)) {
    ++counters_.replayed;
    return std::nullopt;
  }
  return Opened{sender->first, head.number, content_};
}

}  // namespace millrace
