#include "port/capture_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pcap/pcap.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "port/pcapng.h"
#include "port/write_error.h"

namespace millrace {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

/// Returns errno; EIO if errno is 0, which would mean success.
int why_not() { return errno != 0 ? errno : EIO; }

/// Returns `path` with symbolic links resolved, so that a link stays and its target is replaced.
std::string resolved(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr),
                                                         &std::free);
  return real == nullptr ? path : std::string(real.get());
}

/// Creates a new file beside `path`, and stores its name in `temporary`. Returns a file descriptor;
/// -1 with errno set on failure.
int open_beside(const std::string& path, std::string& temporary) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  for (unsigned n = 0;; ++n) {
    temporary = fmt::format("{}.{}-{}.partial", path, ::getpid(), n);
    const int fd = ::open(temporary.c_str(), kFlags, 0666);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
}

int open_output(const std::string& path, std::string& temporary) {
  struct stat s{};
  if (::stat(path.c_str(), &s) != 0) return open_beside(path, temporary);
  if (S_ISDIR(s.st_mode)) {
    errno = EISDIR;
    return -1;
  }
  if (!S_ISREG(s.st_mode)) return ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (::access(path.c_str(), W_OK) != 0) return -1;
  return open_beside(path, temporary);
}

/// Returns the LINKTYPE_... for a DLT_.... Among the supported types only raw IP's numbers differ.
std::uint16_t link_type_number(int dlt) {
  constexpr std::uint16_t kLinktypeRaw = 101;
  const bool raw = link_type_of(dlt).value_or(LinkType::ethernet) == LinkType::raw_ip;
  return raw && dlt < kLinktypeRaw ? kLinktypeRaw : static_cast<std::uint16_t>(dlt);
}

}  // namespace

struct CaptureWriter::State {
  std::FILE* file = nullptr;
  pcap_t* pcap = nullptr;
  pcap_dumper_t* dumper = nullptr;  // writes pcap to the file; null: pcapng
  bool nanoseconds = false;
  std::vector<char> buffer;       // stdio's buffer; must outlive the file
  std::vector<std::byte> packet;  // head and tail joined

  /// Closes the file. False: its last bytes could not be written. (pcap_dump_close also calls
  /// fclose, but does not return its result.)
  bool close() {
    if (file == nullptr) return true;
    return std::fclose(std::exchange(file, nullptr)) == 0;
  }

  void write_pcap(std::uint64_t timestamp_ns, std::uint32_t wire_length,
                  std::span<const std::byte> bytes) {
    const auto below_second = timestamp_ns % 1'000'000'000;
    pcap_pkthdr header{};
    header.ts.tv_sec = static_cast<time_t>(timestamp_ns / 1'000'000'000);
    header.ts.tv_usec = static_cast<suseconds_t>(nanoseconds ? below_second : below_second / 1000);
    header.caplen = static_cast<bpf_u_int32>(bytes.size());
    header.len = wire_length;
    pcap_dump(reinterpret_cast<u_char*>(dumper), &header,
              reinterpret_cast<const u_char*>(bytes.data()));
  }

  void write_pcapng(std::uint64_t timestamp_ns, std::uint32_t wire_length,
                    std::span<const std::byte> bytes, unsigned link) {
    const std::string block = pcapng_packet({.interface = link,
                                             .time_ns = timestamp_ns,
                                             .wire_length = wire_length,
                                             .data = bytes,
                                             .comment = {}});
    std::fwrite(block.data(), 1, block.size(), file);
  }

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    close();
    if (pcap != nullptr) pcap_close(pcap);
  }
};

Result<CaptureWriter> CaptureWriter::create(const std::string& path, const CaptureFormat& format) {
  CaptureWriter writer;
  writer.path_ = path == "-" ? "standard output" : path;
  writer.final_ = resolved(path);
  std::string temporary;
  const int fd = path == "-" ? ::dup(STDOUT_FILENO) : open_output(writer.final_, temporary);
  if (fd < 0) return std::unexpected(write_error(writer.path_, errno));
  writer.temporary_ = std::move(temporary);
  std::FILE* file = ::fdopen(fd, "wb");
  if (file == nullptr) {
    const int why = errno;
    ::close(fd);
    return std::unexpected(write_error(writer.path_, why));
  }
  writer.state_ = std::make_unique<State>();
  State& state = *writer.state_;
  state.file = file;
  state.buffer.resize(kBlockBytes);
  std::setvbuf(file, state.buffer.data(), _IOFBF, state.buffer.size());
  errno = 0;
  if (!writer.begin(format))
    return std::unexpected(write_error(writer.path_, errno != 0 ? errno : ENOMEM));
  return writer;
}

/// Writes the file's header. False: no memory, or the write failed.
bool CaptureWriter::begin(const CaptureFormat& format) {
  State& state = *state_;
  state.nanoseconds = format.nanoseconds;
  if (format.needs_pcapng()) {
    std::vector<std::uint16_t> link_types;
    for (const int dlt : format.dlts) link_types.push_back(link_type_number(dlt));
    const std::string beginning = pcapng_beginning(link_types, format.snaplen);
    return std::fwrite(beginning.data(), 1, beginning.size(), state.file) == beginning.size();
  }
  state.pcap = pcap_open_dead_with_tstamp_precision(
      format.dlts.front(), static_cast<int>(format.snaplen),
      format.nanoseconds ? PCAP_TSTAMP_PRECISION_NANO : PCAP_TSTAMP_PRECISION_MICRO);
  if (state.pcap != nullptr) state.dumper = pcap_dump_fopen(state.pcap, state.file);
  return state.dumper != nullptr;
}

CaptureWriter::CaptureWriter(CaptureWriter&& other) noexcept { *this = std::move(other); }

CaptureWriter& CaptureWriter::operator=(CaptureWriter&& other) noexcept {
  std::swap(state_, other.state_);
  std::swap(path_, other.path_);
  std::swap(final_, other.final_);
  std::swap(temporary_, other.temporary_);
  std::swap(packets_, other.packets_);
  std::swap(failure_, other.failure_);
  return *this;
}

CaptureWriter::~CaptureWriter() { remove_temporary(); }

void CaptureWriter::remove_temporary() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

void CaptureWriter::write(std::uint64_t timestamp_ns, std::uint32_t wire_length,
                          std::span<const std::byte> head, std::span<const std::byte> tail,
                          unsigned link) {
  if (failure_ != 0) return;
  std::span<const std::byte> bytes = head;
  if (!tail.empty()) {
    state_->packet.assign(head.begin(), head.end());
    state_->packet.insert(state_->packet.end(), tail.begin(), tail.end());
    bytes = state_->packet;
  }
  errno = 0;
  if (state_->dumper == nullptr) {
    state_->write_pcapng(timestamp_ns, wire_length, bytes, link);
  } else {
    state_->write_pcap(timestamp_ns, wire_length, bytes);
  }
  if (std::ferror(state_->file) != 0) {
    failure_ = why_not();
  } else {
    ++packets_;
  }
}

Result<void> CaptureWriter::finish() {
  errno = 0;
  if (failure_ == 0 && std::fflush(state_->file) != 0) failure_ = why_not();
  errno = 0;
  if (!state_->close() && failure_ == 0) failure_ = why_not();
  state_.reset();
  if (failure_ == 0 && !temporary_.empty() &&
      std::rename(temporary_.c_str(), final_.c_str()) != 0) {
    failure_ = why_not();
  }
  if (failure_ != 0) {
    remove_temporary();
    Error e = write_error(path_, failure_);
    e.kind = Error::Kind::failed;
    return std::unexpected(std::move(e));
  }
  temporary_.clear();
  return {};
}

}  // namespace millrace
