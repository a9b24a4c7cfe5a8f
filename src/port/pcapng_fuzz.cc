// Fuzzes the pcapng reader with arbitrary blocks, most of them with correct lengths, and the
// capture clock with the resulting times. Expects that no packet reaches beyond the file, and that
// time stays within its range.
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>

#include "port/capture_clock.h"
#include "port/pcapng_reader.h"

using namespace millrace;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

/// Makes a section, then block after block from `data`: the first three bytes choose a block's
/// type, its length and errors of its lengths; the body follows.
class File {
 public:
  explicit File(std::span<const std::uint8_t> data) {
    section(28, 16);
    put(std::uint32_t{1});  // version
    bytes_.append(8, '\0');
    put(std::uint32_t{28});
    while (data.size() >= 3) data = data.subspan(3 + block(data));
  }
  const std::string& bytes() const { return bytes_; }

 private:
  static constexpr std::uint32_t kSection = 0x0a0d0d0a;

  void put(std::uint32_t value) {
    if (swapped_) value = std::byteswap(value);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void section(std::uint32_t length, unsigned order) {
    swapped_ = order % 2 != 0;
    put(kSection);
    put(length);
    put(0x1a2b3c4d);
  }
  /// Appends a block, and returns how many bytes of `data` behind the first three became its body.
  std::size_t block(std::span<const std::uint8_t> data) {
    constexpr std::array<std::uint32_t, 8> kTypes{kSection, 1, 2, 3, 5, 6, 6, 77};
    const std::uint32_t type = kTypes[data[0] % 8];
    const std::size_t body = std::min<std::size_t>(data[1] / 4 * 4, (data.size() - 3) / 4 * 4);
    // In about one block of 16 both lengths are wrong; in about one of 40 only the length behind
    // the body is.
    const auto wrong = static_cast<std::uint32_t>(data[2] < 16 ? data[2] - 8 : 0);
    const bool lengths = is_packet(type) && body > 20;
    const std::uint32_t more = type == kSection ? 4 : lengths ? 8 : 0;
    const auto length = static_cast<std::uint32_t>(body + 12) + more + wrong;
    if (type == kSection) {
      section(length, data[2]);
    } else {
      put(type);
      put(length);
    }
    const auto rest = data.subspan(3, body);
    if (lengths) {  // interface, time, captured length, which is right in most blocks
      put(data[2] / 16 % 4);
      append(rest.first(8));
      const auto left = static_cast<std::uint32_t>(body - 12);
      put(rest[8] % 4 == 0 ? left + rest[9] % 32 - 16 : left);
      append(rest.subspan(8));
    } else {
      append(rest);
    }
    put(length + (data[2] >= 250 ? 4 : 0));
    return body;
  }
  static bool is_packet(std::uint32_t type) { return type == 2 || type == 6; }
  void append(std::span<const std::uint8_t> bytes) {
    bytes_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  bool swapped_ = false;
  std::string bytes_;
};

/// Number of bytes of the shortest packet block, besides its data.
constexpr std::size_t kLeastAround = 16;

void read(std::string bytes) {
  if (bytes.empty()) return;
  // The stream ends where `bytes` end; the check of `total` below finds packets that reach beyond.
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      ::fmemopen(bytes.data(), bytes.size(), "rb"), std::fclose);
  PcapngReader reader(file.get());
  PcapngReader::Packet packet;
  CaptureClock clock;
  std::size_t total = 0;
  std::size_t packets = 0;
  std::uint64_t now = 0;
  std::uint64_t at = 0;
  for (;;) {
    const auto more = reader.next(packet);
    if (!more) require(!more.error().message.empty());
    if (!more || !*more) break;
    require(reader.has_begun());
    ++packets;
    total += packet.data.size();
    require(total + packets * kLeastAround <= bytes.size());
    unsigned sum = 0;
    for (const std::byte byte : packet.data) sum += static_cast<unsigned>(byte);
    require(sum <= 255 * packet.data.size());
    at = packet.time_ns.value_or(at);
    require(at <= CaptureClock::kLatest);
    clock.add(at);
    require(clock.latest_ns() >= now || !clock.is_plain());
    now = clock.latest_ns();
  }
  for (std::size_t i = 0; i < packets; ++i) {
    require(clock.alike_until(i) > i);
    require(clock.time_ns(i, at) <= CaptureClock::kLatest);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(data, size);
  read({reinterpret_cast<const char*>(data), size});
  read(File(bytes).bytes());
  return 0;
}
