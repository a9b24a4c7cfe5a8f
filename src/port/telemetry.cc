#include "port/telemetry.h"

#include <rte_config.h>  // first of DPDK's

#include <rte_telemetry.h>
#include <rte_version.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <mutex>
#include <shared_mutex>

namespace millrace {
namespace {

constexpr std::size_t kMostEntries = 256;  // RTE_TEL_MAX_DICT_ENTRIES
constexpr std::size_t kMostName = 63;

/// The commands that are served. A command cannot be deregistered from DPDK, so the list is static.
struct Served {
  std::shared_mutex mutex;
  std::vector<Telemetry::Command> commands;
};
Served& served() {
  static Served all;
  return all;
}

std::string allowed(std::string name) {
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '/') c = '_';
  }
  name.resize(std::min(name.size(), kMostName));
  return name;
}

/// Adds a number to an answer; DPDK renamed its function for that in 23.03.
void add_number(rte_tel_data* data, const std::string& name, std::uint64_t value) {
#if RTE_VERSION >= RTE_VERSION_NUM(23, 3, 0, 0)
  rte_tel_data_add_dict_uint(data, name.c_str(), value);
#else
  rte_tel_data_add_dict_u64(data, name.c_str(), value);
#endif
}

int answer(const char* name, const char* /*parameters*/, rte_tel_data* data) {
  rte_tel_data_start_dict(data);
  const std::shared_lock guard(served().mutex);
  const auto& commands = served().commands;
  const auto command = std::ranges::find(commands, name, &Telemetry::Command::name);
  if (command == commands.end()) return 0;  // the command is no longer served
  TelemetryTable table = command->answer();
  table.resize(std::min(table.size(), kMostEntries));
  for (const auto& [of, value] : table) add_number(data, allowed(of), value);
  return 0;
}

}  // namespace

Result<Telemetry> Telemetry::serve(std::vector<Command> commands) {
  const std::unique_lock guard(served().mutex);
  served().commands = std::move(commands);
  for (const Command& command : served().commands) {
    if (rte_telemetry_register_cmd(command.name.c_str(), answer, command.help.c_str()) == 0)
      continue;
    Error error{"DPDK's telemetry accepts no command " + command.name};
    served().commands.clear();
    return std::unexpected(std::move(error));
  }
  return Telemetry();
}

Telemetry::~Telemetry() {
  if (!serves_) return;
  const std::unique_lock guard(served().mutex);
  served().commands.clear();
}

}  // namespace millrace
