#include "port/capture_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "port/test_files.h"

namespace millrace {
namespace {

using test::Directory;

Error error_of(const std::string& path) {
  auto writer = CaptureWriter::create(path, {});
  EXPECT_FALSE(writer.has_value());
  if (writer) return {};
  EXPECT_EQ(writer.error().message.find('\n'), std::string::npos);
  EXPECT_TRUE(writer.error().message.starts_with(path)) << writer.error().message;
  return writer.error();
}

TEST(CaptureWriter, WhatIsWrittenIsRead) {
  const Directory directory;
  const std::string path = directory / "out.pcap";
  auto writer = CaptureWriter::create(path, {{113}, 700, true});
  ASSERT_TRUE(writer.has_value());
  const auto bytes = test::numbered_bytes(600, 1);
  writer->write(1'700'000'000'987'654'321, 1514, std::span(bytes).first(512),
                std::span(bytes).subspan(512));
  writer->write(1'600'000'000'000'000'000, 42, std::span(bytes).first(42));
  EXPECT_EQ(writer->packets(), 2U);
  ASSERT_TRUE(writer->finish().has_value());

  const auto back = Capture::load(path);
  ASSERT_TRUE(back.has_value()) << back.error().message;
  ASSERT_EQ(back->size(), 2U);
  EXPECT_EQ(back->format().dlts, std::vector{113});
  EXPECT_EQ(back->format().snaplen, 700U);
  EXPECT_EQ(back->packet(0).timestamp_ns, 1'700'000'000'987'654'321U);
  EXPECT_EQ(back->packet(0).wire_length, 1514U);
  EXPECT_TRUE(std::ranges::equal(back->packet(0).bytes(), bytes));
  EXPECT_EQ(back->packet(1).timestamp_ns, 1'600'000'000'000'000'000U);
  EXPECT_EQ(back->packet(1).captured, 42U);
}

// A file that is read and written again stays the same, with microseconds and nanoseconds.
TEST(CaptureWriter, KeepsAFileAsItIs) {
  const Directory directory;
  for (const bool nanoseconds : {false, true}) {
    const std::uint64_t fraction = nanoseconds ? 1 : 1000;
    test::save(test::capture_at({5'000'000'000 + fraction, 6'000'000'000}, {{1}, 100, nanoseconds}),
               directory / "a");
    test::save(*Capture::load(directory / "a"), directory / "b");
    EXPECT_EQ(test::read_file(directory / "a"), test::read_file(directory / "b"));
    EXPECT_EQ(test::read_file(directory / "a").substr(0, 4),
              nanoseconds ? "\x4d\x3c\xb2\xa1" : "\xd4\xc3\xb2\xa1");
  }
}

TEST(CaptureWriter, WhatPcapCannotHoldIsPcapng) {
  const Directory directory;
  Capture capture(CaptureFormat{{1, 12, 113}, 300, false});
  for (unsigned i = 0; i < 6; ++i)
    ASSERT_TRUE(capture.append(1000 * i, 60, test::numbered_bytes(20 + i, i), i % 3).has_value());
  auto writer = CaptureWriter::create(directory / "x", capture.format());
  for (std::size_t i = 0; i < capture.size(); ++i) {
    const auto bytes = capture.packet(i).bytes();
    writer->write(1000 * i, 60, bytes.first(7), bytes.subspan(7), capture.link(i));
  }
  ASSERT_TRUE(writer->finish().has_value());
  const auto back = Capture::load(directory / "x");
  ASSERT_TRUE(back.has_value()) << back.error().message;
  EXPECT_EQ(back->format().dlts, capture.format().dlts);
  EXPECT_EQ(back->format().snaplen, 300U);
  ASSERT_EQ(back->size(), capture.size());
  for (std::size_t i = 0; i < capture.size(); ++i) {
    EXPECT_EQ(back->link(i), i % 3);
    EXPECT_EQ(back->packet(i).timestamp_ns, 1000 * i);
    EXPECT_TRUE(std::ranges::equal(back->packet(i).bytes(), capture.packet(i).bytes()));
  }

  const std::uint64_t late = kPcapSeconds * 1'000'000'000 + 5;
  auto later = CaptureWriter::create(directory / "y", {.beyond_2106 = true});
  later->write(late, 60, test::numbered_bytes(60, 1));
  ASSERT_TRUE(later->finish().has_value());
  EXPECT_EQ(Capture::load(directory / "y")->packet(0).timestamp_ns, late);
  EXPECT_TRUE(Capture::load(directory / "y")->format().beyond_2106);
}

TEST(CaptureWriter, AppearsOnlyWhenFinished) {
  const Directory directory;
  const std::string path = directory / "out.pcap";
  test::write_file(path, "old");
  auto writer = CaptureWriter::create(path, {});
  ASSERT_TRUE(writer.has_value());
  EXPECT_EQ(directory.names().size(), 2U);
  EXPECT_EQ(test::read_file(path), "old");
  ASSERT_TRUE(writer->finish().has_value());
  EXPECT_EQ(directory.names(), std::vector<std::string>{"out.pcap"});
  EXPECT_EQ(test::read_file(path).size(), 24U);
}

TEST(CaptureWriter, LeavesNothingWithoutFinish) {
  const Directory directory;
  const std::string path = directory / "out.pcap";
  test::write_file(path, "old");
  {
    auto writer = CaptureWriter::create(path, {});
    ASSERT_TRUE(writer.has_value());
    CaptureWriter moved = std::move(*writer);
    moved.write(0, 1, test::numbered_bytes(1, 1));
    EXPECT_EQ(directory.names().size(), 2U);
  }
  EXPECT_EQ(directory.names(), std::vector<std::string>{"out.pcap"});
  EXPECT_EQ(test::read_file(path), "old");
}

TEST(CaptureWriter, TwoAtOnceDoNotMix) {
  const Directory directory;
  auto a = CaptureWriter::create(directory / "x", {});
  auto b = CaptureWriter::create(directory / "x", {});
  ASSERT_TRUE(a.has_value() && b.has_value());
  b->write(0, 10, test::numbered_bytes(10, 1));
  ASSERT_TRUE(a->finish().has_value());
  ASSERT_TRUE(b->finish().has_value());
  EXPECT_EQ(Capture::load(directory / "x")->size(), 1U);
}

TEST(CaptureWriter, RefusesWhereNothingCanBeCreated) {
  const Directory directory;
  EXPECT_NE(error_of(directory / "no/x").message.find("create the directory"), std::string::npos);
  EXPECT_NE(error_of(directory / "").message.find("give a file name"), std::string::npos);
  test::write_file(directory / "file", "");
  EXPECT_EQ(error_of(directory / "file/x").kind, Error::Kind::unreadable);
  if (::geteuid() == 0) return;
  std::filesystem::permissions(
      directory / "", std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  const Error error = error_of(directory / "x");
  EXPECT_NE(error.message.find("Permission denied"), std::string::npos);
  EXPECT_EQ(error.kind, Error::Kind::unreadable);
}

TEST(CaptureWriter, FullDiskFailsInOneLine) {
  auto writer = CaptureWriter::create("/dev/full", {});
  ASSERT_TRUE(writer.has_value());
  const auto bytes = test::numbered_bytes(1500, 1);
  for (int i = 0; i < 2000; ++i) writer->write(0, 1500, bytes);
  EXPECT_TRUE(writer->failed());
  const auto done = writer->finish();
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().kind, Error::Kind::failed);
  EXPECT_NE(done.error().message.find("No space left"), std::string::npos) << done.error().message;
}

TEST(CaptureWriter, FullDiskAtTheEndFails) {
  auto writer = CaptureWriter::create("/dev/full", {});
  ASSERT_TRUE(writer.has_value());
  EXPECT_FALSE(writer->failed());
  const auto done = writer->finish();
  ASSERT_FALSE(done.has_value());
  EXPECT_NE(done.error().message.find("No space left"), std::string::npos) << done.error().message;
}

// A file that may not grow stands in for a full disk that is not /dev/full.
TEST(CaptureWriter, FullDiskLeavesNothingAndKeepsTheOld) {
  const Directory directory;
  const std::string path = directory / "out.pcap";
  test::write_file(path, "old");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  auto writer = CaptureWriter::create(path, {});
  const auto bytes = test::numbered_bytes(1500, 1);
  for (int i = 0; i < 10; ++i) writer->write(0, 1500, bytes);
  const auto done = writer->finish();
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_FALSE(done.has_value());
  EXPECT_EQ(directory.names(), std::vector<std::string>{"out.pcap"});
  EXPECT_EQ(test::read_file(path), "old");
}

TEST(CaptureWriter, FollowsASymbolicLink) {
  const Directory directory;
  test::write_file(directory / "real", "old");
  std::filesystem::create_symlink("real", directory / "link");
  test::save(test::capture_at({1000}), directory / "link");
  EXPECT_TRUE(std::filesystem::is_symlink(directory / "link"));
  EXPECT_EQ(Capture::load(directory / "real")->size(), 1U);
}

TEST(CaptureWriter, WritesAPipeDirectly) {
  const Directory directory;
  const std::string path = directory / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] { got = test::read_file(path); });
  test::save(test::capture_at({1000, 2000}), path);
  reader.join();
  EXPECT_EQ(got.size(), 24U + 16 + 60 + 16 + 61);
  EXPECT_EQ(directory.names(), std::vector<std::string>{"pipe"});
}

}  // namespace
}  // namespace millrace
