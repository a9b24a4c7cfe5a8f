// The log of port blocks for a collector of IPFIX: messages of RFC 7011 with the port block events
// of RFC 8158, over UDP.
//
//     template 256: observationTimeMilliseconds, natEvent, sourceIPv4Address, ingressVRFID,
//                   postNATSourceIPv4Address, portRangeStart, portRangeEnd, natPoolName, userName
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <concepts>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "core/address.h"
#include "core/address_numbers.h"
#include "function/event_log.h"
#include "function/nat/log_target.h"

namespace millrace {
namespace {

constexpr std::uint16_t kVersion = 10;
constexpr std::uint16_t kTemplateSet = 2;
constexpr std::uint16_t kTemplate = 256;
constexpr std::uint16_t kAnyLength = 65535;  // each value has its own length in front of it
/// Bytes of a message at most, unless a single record is larger: the path's MTU is not known
/// (RFC 7011, 10.3.3).
constexpr std::size_t kMostBytes = 512;
/// How often the template is sent again: a collector may have missed it (RFC 7011, 8.4).
constexpr std::chrono::minutes kRefresh{1};
constexpr std::uint8_t kAllocated = 16;  // natEvent: port block allocation, de-allocation
constexpr std::uint8_t kReleased = 17;

struct Element {
  std::uint16_t id;
  std::uint16_t bytes;
};
constexpr std::array<Element, 9> kElements{{{323, 8},             // observationTimeMilliseconds
                                            {230, 1},             // natEvent
                                            {8, 4},               // sourceIPv4Address
                                            {234, 4},             // ingressVRFID
                                            {225, 4},             // postNATSourceIPv4Address
                                            {361, 2},             // portRangeStart
                                            {362, 2},             // portRangeEnd
                                            {284, kAnyLength},    // natPoolName
                                            {371, kAnyLength}}};  // userName

template <std::unsigned_integral Number>
void append(std::string& bytes, Number number) {
  for (unsigned shift = 8 * sizeof(number); shift > 0;)
    bytes += static_cast<char>(number >> (shift -= 8) & 0xff);
}

/// Appends a text with its length in front: three bytes for lengths from 255 on (RFC 7011, 7).
/// Longer ones are cut, so that the record fits into a message.
void append(std::string& bytes, std::string_view text) {
  constexpr std::size_t kLongest = 32'000;
  text = text.substr(0, kLongest);
  if (text.size() < 255) {
    append(bytes, static_cast<std::uint8_t>(text.size()));
  } else {
    append(bytes, std::uint8_t{255});
    append(bytes, static_cast<std::uint16_t>(text.size()));
  }
  bytes += text;
}

/// Returns a set: its number, its length and its records.
std::string set_of(std::uint16_t id, const std::string& records) {
  std::string set;
  append(set, id);
  append(set, static_cast<std::uint16_t>(4 + records.size()));
  return set + records;
}

std::string template_record() {
  std::string record;
  append(record, kTemplate);
  append(record, static_cast<std::uint16_t>(kElements.size()));
  for (const Element& element : kElements) {
    append(record, element.id);
    append(record, element.bytes);
  }
  return record;
}

class IpfixCollector final : public LogTarget {
 public:
  IpfixCollector(const NatLog::Collector& collector, std::shared_ptr<const NatSettings> settings)
      : collector_(collector), settings_(std::move(settings)) {}
  ~IpfixCollector() override {
    if (socket_ >= 0) ::close(socket_);
  }
  IpfixCollector(const IpfixCollector&) = delete;
  IpfixCollector& operator=(const IpfixCollector&) = delete;

  std::string name() const override {
    return std::visit([this](const auto& is) { return with_port(is, collector_.port); },
                      collector_.address);
  }

  void know(std::shared_ptr<const NatSettings> settings) override {
    settings_ = std::move(settings);
  }

  /// A network that is not there yet is no reason not to start.
  Result<void> begin(bool) override { return {}; }

  Result<bool> ready() override {
    if (socket_ < 0) {
      if (auto ok = connect(); !ok) return std::unexpected(ok.error());
    }
    const auto now = std::chrono::steady_clock::now();
    if (!has_failed_ && now < refresh_at_) return false;
    if (auto ok = send(set_of(kTemplateSet, template_record()), 0); !ok)
      return std::unexpected(ok.error());
    refresh_at_ = now + kRefresh;
    return std::exchange(has_failed_, false);
  }

  Result<void> write(std::span<const LogRecord> records) override {
    constexpr std::size_t kHeaders = 16 + 4;
    std::string data;
    std::uint32_t count = 0;
    const auto flush = [&]() -> Result<void> {
      if (count == 0) return {};
      return send(set_of(kTemplate, std::exchange(data, {})), std::exchange(count, 0));
    };
    for (const LogRecord& record : records) {
      if (record.kind > LogRecord::Kind::held) continue;  // RFC 8158 has no event for it
      const std::string one = bytes_of(record);
      if (kHeaders + data.size() + one.size() > kMostBytes) {
        if (auto ok = flush(); !ok) return ok;
      }
      data += one;
      ++count;
    }
    return flush();
  }

 private:
  Error cannot(int error) const {
    return {"nat.log.ipfix: cannot send to " + name() + ": " + std::strerror(error)};
  }

  Result<void> connect() {
    sockaddr_storage to{};
    socklen_t bytes = 0;
    if (const auto* v4 = std::get_if<AddressV4>(&collector_.address)) {
      auto& is = reinterpret_cast<sockaddr_in&>(to);
      is.sin_family = AF_INET;
      is.sin_port = htons(collector_.port);
      std::memcpy(&is.sin_addr, v4->bytes.data(), v4->bytes.size());
      bytes = sizeof(is);
    } else {
      const auto& v6 = std::get<AddressV6>(collector_.address);
      auto& is = reinterpret_cast<sockaddr_in6&>(to);
      is.sin6_family = AF_INET6;
      is.sin6_port = htons(collector_.port);
      std::memcpy(&is.sin6_addr, v6.bytes.data(), v6.bytes.size());
      bytes = sizeof(is);
    }
    const int made = ::socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made < 0) return std::unexpected(cannot(errno));
    if (::connect(made, reinterpret_cast<const sockaddr*>(&to), bytes) != 0) {
      const int error = errno;
      ::close(made);
      return std::unexpected(cannot(error));
    }
    socket_ = made;
    return {};
  }

  /// Sends a message of one set with `count` data records. An error may be about an earlier
  /// message: nobody listened when it arrived.
  Result<void> send(const std::string& set, std::uint32_t count) {
    std::string message;
    append(message, kVersion);
    append(message, static_cast<std::uint16_t>(16 + set.size()));
    append(message, static_cast<std::uint32_t>(wall_time_ns() / 1'000'000'000));
    append(message, sequence_);
    append(message, std::uint32_t{0});  // observation domain: all records are of the whole exporter
    message += set;
    if (::send(socket_, message.data(), message.size(), MSG_NOSIGNAL) < 0) {
      has_failed_ = true;
      return std::unexpected(cannot(errno));
    }
    sequence_ += count;
    return {};
  }

  std::string bytes_of(const LogRecord& record) const {
    std::string bytes;
    append(bytes, record.time_ms);
    append(bytes, record.kind == LogRecord::Kind::released ? kReleased : kAllocated);
    // Behind a tunnel its far end; with a key, only the customer's number says which of several.
    append(bytes, number_of(settings_->address_of(record.customer)));
    append(bytes, std::uint32_t{zone_of(record.customer)});
    append(bytes, number_of(record.address));
    append(bytes, record.first_port);
    append(bytes, record.last_port);
    append(bytes, record.pool != nullptr ? std::string_view(*record.pool) : std::string_view());
    append(bytes, std::string_view(settings_->name_of(record.customer)));
    return bytes;
  }

  NatLog::Collector collector_;
  std::shared_ptr<const NatSettings> settings_;
  int socket_ = -1;
  std::uint32_t sequence_ = 0;  // data records in earlier messages
  bool has_failed_ = false;
  std::chrono::steady_clock::time_point refresh_at_;  // when the template is sent again
};

}  // namespace

std::unique_ptr<LogTarget> ipfix_collector(const NatLog::Collector& collector,
                                           std::shared_ptr<const NatSettings> settings) {
  return std::make_unique<IpfixCollector>(collector, std::move(settings));
}

}  // namespace millrace
