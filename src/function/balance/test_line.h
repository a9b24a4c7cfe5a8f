// For tests: a load balancer on a line (function/test_line.h), and a fixture that makes its
// configuration.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "function/balance/balance.h"
#include "function/test_line.h"

namespace millrace {

template <class K>
class TestServices : public testing::Test {
 public:
  using Address = typename K::Address;
  using Spec = ServiceSpec<Address>;

  static Services only(std::vector<Spec> specs) {
    Services services;
    services.family<Address>() = std::move(specs);
    return services;
  }
  static BalanceConfig config(std::vector<Spec> specs) {
    BalanceConfig config;
    config.services = only(std::move(specs));
    return config;
  }
};

/// A test line that owns its load balancer, and checks the load balancer's invariants at the end.
template <class K>
class BalanceLine : public TestLine<K> {
 public:
  explicit BalanceLine(const BalanceConfig& config) : BalanceLine(made(Balance::create(config))) {}
  explicit BalanceLine(std::unique_ptr<Balance> balance)
      : TestLine<K>(*balance), balance_(std::move(balance)) {}
  ~BalanceLine() {
    const auto ok = balance_->check_invariants();
    EXPECT_TRUE(ok.has_value()) << ok.error().message;
  }

  Balance& balance() { return *balance_; }

  void update(const Services& services) {
    const auto ok = try_update(services);
    ASSERT_TRUE(ok.has_value()) << ok.error().message;
  }
  Result<Review> try_update(const Services& services) {
    Balance* const all = balance_.get();
    return millrace::update({&all, 1}, services, [this](const auto& step) {
      step(*balance_);
      return true;
    });
  }

 private:
  static std::unique_ptr<Balance> made(Result<std::unique_ptr<Balance>> balance) {
    EXPECT_TRUE(balance.has_value()) << balance.error().message;
    return std::move(*balance);
  }

  std::unique_ptr<Balance> balance_;
};

}  // namespace millrace
