// The log of port blocks as a file of JSON lines (docs/nat.md).
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "core/address.h"
#include "core/json.h"
#include "core/protocol.h"
#include "function/event_log.h"
#include "function/nat/log_target.h"

namespace millrace {
namespace {

std::string_view reason_of(LogRecord::Kind kind) {
  switch (kind) {
    case LogRecord::Kind::take_over:
      return "take-over";
    case LogRecord::Kind::new_place:
      return "new file";
    case LogRecord::Kind::gap:
      return "gap";
    case LogRecord::Kind::reload:
      return "reload";
    default:
      return "start";
  }
}

std::string_view event_of(LogRecord::Kind kind) {
  switch (kind) {
    case LogRecord::Kind::allocated:
      return "allocated";
    case LogRecord::Kind::released:
      return "released";
    case LogRecord::Kind::forward:
      return "forward";
    case LogRecord::Kind::deterministic:
      return "deterministic";
    default:
      return "held";
  }
}

class LogFile final : public LogTarget {
 public:
  LogFile(std::string path, bool is_new, std::shared_ptr<const NatSettings> settings)
      : path_(std::move(path)), is_new_(is_new), settings_(std::move(settings)) {}
  ~LogFile() override { close(); }
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  std::string name() const override { return path_; }

  void know(std::shared_ptr<const NatSettings> settings) override {
    settings_ = std::move(settings);
  }

  Result<void> begin(bool later) override {
    if (auto ok = open(!later); !ok) return std::unexpected(ok.error());
    if (later) close();
    return {};
  }

  Result<bool> ready() override {
    struct stat at_path{};
    const bool is_same = file_ >= 0 && ::stat(path_.c_str(), &at_path) == 0 &&
                         at_path.st_dev == is_.st_dev && at_path.st_ino == is_.st_ino;
    if (!is_same) {
      const bool is_another = file_ >= 0;
      if (auto ok = open(true); !ok) return std::unexpected(ok.error());
      return is_another;
    }
    const bool is_cut = at_path.st_size < size_;
    if (is_cut) size_ = at_path.st_size;
    return is_cut;
  }

  Result<void> write(std::span<const LogRecord> records) override {
    std::string text = is_torn_ ? "\n" : "";
    for (const LogRecord& record : records) text += json_of(record).dump() + "\n";
    for (std::string_view left = text; !left.empty();) {
      const ssize_t n = ::write(file_, left.data(), left.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        const auto failed =
            std::unexpected(cannot(n < 0 ? std::strerror(errno) : "the disk takes nothing"));
        take_back();
        return failed;
      }
      left.remove_prefix(static_cast<std::size_t>(n));
    }
    size_ += std::ssize(text);
    is_torn_ = false;
    return {};
  }

 private:
  Error cannot(const std::string& why) const {
    return {"nat.log.file: cannot write to " + path_ + ": " + why, Error::Kind::unreadable};
  }

  /// Opens the file at the path, in place of the one that is open. `locks`: it is for this process
  /// alone from now on.
  Result<void> open(bool locks) {
    constexpr mode_t kMode = S_IRUSR | S_IWUSR | S_IRGRP;
    const int file = ::open(path_.c_str(),
                            O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, kMode);
    if (file < 0)
      return std::unexpected(cannot(std::string(std::strerror(errno)) +
                                    ": give a path in a directory where millrace may write"));
    struct stat is{};
    std::string wrong;
    if (::fstat(file, &is) != 0) {
      wrong = std::strerror(errno);
    } else if (!S_ISREG(is.st_mode)) {
      wrong = "it is no regular file: give the path of one";
    } else if (locks && ::flock(file, LOCK_EX | LOCK_NB) != 0) {
      wrong = errno == EWOULDBLOCK ? "another millrace writes to it: give each its own file"
                                   : std::strerror(errno);
    } else if (is_new_ && is.st_size > 0) {
      wrong = "a replay writes a new log, and the file is there: remove it, or give another path";
    }
    if (!wrong.empty()) {
      ::close(file);
      return std::unexpected(cannot(wrong));
    }
    close();
    is_new_ = false;
    file_ = file;
    is_ = is;
    size_ = is.st_size;
    // A line that was cut off when a process was killed stays alone on its line.
    char last = '\n';
    is_torn_ = size_ > 0 && ::pread(file_, &last, 1, size_ - 1) == 1 && last != '\n';
    return {};
  }

  void close() {
    if (file_ >= 0) ::close(file_);
    file_ = -1;
  }

  /// Removes a part of a line, or of a list, that has been written before a failure.
  void take_back() {
    struct stat is{};
    if (::fstat(file_, &is) != 0 || is.st_size <= size_ || ::ftruncate(file_, size_) == 0) return;
    size_ = is.st_size;
    is_torn_ = true;
  }

  Json json_of(const LogRecord& record) const {
    Json line{{"time", time_text(record.time_ms * 1'000'000)}};
    if (record.is_head()) {
      line["event"] = "list";
      line["why"] = reason_of(record.kind);
      line["held"] = record.held;
      line["lost"] = record.lost;
      return line;
    }
    line["event"] = event_of(record.kind);
    if (record.by_place != nullptr) {
      append(line, *record.by_place);
      return line;
    }
    line["customer"] = settings_->name_of(record.customer);
    line["address"] = to_string(record.address);
    line["first_port"] = record.first_port;
    line["last_port"] = record.last_port;
    if (record.protocol != 0) line["protocol"] = protocol_name(record.protocol);
    if (record.pool != nullptr) line["pool"] = *record.pool;
    return line;
  }

  /// Appends what says which customer of a deterministic pool has a port (RFC 7422, section 3).
  void append(Json& line, const NatPool& pool) const {
    line["pool"] = pool.name;
    for (const auto& prefix : pool.prefixes) line["addresses"].push_back(to_string(prefix));
    line["first_port"] = pool.first_port;
    line["last_port"] = pool.last_port;
    line["ports_per_customer"] = pool.block_size * pool.blocks_per_customer;
    for (const CustomerPlaces::Group& group : pool.places.groups())
      line["customers"].push_back({{"first", settings_->name_of(group.first)},
                                   {"last", settings_->name_of(group.last())},
                                   {"count", group.count}});
  }

  std::string path_;
  bool is_new_;
  std::shared_ptr<const NatSettings> settings_;
  int file_ = -1;
  struct stat is_{};      // of the open file
  off_t size_ = 0;        // bytes of whole lines
  bool is_torn_ = false;  // the file does not end with a newline
};

}  // namespace

std::unique_ptr<LogTarget> log_file(const std::string& path, bool is_new,
                                    std::shared_ptr<const NatSettings> settings) {
  return std::make_unique<LogFile>(path, is_new, std::move(settings));
}

}  // namespace millrace
