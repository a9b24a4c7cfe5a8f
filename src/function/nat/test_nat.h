// A NAT on a line of its own, for unit tests. Hosts a to o are inside, t to z are outside, p to s
// are public.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/json.h"
#include "function/deployment.h"
#include "function/kind.h"
#include "function/nat/nat.h"
#include "function/nat/settings.h"
#include "function/reader.h"
#include "function/test_line.h"
#include "toml/keys.h"

namespace millrace {

class NatTest : public testing::Test {
 protected:
  using Line = TestLine<KeyV4>;
  using Sent = Line::Sent;
  static constexpr std::uint8_t kTcp = Line::kTcp;
  static constexpr std::uint8_t kUdp = Line::kUdp;

  std::pair<std::shared_ptr<const FunctionSettings>, std::string> read(const std::string& text) {
    config::Problems problems("f");
    const auto reader = nat_reader();
    for (const auto& [key, node] : toml::parse(text))
      reader->read(key.str(), {problems, std::string(key.str())}, node);
    auto settings = reader->finish(problems, around_);
    return {std::move(settings), problems.none() ? std::string() : problems.error().message};
  }
  /// Makes a NAT with one pool, of the public hosts p to s, and these further keys of it, of the
  /// rule and behind the rule.
  void use(const std::string& keys = "", const std::string& of_rule = "") {
    const auto [settings, problems] = read(text_of(keys, of_rule));
    ASSERT_EQ(problems, "");
    deployment_ = *settings->kind().deploy(settings, {});
    line_ = std::make_unique<Line>(deployment_->make(0));
  }
  /// Changes to the settings of that text, and returns which connections are to be reviewed.
  Review reload(const std::string& text) {
    const auto [settings, problems] = read(text);
    EXPECT_EQ(problems, "");
    return *deployment_->update(settings, {}, [](const auto& call) {
      call(0);
      return true;
    });
  }
  static std::string text_of(const std::string& keys, const std::string& of_rule = "") {
    return "[[nat.pool]]\nname = \"p\"\naddresses = \"10.0.0.16/30\"\n" + keys +
           "\n[[nat.rule]]\nsource = \"10.0.0.0/28\"\npool = \"p\"\n" + of_rule;
  }
  Sent send(const std::string& from, const std::string& to, std::uint8_t protocol = kUdp,
            std::uint8_t flags = Line::kSyn) {
    return line_->send({from, to, protocol, flags});
  }
  /// Returns the public end with which a packet leaves; a verdict if it does not.
  std::string public_end(const std::string& from, const std::string& to,
                         std::uint8_t protocol = kUdp) {
    const Sent sent = send(from, to, protocol);
    return sent.verdict == Verdict::tracked ? sent.from : std::string(to_string(sent.verdict));
  }
  /// Returns where a packet from outside goes; a verdict if it is dropped.
  std::string inside_end(const std::string& from, const std::string& to,
                         std::uint8_t protocol = kUdp) {
    const Sent sent = send(from, to, protocol);
    return sent.verdict == Verdict::tracked ? sent.to : std::string(to_string(sent.verdict));
  }
  std::uint64_t count(const std::string& member) const {
    return deployment_->statistics()["nat_pools"][0][member];
  }
  static std::string port(const std::string& end) { return end.substr(2); }

  HostAddresses<AddressV4> v4_;
  HostAddresses<AddressV6> v6_;
  Surroundings around_{
      .v4 = v4_, .v6 = v6_, .ports = {}, .customers = std::make_shared<const Customers>()};
  std::unique_ptr<FunctionDeployment> deployment_;
  std::unique_ptr<Line> line_;
};

}  // namespace millrace
