// The part of a configuration that is about services: what a file may say of them, and what only
// holds together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "config/keys.h"

namespace millrace::config {

struct RawBackend {
  std::uint32_t line = 0;
  Located<std::string> address;
  std::uint16_t port = 0;
  std::uint32_t weight = 1;
};

struct RawHealth : HealthCheck {
  std::optional<bool> move_udp;
};

struct RawService {
  std::uint32_t line = 0;
  Located<std::string> address;
  std::uint16_t port = 0;
  std::uint8_t protocol = 0;
  Forward forward = Forward::nat;
  std::string scheduler = "maglev";
  Located<std::uint32_t> max_connections;
  Located<std::optional<RawHealth>> health;
  NoBackend no_backend = NoBackend::refuse;
  std::optional<OnUnhealthy> on_unhealthy;
  std::optional<bool> move_udp;
  bool direct = false;
  std::vector<RawBackend> backends;
};

inline constexpr std::string_view kNeedsStateful =
    "needs balance.stateful = true: without entries nothing is counted";

Keys<RawService> service_keys();

/// What they say together goes to `config`, whose other settings hold.
void read_services(Problems& problems, const std::vector<RawService>& raw, Config& config);

}  // namespace millrace::config
