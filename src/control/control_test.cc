// Tests requests to a running dataplane without packets: its device is null.
#include "control/control.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/address.h"
#include "core/json.h"
#include "port/test_files.h"

namespace millrace {
namespace {

const Json kOne{{"backends", 1}};  // result of a command that found one backend
const std::string kHealth = "health = { check = \"tcp\" }\n";

/// DPDK's devices can be opened once in a process, so all tests share one dataplane.
class ControlTest : public testing::Test {
 protected:
  struct Running {
    test::Directory directory;
    std::atomic<bool> stop = false;
    std::unique_ptr<Live> live;
    std::optional<Workers> workers;
    std::optional<Control> control;
    std::jthread thread;
    ~Running() { stop = true; }
  };

  static void write(const std::string& health) {
    test::write_file(running_->directory / "f.toml", R"(workers = 2
[table]
capacity = 1000
[[port]]
name = "inside"
device = "null"
addresses = ["10.0.0.254/24"]
[[service]]
address = "203.0.113.10"
port = 80
protocol = "tcp"
backends = [{ address = "10.0.0.1" }, { address = "10.0.0.1", port = 8000 }]
)" + health);
  }

  static void SetUpTestSuite() {
    running_ = std::make_unique<Running>();
    write(kHealth);
    const SchemeNames schemes{{"race"}, {"sharded"}, {"wheel"}};
    const std::string path = running_->directory / "f.toml";
    const auto config = read_config(path, schemes);
    ASSERT_TRUE(config.has_value()) << config.error().message;
    LineConfig line = line_config(*config);
    line.pages = Pages::small;
    line.secret = Secret::from_seed(1);
    auto live = Live::open(*config, {.owners = make_owners(*config, Secret::from_seed(2)),
                                     .eal_options = {},
                                     .stop = &running_->stop});
    ASSERT_TRUE(live.has_value()) << live.error().message;
    running_->live = std::move(*live);
    auto workers = Workers::create(config->workers, line, config->function, function_run(*config));
    ASSERT_TRUE(workers.has_value()) << workers.error().message;
    running_->workers.emplace(std::move(*workers));
    ASSERT_TRUE(running_->live->start().has_value());
    running_->control.emplace(*running_->workers, *running_->live, *config, path, schemes, [] {});
    running_->thread = std::jthread(
        [&running = *running_] { EXPECT_TRUE(running.workers->run(running.live->ports())); });
    ASSERT_TRUE(running_->control->wait_until_ready());
  }
  static void TearDownTestSuite() { running_.reset(); }

  static Control& control() { return *running_->control; }
  static Verdict verdict_of_a_first_packet() {
    return control()
        .explain(KeyV4{.source = *parse_address<AddressV4>("198.51.100.7"),
                       .destination = *parse_address<AddressV4>("203.0.113.10"),
                       .source_port = 1234,
                       .destination_port = 80,
                       .protocol = 6})
        ->is.verdict;
  }

  using Given = std::vector<std::pair<std::string, std::string>>;
  static Json command(std::string_view path, const Given& given = {}) {
    const auto commands = control().kind().commands;
    const auto one = std::ranges::find(commands, path, &FunctionCommand::path);
    const auto done = control().command(*one, given);
    return done ? *done : Json(done.error().message);
  }
  static Json drain(const char* backend, bool drained) {
    return command("/drain", {{"backend", backend}, {"drained", drained ? "true" : "false"}});
  }
  static Json fail(const char* backend) {
    return command("/health", {{"backend", backend}, {"healthy", "false"}});
  }

 private:
  static inline std::unique_ptr<Running> running_;
};

TEST_F(ControlTest, WhoIsCheckedNoMoreIsHealthy) {
  ASSERT_EQ(fail("10.0.0.1:80"), kOne);
  ASSERT_EQ(fail("10.0.0.1:8000"), kOne);
  EXPECT_EQ(verdict_of_a_first_packet(), Verdict::refused);
  write("");
  ASSERT_TRUE(control().reload().has_value());
  EXPECT_EQ(verdict_of_a_first_packet(), Verdict::tracked);
  write(kHealth);
  ASSERT_TRUE(control().reload().has_value());
}

TEST_F(ControlTest, ABackendIsMeantByJustItsName) {
  const auto drained = [] {
    std::vector<bool> all;
    const Json services = command("/services");
    for (const Json& backend : services.at(0).at("backends")) all.push_back(backend["drained"]);
    return all;
  };
  EXPECT_EQ(drain("10.0.0.1", true), kOne);
  EXPECT_EQ(drained(), (std::vector{true, false}));
  EXPECT_EQ(drain("10.0.0.1:80", false), kOne);
  EXPECT_EQ(drain("10.0.0.1:8000", true), kOne);
  EXPECT_EQ(drained(), (std::vector{false, true}));
  EXPECT_EQ(drain("10.0.0.1:8000", false), kOne);
}

TEST_F(ControlTest, OneAtATimeHasTheRightToTrace) {
  auto first = control().right_to_trace();
  ASSERT_TRUE(first.has_value());
  EXPECT_FALSE(control().right_to_trace().has_value());
  (*first)->end();
  const auto second = control().right_to_trace();
  ASSERT_TRUE(second.has_value());
  first->reset();
  EXPECT_FALSE(control().right_to_trace().has_value())
      << "the first right had ended: its destruction must not release the second";
}

}  // namespace
}  // namespace millrace
