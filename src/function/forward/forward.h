// `forward`: tracks every connection and changes nothing. Packets leave as they came.
#pragma once

#include <cstdint>

#include "function/function.h"
#include "function/settings.h"

namespace millrace {

template <class K>
class ForwarderFor final : public FunctionFor<K> {
 public:
  /// With `stateless_when_full`, packets that find no room in the table are forwarded; else they
  /// are dropped.
  explicit ForwarderFor(bool stateless_when_full) : stateless_when_full_(stateless_when_full) {}

  Part part() const override { return {.name = "forward"}; }
  void open(const Burst& burst, Opening<K>& opening) override;
  void serve(Burst& burst, std::uint64_t places, const States<K>& states) override;

 private:
  bool stateless_when_full_;
};

class Forwarder final : public Function {
 public:
  explicit Forwarder(const FunctionRun& run)
      : v4_(run.stateless_when_full), v6_(run.stateless_when_full) {}

  FunctionFor<KeyV4>& v4() override { return v4_; }
  FunctionFor<KeyV6>& v6() override { return v6_; }

 private:
  ForwarderFor<KeyV4> v4_;
  ForwarderFor<KeyV6> v6_;
};

}  // namespace millrace
