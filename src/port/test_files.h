// Helpers for tests: a temporary directory, files as strings, a time, packets of numbered bytes.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "port/capture.h"
#include "port/capture_writer.h"

namespace millrace::test {

/// Timestamp at which test captures begin, in ns since 1970.
inline constexpr std::uint64_t kStart = 1'700'000'000'000'000'000;

class Directory {
 public:
  Directory() {
    std::string name = (std::filesystem::temp_directory_path() / "millrace-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  ~Directory() {
    std::error_code ignored;
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all, ignored);
    std::filesystem::remove_all(path_, ignored);
  }

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      all.push_back(entry.path().filename().string());
    }
    return all;
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// Returns `length` bytes, which differ for seeds that lie close together.
inline std::vector<std::byte> numbered_bytes(std::size_t length, unsigned seed) {
  std::vector<std::byte> bytes(length);
  for (std::size_t i = 0; i < length; ++i) bytes[i] = static_cast<std::byte>(seed * 31 + i * 7);
  return bytes;
}

/// Returns a capture of packets at these times; packet i has 60 + i numbered bytes.
inline Capture capture_at(const std::vector<std::uint64_t>& times_ns,
                          const CaptureFormat& format = {}) {
  Capture capture(format);
  for (unsigned i = 0; i < times_ns.size(); ++i) {
    const auto bytes = numbered_bytes(60 + i, i);
    EXPECT_TRUE(capture.append(times_ns[i], 60 + i, bytes).has_value());
  }
  return capture;
}

inline void save(const Capture& capture, const std::string& path) {
  auto writer = CaptureWriter::create(path, capture.format());
  ASSERT_TRUE(writer.has_value()) << writer.error().message;
  for (std::size_t i = 0; i < capture.size(); ++i) {
    const auto& packet = capture.packet(i);
    writer->write(packet.timestamp_ns, packet.wire_length, packet.bytes());
  }
  const auto done = writer->finish();
  ASSERT_TRUE(done.has_value()) << done.error().message;
}

}  // namespace millrace::test
