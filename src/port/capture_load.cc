// Capture::load: libpcap reads pcap, pcapng_reader.h reads pcapng; the file's first byte decides.
#include <fmt/format.h>
#include <pcap/pcap.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/available_memory.h"
#include "port/capture.h"
#include "port/pcapng_reader.h"

namespace millrace {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 18;
constexpr int kPcapngBegins = 0x0a;  // first byte of pcapng, and of no kind of pcap

std::unexpected<Error> unreadable(std::string message) {
  return std::unexpected(Error{std::move(message), Error::Kind::unreadable});
}

/// Checks the file's existence, kind and size, for a clearer message than libpcap's.
Result<void> check_is_file(const std::string& path) {
  struct stat s{};
  if (::stat(path.c_str(), &s) != 0) {
    return unreadable(
        fmt::format("{}: {}: give an existing pcap or pcapng file", path, std::strerror(errno)));
  }
  if (S_ISDIR(s.st_mode)) {
    return unreadable(fmt::format("{}: is a directory: give a pcap or pcapng file", path));
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

/// Opens a file. Standard input's descriptor is duplicated, so closing the file leaves it open.
std::FILE* open_file(const std::string& path) {
  if (path != "-") return std::fopen(path.c_str(), "rbe");
  const int fd = ::dup(STDIN_FILENO);
  return fd < 0 ? nullptr : ::fdopen(fd, "rb");
}

/// Returns the nanoseconds since 1970. Seconds are 32 unsigned bits in pcap files.
std::uint64_t nanoseconds(const timeval& t) {
  return std::uint64_t{static_cast<std::uint32_t>(t.tv_sec)} * 1'000'000'000 +
         static_cast<std::uint32_t>(t.tv_usec);
}

/// Returns the DLT_... for a LINKTYPE_.... Among the supported types only raw IP's numbers differ.
int dlt_of(std::uint16_t link_type) {
  constexpr std::uint16_t kLinktypeRaw = 101;
  return link_type == kLinktypeRaw ? DLT_RAW : link_type;
}

}  // namespace

class CaptureLoader {
 public:
  explicit CaptureLoader(const std::string& path)
      : path_(path), name_(path == "-" ? "standard input" : path) {}

  Result<Capture> load() {
    if (auto ok = open(); !ok) return std::unexpected(ok.error());
    const int first = std::getc(file_.get());
    if (first == EOF) {
      if (std::ferror(file_.get()) != 0) return no_capture(std::strerror(errno));
      return unreadable(name_ + ": is empty: give a pcap or pcapng file");
    }
    if (const auto program = compressed_by(first); !program.empty()) {
      return unreadable(fmt::format("{}: is compressed: {} -dc {} | millrace ... --in -", name_,
                                    program, path_ == "-" ? "FILE" : path_));
    }
    std::ungetc(first, file_.get());
    auto ok = first == kPcapngBegins ? load_pcapng() : load_pcap();
    if (!ok) return std::unexpected(ok.error());
    return std::move(capture_);
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
    void operator()(pcap_t* pcap) const { pcap_close(pcap); }
  };

  Result<void> open() {
    if (path_ != "-") {
      if (auto ok = check_is_file(path_); !ok) return ok;
    }
    file_.reset(open_file(path_));
    if (file_ == nullptr) {
      return unreadable(fmt::format("{}: {}: give a pcap or pcapng file that may be read", name_,
                                    std::strerror(errno)));
    }
    std::setvbuf(file_.get(), buffer_.data(), _IOFBF, buffer_.size());
    return {};
  }

  /// Returns the name of the program that can decompress the file; empty if the file's first bytes
  /// are not those of a compressed file. `first` is the first byte. The function reads more bytes
  /// only if `first` begins no capture, since more than one byte cannot be put back.
  std::string_view compressed_by(int first) {
    using std::string_view_literals::operator""sv;
    struct Magic {
      std::string_view bytes;
      std::string_view program;
    };
    constexpr std::array kMagic{Magic{"\x1f\x8b"sv, "gzip"}, Magic{"\x28\xb5\x2f\xfd"sv, "zstd"},
                                Magic{"\xfd\x37\x7a\x58\x5a\x00"sv, "xz"}};
    for (const auto& [bytes, program] : kMagic) {
      if (first != static_cast<unsigned char>(bytes[0])) continue;
      const bool is_it = std::ranges::all_of(bytes.substr(1), [this](char wanted) {
        return std::getc(file_.get()) == static_cast<unsigned char>(wanted);
      });
      return is_it ? program : std::string_view();
    }
    return {};
  }

  std::unexpected<Error> no_capture(std::string_view why) const {
    return unreadable(fmt::format(
        "{}: is no capture that can be read ({}): give a pcap or pcapng file", name_, why));
  }

  void lose(std::string_view why) {
    capture_.loss_ = fmt::format("{}: unreadable after {} packets ({}): used as far as it goes",
                                 name_, capture_.size(), why);
  }

  void note_time(std::uint64_t at) {
    CaptureFormat& format = capture_.format_;
    if (!format.nanoseconds) format.nanoseconds = at % 1000 != 0;
    if (at >= kPcapSeconds * 1'000'000'000) format.beyond_2106 = true;
  }

  std::unexpected<Error> no_room(const Error& error) const {
    return std::unexpected(Error{name_ + ": " + error.message});
  }

  Result<void> load_pcap() {
    std::array<char, PCAP_ERRBUF_SIZE> why{};
    const std::unique_ptr<pcap_t, Close> pcap(pcap_fopen_offline_with_tstamp_precision(
        file_.get(), PCAP_TSTAMP_PRECISION_NANO, why.data()));
    if (pcap == nullptr) return no_capture(why.data());
    static_cast<void>(file_.release());  // libpcap closes the file
    const int dlt = pcap_datalink(pcap.get());
    if (auto type = link_type_of(dlt); !type)
      return unreadable(fmt::format("{}: {}", name_, type.error().message));
    capture_.set_dlts({dlt});
    capture_.format_.snaplen = static_cast<std::uint32_t>(pcap_snapshot(pcap.get()));
    pcap_pkthdr* header = nullptr;
    const u_char* bytes = nullptr;
    int outcome;
    while ((outcome = pcap_next_ex(pcap.get(), &header, &bytes)) == 1) {
      const std::uint64_t at = nanoseconds(header->ts);
      note_time(at);
      auto kept = capture_.append(at, header->len,
                                  std::as_bytes(std::span(bytes, std::size_t{header->caplen})));
      if (!kept) return no_room(kept.error());
    }
    if (outcome == PCAP_ERROR) lose(pcap_geterr(pcap.get()));
    return {};
  }

  Result<void> load_pcapng() {
    PcapngReader reader(file_.get());
    PcapngReader::Packet packet;
    Result<bool> more = true;
    std::uint64_t at = 0;
    std::uint32_t largest = 0;
    while ((more = reader.next(packet)) && *more) {
      const auto link = link_of(packet);
      if (!link) return std::unexpected(link.error());
      at = packet.time_ns.value_or(at);  // a block without a time takes the previous packet's
      note_time(at);
      auto kept = capture_.append(at, packet.wire_length, packet.data, *link);
      if (!kept) return no_room(kept.error());
      largest = std::max(largest, static_cast<std::uint32_t>(packet.data.size()));
    }
    if (!more && !reader.has_begun()) return no_capture(more.error().message);
    if (!more) lose(more.error().message);
    if (reader.snap_length() != 0) capture_.format_.snaplen = reader.snap_length();
    capture_.format_.snaplen = std::max(capture_.format_.snaplen, largest);
    if (const auto type = reader.first_link_type();
        capture_.size() == 0 && type && link_type_of(dlt_of(*type)))
      capture_.set_dlts({dlt_of(*type)});
    return {};
  }

  /// Returns the index of the packet's link type in the capture's format, to which a new link type
  /// is appended. Errors: unreadable (a link type that cannot be read).
  Result<unsigned> link_of(const PcapngReader::Packet& packet) {
    const int dlt = dlt_of(packet.link_type);
    const std::vector<int>& known = capture_.format_.dlts;
    const auto found = std::ranges::find(known, dlt);
    if (capture_.size() > 0 && found != known.end())
      return static_cast<unsigned>(found - known.begin());
    if (auto type = link_type_of(dlt); !type) {
      return unreadable(fmt::format("{}: packet {} (interface {}): {}", name_, capture_.size() + 1,
                                    packet.interface, type.error().message));
    }
    std::vector<int> dlts;
    if (capture_.size() > 0) dlts = known;
    dlts.push_back(dlt);
    capture_.set_dlts(dlts);
    return static_cast<unsigned>(dlts.size() - 1);
  }

  const std::string& path_;
  std::string name_;                                            // the file's name in messages
  std::vector<char> buffer_ = std::vector<char>(kBufferBytes);  // stdio's; must outlive `file_`
  std::unique_ptr<std::FILE, Close> file_;
  Capture capture_{CaptureFormat{}};
};

Result<Capture> Capture::load(const std::string& path) { return CaptureLoader(path).load(); }

}  // namespace millrace
