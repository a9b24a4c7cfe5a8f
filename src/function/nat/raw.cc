#include "function/nat/raw.h"

#include <string>
#include <utility>

namespace millrace {

using namespace config;

namespace {

/// Wraps a reader of a member of `NatPool`.
template <class Read>
auto of_pool(Read read) {
  return [read](const Context& context, const toml::node& node, RawPool& out) {
    read(context, node, out.is);
  };
}

std::vector<std::pair<std::string, Dependence>> dependences() {
  std::vector<std::pair<std::string, Dependence>> all;
  for (const auto one : {Dependence::endpoint_independent, Dependence::address_dependent,
                         Dependence::address_and_port_dependent})
    all.emplace_back(to_string(one), one);
  return all;
}

/// Reads [nat.log], and notes its line.
auto log_table(const Keys<RawNatLog>& keys) {
  return [keys](const Context& context, const toml::node& node, RawNat& out) {
    out.log.line = node.source().begin.line;
    table(&RawNat::log, keys)(context, node, out);
  };
}

}  // namespace

Keys<RawNat> nat_keys() {
  using P = NatPool;
  using R = RawNatRule;
  const Keys<RawPool> pool{
      {"name", name_text(&RawPool::name), true},
      {"addresses", texts(&RawPool::addresses), true},
      {"ports", text(&RawPool::ports)},
      {"mapping", of_pool(choice(&P::mapping, dependences()))},
      {"filtering", of_pool(choice(&P::filtering, dependences()))},
      {"block_size", of_pool(integer(&P::block_size, 64, 4096, "ports, a power of 2"))},
      {"blocks_per_customer", of_pool(integer(&P::blocks_per_customer, 1, 1024, "blocks"))},
      {"sessions_per_customer", of_pool(integer(&P::sessions_per_customer, 1, 65'535, "sessions"))},
      {"deterministic", of_pool(boolean(&P::is_deterministic))},
  };
  const Keys<R> rule{
      {"source", texts(&R::source), true},
      {"destination", texts(&R::destination)},
      {"exempt", texts(&R::exempt)},
      {"customers", texts(&R::customers)},
      {"customer_prefix", integer(&R::customer_prefix, 8, 32, "bits of an address")},
      {"source_groups", integer(&R::source_groups, 1, SourceGroup::kMost, "customers")},
      {"pool", text(&R::pool), true},
  };
  const Keys<RawForward> forward{
      {"public", text(&RawForward::outside), true},
      {"inside", text(&RawForward::inside), true},
      {"customer", text(&RawForward::customer)},
  };
  const Keys<RawNatLog> log{
      {"file", text(&RawNatLog::file)},
      {"ipfix", text(&RawNatLog::ipfix)},
      {"on_failure", choice(&RawNatLog::refuses, {{"pass", false}, {"refuse", true}})},
  };
  return {{"pool", tables(&RawNat::pools, pool)},
          {"rule", tables(&RawNat::rules, rule)},
          {"forward", tables(&RawNat::forwards, forward)},
          {"log", log_table(log)}};
}

}  // namespace millrace
