// Compares what the log alone says with what customers have had, and takes its file away.
#include "function/nat/block_log.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "core/address_numbers.h"
#include "core/json.h"
#include "core/protocol.h"
#include "core/sanitizers.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

constexpr std::uint64_t kBegin = 1'700'000'000'000;  // ms since 1970

/// A folder of its own, which vanishes with the object.
struct Folder {
  Folder() {
    std::string made = fs::temp_directory_path() / "millrace-log-XXXXXX";
    path = ::mkdtemp(made.data());
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  fs::path path;
};

std::shared_ptr<const NatSettings> settings_with(const fs::path& file, bool refuses,
                                                 unsigned bits = 30) {
  auto settings = std::make_shared<NatSettings>();
  settings->pools = {{.name = "a",
                      .prefixes = {{address_with(0xc6336400), bits}},
                      .first_port = 1024,
                      .last_port = 1024 + 8 * 64 - 1,
                      .block_size = 64,
                      .blocks_per_customer = 3},
                     {.name = "b",
                      .prefixes = {{address_with(0xcb007100), 32}},
                      .first_port = 2000,
                      .last_port = 65535,
                      .block_size = 4096}};
  settings->log = {.file = file, .ipfix = {}, .refuses = refuses};
  settings->index();
  return settings;
}

std::vector<Json> lines_of(const fs::path& file) {
  std::vector<Json> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
  return lines;
}

/// Reads one file of the log as docs/nat.md says, and nothing else.
class Reader {
 public:
  explicit Reader(const fs::path& file) : lines_(lines_of(file)) {}

  const std::vector<Json>& lines() const { return lines_; }
  std::string first_time() const { return lines_.front().at("time"); }

  /// Applies the lines until that time; times must not go back.
  void read_until(const std::string& time) {
    while (next_ < lines_.size() && lines_[next_].at("time").get<std::string>() <= time)
      apply(lines_[next_++]);
  }
  std::string customer_at(const EndpointV4& end) const {
    const auto behind = held_.upper_bound({to_string(end.address), end.port});
    if (behind == held_.begin()) return {};
    const auto& [key, is] = *std::prev(behind);
    const bool has = key.first == to_string(end.address) && end.port <= is.second;
    return has ? is.first : std::string();
  }
  std::size_t held() const { return held_.size(); }

 private:
  void apply(const Json& line) {
    const std::string event = line.at("event");
    if (event == "list") return held_.clear();
    const std::pair key{line.at("address").get<std::string>(),
                        line.at("first_port").get<unsigned>()};
    if (event == "released") {
      held_.erase(key);
    } else {
      held_[key] = {line.at("customer"), line.at("last_port")};
    }
  }

  std::vector<Json> lines_;
  std::size_t next_ = 0;
  std::map<std::pair<std::string, unsigned>, std::pair<std::string, unsigned>> held_;
};

template <class Holds>
[[nodiscard]] bool wait_until(Holds holds) {
  const auto end = steady_clock::now() + std::chrono::seconds(20);
  while (!holds()) {
    if (steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

PortBlocks::Wanted wanted(std::uint32_t customer, std::uint16_t port, std::uint32_t now,
                          std::uint16_t pool = 0) {
  return {.inside = {address_with(customer), port},
          .remote = {address_with(0xc0000201), 80},
          .customer = customer,
          .protocol = kProtocolUdp,
          .pool = pool,
          .now = {now}};
}

// RFC 6888, REQ-12: each file by itself names the customer of a public port while the file was
// written.
TEST(BlockLog, Rfc6888Req12TheLogAloneNamesTheCustomerOfAPort) {
  constexpr unsigned kFiles = 4;
  constexpr unsigned kSteps = 20'000;  // for each file
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&random](std::uint32_t n) {
    return static_cast<std::uint32_t>(random() % n);
  };
  const Folder folder;
  const fs::path file = folder.path / "log";
  const auto settings = settings_with(file, false);
  const std::shared_ptr<PortBlocks> blocks = *PortBlocks::create(settings->pools);
  auto log = *BlockLog::open(settings, blocks, kBegin, false);
  log->start();

  struct Session {
    PortBlocks::Wanted wanted;
    PortBlocks::Taken taken;
  };
  /// A time at which a customer has had a port.
  struct Seen {
    std::uint32_t ms;
    EndpointV4 end;
    std::string customer;
  };
  std::vector<Session> live;
  std::vector<Seen> all;
  std::uint32_t now = 0;
  const auto see = [&](const Session& one) {
    all.push_back({now, one.taken.outside, to_string(one.wanted.inside.address)});
  };
  for (unsigned part = 0; part < kFiles; ++part) {
    for (unsigned step = 0; step < kSteps; ++step) {
      now += below(step % 4'000 < 2'000 ? 20 : 4000);
      if (below(100) < (step / 1000 % 2 == 0 ? 60U : 35U)) {
        const auto session = wanted(0x0a000001 + below(60), static_cast<std::uint16_t>(below(200)),
                                    now, static_cast<std::uint16_t>(below(8) == 0));
        if (const auto taken = blocks->take(session)) {
          live.push_back({session, *taken});
          see(live.back());
        }
      } else if (!live.empty()) {
        const std::size_t at = below(static_cast<std::uint32_t>(live.size()));
        see(live[at]);
        const Session& one = live[at];
        blocks->release(one.taken.ref, kProtocolUdp, one.wanted.remote.address, {now});
        live[at] = live.back();
        live.pop_back();
      }
    }
    if (part + 1 == kFiles) break;
    fs::rename(file, folder.path / std::to_string(part));
    ASSERT_TRUE(wait_until([&] { return fs::exists(file) && fs::file_size(file) > 0; }));
    now += 1000;
  }
  log->finish(true);
  log.reset();  // waits for the thread
  fs::rename(file, folder.path / std::to_string(kFiles - 1));

  std::vector<Reader> files;
  for (unsigned part = 0; part < kFiles; ++part) {
    const Reader& is = files.emplace_back(folder.path / std::to_string(part));
    ASSERT_EQ(is.lines().front().at("event"), "list");
    EXPECT_EQ(is.lines().front().at("why"), part == 0 ? "start" : "new file");
  }
  std::size_t part = 0;
  std::size_t released = 0;
  for (const Seen& seen : all) {
    const std::string time = time_text((kBegin + seen.ms) * 1'000'000);
    while (part + 1 < kFiles && files[part + 1].first_time() <= time) ++part;
    files[part].read_until(time);
    ASSERT_EQ(files[part].customer_at(seen.end), seen.customer) << time;
  }
  for (const Reader& is : files) {
    released += static_cast<std::size_t>(std::ranges::count_if(
        is.lines(), [](const Json& line) { return line.at("event") == "released"; }));
  }
  EXPECT_GT(released, 20U) << "blocks should change their customers";
  Reader& last = files.back();
  last.read_until("9");
  EXPECT_EQ(last.held(), blocks->use_of(0).held + blocks->use_of(1).held);
}

// While the folder of the file is away, blocks are given; what the log misses it says afterwards.
TEST(BlockLog, PassesWithoutItsFileAndListsBlocksBehindTheGap) {
  if (kSanitized) GTEST_SKIP() << "some 100,000 records take minutes under a sanitizer";
  constexpr unsigned kCustomers = 140'000;
  const Folder folder;
  const fs::path logs = folder.path / "logs";
  fs::create_directory(logs);
  const auto settings = settings_with(logs / "log", false, 16);
  const std::shared_ptr<PortBlocks> blocks = *PortBlocks::create(settings->pools);
  auto log = *BlockLog::open(settings, blocks, 0, false);
  log->start();
  ASSERT_TRUE(blocks->take(wanted(1, 1, 0)));
  const auto is_failing = [&] { return !log->statistics()[0].at("failing_since").is_null(); };
  ASSERT_TRUE(wait_until([&] { return log->statistics()[0].at("written") == 2; }));
  fs::rename(logs, folder.path / "away");
  ASSERT_TRUE(wait_until(is_failing));
  for (unsigned n = 2; n < kCustomers; ++n) ASSERT_TRUE(blocks->take(wanted(n, 1, 0)));
  fs::rename(folder.path / "away", logs);
  ASSERT_TRUE(wait_until([&] { return !is_failing(); }));
  log->finish(true);
  const std::uint64_t lost = log->statistics()[0].at("lost");
  EXPECT_GT(lost, 0U);
  log.reset();  // waits for the thread

  const auto lines = lines_of(logs / "log");
  std::uint64_t missing = 0;
  for (const Json& line : lines) missing += line.value("lost", std::uint64_t{0});
  EXPECT_EQ(missing, lost);
  const auto head =
      std::ranges::find_if(lines, [](const Json& line) { return line.value("why", "") == "gap"; });
  ASSERT_NE(head, lines.end());
  EXPECT_EQ(head->at("held"), kCustomers - 1);
  Reader reader(logs / "log");
  reader.read_until("9");
  EXPECT_EQ(reader.held(), kCustomers - 1);
}

// Sessions without ports begin faster than the log's thread looks.
TEST(BlockLog, ListsBlocksAfterTooManyAtOnce) {
  if (kSanitized) GTEST_SKIP() << "some 100,000 records take minutes under a sanitizer";
  constexpr std::uint32_t kCustomers = 200'000;
  const Folder folder;
  const auto settings = settings_with(folder.path / "log", false, 16);
  const std::shared_ptr<PortBlocks> blocks = *PortBlocks::create(settings->pools);
  auto log = *BlockLog::open(settings, blocks, 0, false);
  log->start();
  for (std::uint32_t n = 1; n <= kCustomers; ++n) {
    auto session = wanted(n, 0, 0);
    session.protocol = 47;
    ASSERT_TRUE(blocks->take(session));
  }
  ASSERT_TRUE(wait_until([&] { return log->statistics()[0].at("written") >= kCustomers; }));
  log->finish(true);
  if (log->statistics()[0].at("lost") == 0U)
    GTEST_SKIP() << "this machine begins sessions too slowly to fill the queue";
  log.reset();  // waits for the thread
  Reader reader(folder.path / "log");
  reader.read_until("9");
  EXPECT_EQ(reader.held(), kCustomers);
  EXPECT_TRUE(std::ranges::any_of(reader.lines(), [](const Json& line) {
    return line.value("why", "") == "gap" && line.at("lost") > 0U;
  }));
}

TEST(BlockLog, RefusesBlocksWithoutItsFileAndLosesNothing) {
  const Folder folder;
  const fs::path logs = folder.path / "logs";
  fs::create_directory(logs);
  const auto settings = settings_with(logs / "log", true, 16);
  const std::shared_ptr<PortBlocks> blocks = *PortBlocks::create(settings->pools);
  auto log = *BlockLog::open(settings, blocks, 0, false);
  log->start();
  std::uint32_t customer = 1;
  const auto taken = [&] { return blocks->take(wanted(customer, 1, 0)); };
  fs::rename(logs, folder.path / "away");
  ASSERT_TRUE(wait_until([&] {
    const auto is = taken();
    customer += is.has_value();
    return !is && is.error() == Verdict::no_record;
  }));
  EXPECT_EQ(blocks->use_of(0).held, customer - 1);
  EXPECT_EQ(blocks->use_of(0).no_port, 0U);
  EXPECT_FALSE(blocks->customer_at({address_with(0xc6330000), 1}));
  if (customer > 1) {
    EXPECT_TRUE(blocks->take(wanted(1, 2, 0))) << "the customer has a block already";
  }
  fs::rename(folder.path / "away", logs);
  ASSERT_TRUE(wait_until([&] { return taken().has_value(); }));
  log->finish(true);
  EXPECT_EQ(log->statistics()[0].at("lost"), 0U);
  log.reset();  // waits for the thread
  Reader reader(logs / "log");
  reader.read_until("9");
  EXPECT_EQ(reader.held(), customer);
}

TEST(BlockLog, SaysThatItsFileCannotBeWritten) {
  const Folder folder;
  const auto open = [&](const fs::path& file, std::uint64_t capture_ms = 0) {
    const auto settings = settings_with(file, false);
    return BlockLog::open(settings, *PortBlocks::create(settings->pools), capture_ms, false);
  };
  const auto said = [&](const fs::path& file, std::uint64_t capture_ms = 0) {
    const auto is = open(file, capture_ms);
    return is ? std::string() : is.error().message;
  };
  EXPECT_NE(said(folder.path / "no" / "log").find("No such file"), std::string::npos);
  EXPECT_NE(said("/dev/null").find("no regular file"), std::string::npos);
  const auto first = open(folder.path / "log");
  ASSERT_TRUE(first);
  EXPECT_NE(said(folder.path / "log").find("another millrace"), std::string::npos);
  std::ofstream(folder.path / "old") << "{}\n";
  EXPECT_NE(said(folder.path / "old", kBegin).find("a replay writes a new log"), std::string::npos);
  EXPECT_EQ(said(folder.path / "old"), "");
}

// A crash may have cut off a line, and a tool may cut the file.
TEST(BlockLog, KeepsTheFileWhole) {
  const Folder folder;
  const fs::path file = folder.path / "log";
  std::ofstream(file) << "{\"time\":\"2026";
  const auto settings = settings_with(file, false);
  const std::shared_ptr<PortBlocks> blocks = *PortBlocks::create(settings->pools);
  {
    auto log = *BlockLog::open(settings, blocks, 0, false);
    log->start();
    ASSERT_TRUE(blocks->take(wanted(1, 1, 0)));
    ASSERT_TRUE(wait_until([&] { return log->statistics()[0].at("written") == 2; }));
    std::ifstream in(file);
    std::string torn;
    std::string first;
    std::getline(in, torn);
    std::getline(in, first);
    EXPECT_EQ(torn, "{\"time\":\"2026");
    EXPECT_EQ(Json::parse(first).at("why"), "start");
    fs::resize_file(file, 0);  // logrotate's copytruncate
    ASSERT_TRUE(wait_until([&] { return log->statistics()[0].at("written") == 4; }));
  }
  const auto lines = lines_of(file);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].at("why"), "new file");
  EXPECT_EQ(lines[0].at("held"), 1);
  EXPECT_EQ(lines[1].at("event"), "held");
  EXPECT_EQ(lines[2].at("event"), "released") << "the process ends, and with it the block";
}

// The first write fails, as on a full disk.
TEST(BlockLog, KeepsATornLineAlone) {
  const Folder folder;
  const fs::path file = folder.path / "log";
  const std::string torn = "{\"time\":\"2026";
  std::ofstream(file) << torn;
  const auto settings = settings_with(file, false);
  const std::shared_ptr<PortBlocks> blocks = *PortBlocks::create(settings->pools);
  auto log = *BlockLog::open(settings, blocks, 0, false);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlim_t all = std::exchange(limit.rlim_cur, torn.size() + 10);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  log->start();
  const bool failed =
      wait_until([&] { return !log->statistics()[0].at("failing_since").is_null(); });
  limit.rlim_cur = all;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  ASSERT_TRUE(failed);
  EXPECT_EQ(fs::file_size(file), torn.size());
  ASSERT_TRUE(blocks->take(wanted(1, 1, 0)));
  ASSERT_TRUE(wait_until([&] { return log->statistics()[0].at("failing_since").is_null(); }));
  std::ifstream in(file);
  std::string first;
  std::string second;
  std::getline(in, first);
  std::getline(in, second);
  EXPECT_EQ(first, torn);
  EXPECT_EQ(Json::parse(second).at("event"), "list");
}

TEST(BlockLog, HasTheForwards) {
  const Folder folder;
  const fs::path file = folder.path / "log";
  const auto settings = settings_with(file, false);
  const std::shared_ptr<PortBlocks> blocks = *PortBlocks::create(settings->pools);
  auto log = *BlockLog::open(settings, blocks, 0, false);
  log->start();
  ASSERT_TRUE(blocks->take(wanted(0x0a000005, 1, 0)));
  ASSERT_TRUE(wait_until([&] { return log->statistics()[0].at("written") == 2; }));
  const auto changed = std::make_shared<NatSettings>(*settings);
  const AddressV4 outside = address_with(0xc6336401);
  changed->forwards =
      NatForwards({{outside, address_with(0x0a000001), 0x0a000001, 80, 8080, kProtocolTcp},
                   {address_with(0xc6336480), address_with(0x0a000002), 0x0a000002}});
  log->change_settings(settings);  // a reload that changes nothing
  log->change_settings(changed);
  ASSERT_TRUE(wait_until([&] { return log->statistics()[0].at("written") == 6; }));
  log->finish(true);
  log.reset();  // waits for the thread
  auto lines = lines_of(file);
  for (Json& line : lines) line.erase("time");
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_EQ(lines[2], Json::parse(R"({"event": "list", "why": "reload", "held": 3, "lost": 0})"));
  EXPECT_EQ(lines[3], Json::parse(R"({"event": "forward", "customer": "10.0.0.1",
      "address": "198.51.100.1", "first_port": 80, "last_port": 80, "protocol": "tcp"})"));
  EXPECT_EQ(lines[4], Json::parse(R"({"event": "forward", "customer": "10.0.0.2",
      "address": "198.51.100.128", "first_port": 0, "last_port": 65535})"));
  EXPECT_EQ(lines[5].at("event"), "held");
  EXPECT_EQ(lines[5].at("customer"), "10.0.0.5");
}

// BlockEvents, invariants 2 and 3.
TEST(BlockEvents, LosesNothingUnseenAndKeepsTheOrderOfEachWriter) {
  constexpr std::uint32_t kThreads = 4;
  constexpr std::uint32_t kEach = 100'000;
  BlockEvents events;
  events.open({});
  std::atomic<unsigned> left = kThreads;
  std::vector<std::jthread> threads;
  for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint32_t n = 1; n <= kEach; ++n) events.note(n % 2 == 0, thread, n, {});
      --left;
    });
  }
  std::array<std::uint32_t, kThreads> latest{};
  std::uint64_t taken = 0;
  BlockEvent event;
  for (bool is_last = false; !is_last;) {
    is_last = left == 0;
    while (events.take(event)) {
      ++taken;
      ASSERT_GT(event.customer, latest[event.block]);
      latest[event.block] = event.customer;
      ASSERT_EQ(event.is_allocated, event.customer % 2 == 0);
    }
  }
  EXPECT_EQ(taken + events.lost(), std::uint64_t{kThreads} * kEach);
}

TEST(BlockEvents, RefuseWhatFindsNoRoom) {
  BlockEvents events;
  EXPECT_TRUE(events.note(true, 0, 1, {})) << "there is no log";
  events.open({.refuses = true});
  for (std::size_t n = 0; n < BlockEvents::kRoom; ++n) ASSERT_TRUE(events.note(true, 0, 1, {}));
  EXPECT_FALSE(events.note(true, 0, 1, {}));
  BlockEvent event;
  EXPECT_TRUE(events.take(event));
  EXPECT_TRUE(events.note(true, 0, 1, {}));
  EXPECT_TRUE(events.take(event));
  events.set_failing(true);
  EXPECT_FALSE(events.note(true, 0, 1, {}));
  EXPECT_EQ(events.lost(), 0U);
}

}  // namespace
}  // namespace millrace
