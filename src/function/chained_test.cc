// Tests a chain as the rest of the program uses it: explanations and reloads.
#include "function/chained.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/address.h"
#include "core/json.h"
#include "function/balance/settings.h"
#include "function/firewall/kind.h"
#include "function/forward/kind.h"
#include "function/kind.h"

namespace millrace {
namespace {

ServiceSpec<AddressV4> service(const std::string& address) {
  return {.address = *parse_address<AddressV4>(address),
          .port = 80,
          .protocol = kProtocolTcp,
          .scheduler = "round-robin",
          .backends = {{.address = *parse_address<AddressV4>("10.0.0.1"), .port = 8000}}};
}

/// A chain of the load balancer and another function, in either order, in one worker.
class ChainedTest : public testing::TestWithParam<bool> {
 protected:
  ChainedTest() : deployment_(deploy({service("203.0.113.10")})) { deployment_->make(0); }

  static std::shared_ptr<const FunctionSettings> settings(
      std::vector<ServiceSpec<AddressV4>> services, const FunctionKind& other = forward_kind()) {
    BalanceSettings balance;
    balance.services = {.v4 = std::move(services), .v6 = {}};
    std::vector<std::shared_ptr<const FunctionSettings>> all{
        other.defaults(), std::make_shared<const BalanceSettings>(std::move(balance))};
    if (GetParam()) std::swap(all.front(), all.back());
    return chained(std::move(all));
  }
  static std::unique_ptr<FunctionDeployment> deploy(std::vector<ServiceSpec<AddressV4>> services,
                                                    const FunctionKind& other = forward_kind()) {
    const auto of = settings(std::move(services), other);
    return std::move(*of->kind().deploy(of, {}));
  }
  Explained explain(const std::string& from, std::uint16_t port, const std::string& to,
                    std::uint16_t to_port) const {
    return deployment_->view()->explain(KeyV4{.source = *parse_address<AddressV4>(from),
                                              .destination = *parse_address<AddressV4>(to),
                                              .source_port = port,
                                              .destination_port = to_port,
                                              .protocol = kProtocolTcp},
                                        nullptr, false);
  }
  Review reload(std::vector<ServiceSpec<AddressV4>> services) {
    const auto is = deployment_->update(settings(std::move(services)), {}, [](const auto& step) {
      step(0);
      return true;
    });
    EXPECT_TRUE(is.has_value());
    return is.value_or(Review::none);
  }

  std::unique_ptr<FunctionDeployment> deployment_;
};

TEST_P(ChainedTest, WhoChangesAPacketExplainsIt) {
  const Explained served = explain("198.51.100.7", 1234, "203.0.113.10", 80);
  EXPECT_EQ(served.verdict, Verdict::tracked);
  EXPECT_EQ(served.why.find("it has no connection yet: a SYN goes to the backend"), 0U)
      << served.why;
  EXPECT_FALSE(served.why.contains("unchanged")) << served.why;
  const Explained other = explain("198.51.100.7", 1234, "192.0.2.9", 80);
  EXPECT_EQ(other.verdict, Verdict::tracked);
  EXPECT_EQ(other.why, "it has no connection yet, and is forwarded unchanged");
}

// The rules see the backend as destination, and a backend is chosen when a packet arrives.
TEST_P(ChainedTest, AFirewallAwaitsTheChoiceOfABackend) {
  deployment_ = deploy({service("203.0.113.10")}, firewall_kind());
  deployment_->make(0);
  const Explained served = explain("198.51.100.7", 1234, "203.0.113.10", 80);
  EXPECT_EQ(served.verdict, Verdict::tracked);
  EXPECT_TRUE(served.why.ends_with("; the firewall's rules decide by where it then goes"))
      << served.why;
  const Explained other = explain("198.51.100.7", 1234, "192.0.2.9", 80);
  EXPECT_EQ(other.verdict, Verdict::denied) << other.why;
}

// A late reply, which belongs to no connection, must not reach the client with the backend's
// address as source: the client has sent nothing to that address.
TEST_P(ChainedTest, ABackendBeginsNoConnectionFromItsServicePort) {
  const Explained stray = explain("10.0.0.1", 8000, "198.51.100.7", 1234);
  EXPECT_EQ(stray.verdict, Verdict::stray_reply);
  const Explained own = explain("10.0.0.1", 9000, "198.51.100.7", 1234);
  EXPECT_EQ(own.verdict, Verdict::tracked);
}

// A review of all connections takes time in proportion to the size of the tables, so a reload asks
// for it only if some connection may change.
TEST_P(ChainedTest, AReloadAsksForConnectionsWhereOneMayChange) {
  const auto one = service("203.0.113.10");
  const auto other = service("203.0.113.11");
  EXPECT_EQ(reload({one}), Review::none);
  EXPECT_EQ(reload({one, other}), Review::all)
      << "the added service may take connections that went to no service";
  EXPECT_EQ(reload({other}), Review::none) << "the removed service had no connections";
}

/// Settings of a function that notes its updates, and may refuse them.
struct Noting final : FunctionSettings {
  Noting(std::string& in, char as, bool can_undo, bool does_refuse)
      : notes(&in), name(as), undoes(can_undo), refuses(does_refuse) {}
  const FunctionKind& kind() const override;

  std::string* notes;
  char name;
  bool undoes, refuses;
};

class NotingDeployment final : public FunctionDeployment {
 public:
  explicit NotingDeployment(std::shared_ptr<const Noting> is) : is_(std::move(is)) {}
  static Result<std::unique_ptr<FunctionDeployment>> deploy(
      std::shared_ptr<const FunctionSettings> settings, const FunctionRun&) {
    return std::make_unique<NotingDeployment>(std::static_pointer_cast<const Noting>(settings));
  }
  Function& make(unsigned) override { std::abort(); }
  Result<Review> update(std::shared_ptr<const FunctionSettings>, const FunctionRun&,
                        const OnEachWorker&) override {
    *is_->notes += is_->name;
    if (is_->refuses) return std::unexpected(Error{"no"});
    return Review::none;
  }
  bool can_undo_update() const override { return is_->undoes; }

 private:
  std::shared_ptr<const Noting> is_;
};

const FunctionKind& Noting::kind() const {
  static const FunctionKind kind{.name = "noting",
                                 .summary = {},
                                 .keys = {},
                                 .commands = {},
                                 .telemetry = {},
                                 .defaults = nullptr,
                                 .reader = nullptr,
                                 .deploy = NotingDeployment::deploy};
  return kind;
}

// A reload takes nothing away for good before all functions have accepted it.
TEST(Chained, AnUpdateThatCannotBeUndoneIsTheLast) {
  for (const bool refuses : {false, true}) {
    std::string notes;
    const auto settings = chained({std::make_shared<const Noting>(notes, 'n', false, false),
                                   std::make_shared<const Noting>(notes, 'a', true, false),
                                   std::make_shared<const Noting>(notes, 'b', true, refuses)});
    const auto deployment = *settings->kind().deploy(settings, {});
    EXPECT_EQ(deployment->update(settings, {}, {}).has_value(), !refuses);
    EXPECT_EQ(notes, refuses ? "aba" : "abn");
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, ChainedTest, testing::Bool());

}  // namespace
}  // namespace millrace
