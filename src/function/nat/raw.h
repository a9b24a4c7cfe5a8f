// NAT's part of a configuration as it is written: [[nat.pool]], [[nat.rule]], [[nat.forward]] and
// [nat.log], before reader.cc makes settings of it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "function/nat/settings.h"
#include "toml/keys.h"

namespace millrace {

struct RawPool {
  std::uint32_t line = 0;
  NatPool is;
  config::Text name;
  config::Text ports;
  std::vector<config::Text> addresses;
};

struct RawNatRule {
  std::uint32_t line = 0;
  std::vector<config::Text> source;
  std::vector<config::Text> destination;
  std::vector<config::Text> exempt;
  std::vector<config::Text> customers;
  std::optional<unsigned> customer_prefix;
  std::uint32_t source_groups = 0;
  config::Text pool;
};

struct RawForward {
  std::uint32_t line = 0;
  config::Text outside;
  config::Text inside;
  config::Text customer;
};

struct RawNatLog {
  std::uint32_t line = 0;
  config::Text file;
  config::Text ipfix;
  bool refuses = false;
};

struct RawNat {
  std::vector<RawPool> pools;
  std::vector<RawNatRule> rules;
  std::vector<RawForward> forwards;
  RawNatLog log;
};

config::Keys<RawNat> nat_keys();

}  // namespace millrace
