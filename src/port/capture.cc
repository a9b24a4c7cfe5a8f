#include "port/capture.h"

#include <fmt/format.h>
#include <pcap/pcap.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <string_view>

#include "core/available_memory.h"

namespace millrace {
namespace {

std::unexpected<Error> unreadable(std::string message) {
  return std::unexpected(Error{std::move(message), Error::Kind::unreadable});
}

struct PcapClose {
  void operator()(pcap_t* p) const { pcap_close(p); }
};
using Pcap = std::unique_ptr<pcap_t, PcapClose>;

std::string link_type_name(int dlt) {
  const char* name = pcap_datalink_val_to_name(dlt);
  return name == nullptr ? std::to_string(dlt) : fmt::format("{} ({})", name, dlt);
}

/// What the file system knows to be wrong, before libpcap words it in its own way.
Result<void> check_is_file(const std::string& path) {
  struct stat s{};
  if (::stat(path.c_str(), &s) != 0) {
    return unreadable(
        fmt::format("{}: {}: give an existing pcap or pcapng file", path, std::strerror(errno)));
  }
  if (S_ISDIR(s.st_mode)) {
    return unreadable(fmt::format("{}: is a directory: give a pcap or pcapng file", path));
  }
  if (S_ISREG(s.st_mode) && s.st_size == 0) {
    return unreadable(fmt::format("{}: is empty: give a pcap or pcapng file", path));
  }
  const auto bytes = static_cast<std::uint64_t>(s.st_size);
  if (const auto available = available_memory_bytes(); S_ISREG(s.st_mode) && bytes > available) {
    return std::unexpected(
        Error{fmt::format("{}: {} MiB do not fit into the {} MiB of memory available: "
                          "use a smaller capture",
                          path, bytes >> 20, available >> 20)});
  }
  return {};
}

/// libpcap's words without the path in front, which the caller has said already.
std::string_view without_path(std::string_view message, const std::string& path) {
  if (message.starts_with(path + ": ")) message.remove_prefix(path.size() + 2);
  return message;
}

Result<Pcap> open(const std::string& path) {
  if (path != "-") {
    if (auto file = check_is_file(path); !file) return std::unexpected(file.error());
  }
  std::array<char, PCAP_ERRBUF_SIZE> why{};
  Pcap pcap(pcap_open_offline_with_tstamp_precision(path.c_str(), PCAP_TSTAMP_PRECISION_NANO,
                                                    why.data()));
  if (pcap == nullptr) {
    return unreadable(
        fmt::format("{}: is no capture that can be read ({}): give a pcap or pcapng file", path,
                    without_path(why.data(), path)));
  }
  return pcap;
}

/// Seconds are 32 bits in pcap files; a pcapng file that claims more is taken modulo that.
std::uint64_t nanoseconds(const timeval& t) {
  return std::uint64_t{static_cast<std::uint32_t>(t.tv_sec)} * 1'000'000'000 +
         static_cast<std::uint32_t>(t.tv_usec);
}

}  // namespace

Result<LinkType> link_type_of(int dlt) {
  constexpr int kRawOpenBsd = 14;
  constexpr int kLinktypeRaw = 101;
  switch (dlt) {
    case DLT_EN10MB:
      return LinkType::ethernet;
    case DLT_RAW:
    case kRawOpenBsd:
    case kLinktypeRaw:
    case DLT_IPV4:
    case DLT_IPV6:
      return LinkType::raw_ip;
    case DLT_LINUX_SLL:
      return LinkType::linux_cooked;
    case DLT_LINUX_SLL2:
      return LinkType::linux_cooked2;
    default:
      return unreadable(fmt::format(
          "link type {} is not read: give a capture of Ethernet, raw IP or Linux cooked packets",
          link_type_name(dlt)));
  }
}

Capture::Capture(const CaptureFormat& format)
    : format_(format), link_type_(link_type_of(format.dlt).value_or(LinkType::ethernet)) {}

Result<Capture> Capture::load(const std::string& path) {
  auto pcap = open(path);
  if (!pcap) return std::unexpected(pcap.error());
  const int dlt = pcap_datalink(pcap->get());
  if (auto type = link_type_of(dlt); !type) {
    return unreadable(fmt::format("{}: {}", path, type.error().message));
  }
  Capture capture({dlt, static_cast<std::uint32_t>(pcap_snapshot(pcap->get())), false});
  pcap_pkthdr* header = nullptr;
  const u_char* bytes = nullptr;
  int outcome;
  while ((outcome = pcap_next_ex(pcap->get(), &header, &bytes)) == 1) {
    const auto at = nanoseconds(header->ts);
    capture.format_.nanoseconds |= at % 1000 != 0;
    auto kept = capture.append(at, header->len,
                               std::as_bytes(std::span(bytes, std::size_t{header->caplen})));
    if (!kept) return std::unexpected(Error{path + ": " + kept.error().message});
  }
  if (outcome == PCAP_ERROR) {
    capture.warning_ =
        fmt::format("{}: unreadable after {} packets ({}): used as far as it goes", path,
                    capture.size(), without_path(pcap_geterr(pcap->get()), path));
  }
  return capture;
}

Result<std::byte*> Capture::append(std::uint64_t timestamp_ns, std::uint32_t wire_length,
                                   std::span<const std::byte> bytes) {
  if (size_ == kMaxPackets) {
    return std::unexpected(
        Error{fmt::format("more than {} packets: split the capture", kMaxPackets)});
  }
  const bool fits =
      ((size_ & kBlockMask) != 0 || size_ >> kBlockShift < index_.size() || add_block()) &&
      ((free_ != nullptr && bytes.size() <= free_bytes_) || add_chunk(bytes.size()));
  if (!fits) {
    return std::unexpected(Error{fmt::format(
        "no memory after {} packets ({} MiB): use a smaller capture", size_, memory_bytes_ >> 20)});
  }
  std::byte* at = free_;
  if (!bytes.empty()) std::memcpy(at, bytes.data(), bytes.size());
  free_ += bytes.size();
  free_bytes_ -= bytes.size();
  index_[size_ >> kBlockShift][size_ & kBlockMask] = {
      timestamp_ns, at, static_cast<std::uint32_t>(bytes.size()), wire_length};
  if (size_ == 0) first_ns_ = latest_ns_ = timestamp_ns;
  latest_ns_ = std::max(latest_ns_, timestamp_ns);
  captured_bytes_ += bytes.size();
  ++size_;
  return at;
}

bool Capture::add_block() {
  auto* block = new (std::nothrow) Packet[std::size_t{1} << kBlockShift];
  if (block == nullptr) return false;
  index_.emplace_back(block);
  memory_bytes_ += sizeof(Packet) << kBlockShift;
  return true;
}

bool Capture::add_chunk(std::size_t at_least) {
  const std::size_t bytes = std::max(next_chunk_, at_least) + kSlack;
  auto* chunk = new (std::nothrow) std::byte[bytes];
  if (chunk == nullptr) return false;
  chunks_.emplace_back(chunk);
  free_ = chunk;
  free_bytes_ = bytes - kSlack;
  next_chunk_ = std::min(next_chunk_ * 2, kLargestChunk);
  memory_bytes_ += bytes;
  return true;
}

}  // namespace millrace
