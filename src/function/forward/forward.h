// `forward`: tracks every connection, and changes nothing. What it sees leaves as it came.
#pragma once

#include <cstdint>

#include "function/function.h"

namespace millrace {

struct ForwarderConfig {
  /// Packets that find no place are forwarded all the same; false: they are dropped.
  bool stateless_when_full = true;
};

template <class K>
class ForwarderFor final : public FunctionFor<K> {
 public:
  explicit ForwarderFor(const ForwarderConfig& config) : config_(config) {}

  Part part() const override { return {.name = "forward"}; }
  void open(const Burst& burst, Opening<K>& opening) override;
  void serve(Burst& burst, std::uint64_t places, const States<K>& states) override;

 private:
  ForwarderConfig config_;
};

class Forwarder final : public Function {
 public:
  explicit Forwarder(const ForwarderConfig& config) : v4_(config), v6_(config) {}

  FunctionFor<KeyV4>& v4() override { return v4_; }
  FunctionFor<KeyV6>& v6() override { return v6_; }

 private:
  ForwarderFor<KeyV4> v4_;
  ForwarderFor<KeyV6> v6_;
};

}  // namespace millrace
