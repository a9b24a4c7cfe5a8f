#include "port/capture.h"

#include <fmt/format.h>
#include <pcap/pcap.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace millrace {
namespace {

std::string link_type_name(int dlt) {
  const char* name = pcap_datalink_val_to_name(dlt);
  return name == nullptr ? std::to_string(dlt) : fmt::format("{} ({})", name, dlt);
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
      return std::unexpected(Error{fmt::format("link type {} is not read: give a capture of "
                                               "Ethernet, raw IP or Linux cooked packets",
                                               link_type_name(dlt)),
                                   Error::Kind::unreadable});
  }
}

Capture::Capture(const CaptureFormat& format) : format_(format) { set_dlts(format.dlts); }

void Capture::set_dlts(std::vector<int> dlts) {
  format_.dlts = std::move(dlts);
  link_types_.clear();
  for (const int dlt : format_.dlts)
    link_types_.push_back(link_type_of(dlt).value_or(LinkType::ethernet));
}

Result<std::byte*> Capture::append(std::uint64_t timestamp_ns, std::uint32_t wire_length,
                                   std::span<const std::byte> bytes, unsigned link) {
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
  clock_.add(timestamp_ns);
  if (link != 0 || !links_.empty()) note_link(link);
  captured_bytes_ += bytes.size();
  ++size_;
  return at;
}

/// Notes the next packet's link. `links_` stays empty until the first packet with a link other than
/// 0.
void Capture::note_link(unsigned link) {
  links_.resize(size_);
  links_.push_back(static_cast<std::uint8_t>(link));
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
