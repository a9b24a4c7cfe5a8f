// The configuration: the settings of the TOML file, and their defaults. docs/configuration.md has
// meaning, unit, default and effect of every key, and when to change it.
//
// All problems of a file are reported together, one a line, as
//   file:line: key: what is wrong: what would be right
// Plain functions and values; any thread may call them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/timeout_settings.h"
#include "core/address.h"
#include "core/customers.h"
#include "function/kinds.h"
#include "host/host_for.h"
#include "line/line.h"
#include "millrace/types.h"
#include "port/device_name.h"

namespace millrace {

/// `[pair]` or `[cluster]`: other servers that have this one's connections.
struct OtherServers {
  static constexpr std::uint16_t kPort = 7471;
  bool is_cluster = false;
  unsigned number = 1;  ///< this server's; of a pair: 1 or 2
  /// Ends of datagrams from this server to the other one of a pair; in a cluster to no address.
  AnyKey ends;
  std::string key_file;
  unsigned defer_ms = 0;  ///< for which packets of new connections wait for the other copy; 0: not
};
using ServersKey = std::array<std::byte, 32>;

struct Config {
  enum class WhenFull : std::uint8_t { evict, stateless, drop };

  struct Table {
    std::string scheme = "race";
    std::size_t capacity = 1'000'000;
    std::optional<std::size_t> capacity_v6;  ///< none: an eighth of `capacity`
    WhenFull when_full = WhenFull::evict;
    unsigned half_open_percent = 25;

    /// Largest capacity for which the 32 bits of `ConnId` suffice: a connection has two entries,
    /// and a table has more slots than its capacity.
    static constexpr std::int64_t kMaxCapacity = 1'800'000'000;
  };
  struct Ageing {
    std::string scheme = "wheel";
    std::uint32_t interval_ms = 10;
    TimeoutSeconds timeout_s;

    /// Largest timeout in seconds, 23 days: ticks compare correctly up to 24 days apart.
    static constexpr std::int64_t kMaxTimeout = 2'000'000;
  };
  struct Spread {
    std::string scheme = "keyed";
    unsigned entries = 512;
    /// For `millrace run` only: moves shards from busy workers to idle ones.
    bool level = false;
    std::uint32_t level_interval_ms = 100;
  };

  /// A port; for `millrace run` only.
  struct Port {
    std::string name;
    DeviceName device;  ///< several ports may have the same, each with another `vlan`
    unsigned vlan = 0;  ///< 0: the port's frames have no tag
    /// The port has customers in VLANs: all others of the device.
    bool has_customer_vlans = false;
    unsigned mtu = 0;       ///< 0: the device's own MTU
    std::uint16_t mss = 0;  ///< `HostLink::mss`
    std::string kernel;     ///< name of the port's kernel interface; empty: none
    ReversePath reverse_path = ReversePath::off;
  };
  enum class Idle : std::uint8_t {
    by_device,  ///< `sleep` if the kernel delivers the packets of a port, else `spin`
    sleep,      ///< an idle worker sleeps
    spin,       ///< an idle worker goes on polling
  };
  struct Live {
    std::vector<Port> ports;
    HostAddresses<AddressV4> v4;  ///< own addresses and routes; a link is an index in `ports`
    HostAddresses<AddressV6> v6;
    template <class A>
    auto& family() {
      return of_family<A>(v4, v6);
    }
    template <class A>
    const auto& family() const {
      return of_family<A>(v4, v6);
    }
    std::shared_ptr<const Customers> customers = std::make_shared<const Customers>();
    bool tells_unreachable = true;
    Idle idle = Idle::by_device;
  };

  /// Settings of the function that serves packets, or of a chain of functions (chained.h).
  std::shared_ptr<const FunctionSettings> function = default_function();

  unsigned workers = 1;
  /// True for `workers = "auto"`: `workers` is the number of processors, at most 128, and `millrace
  /// run` uses as many workers as its load needs, by moving shards.
  bool uses_few_workers = false;
  std::optional<std::string> sharing;  ///< none: `sharing_of` decides
  Spread spread;
  Table table;
  Ageing ageing;
  SourceLimit source_limit;
  Live live;
  std::optional<OtherServers> servers;
};

/// Names of the schemes and functions that exist. A configuration with any other name is refused.
struct SchemeNames {
  std::vector<std::string> tables;
  std::vector<std::string> sharing;
  std::vector<std::string> ageing;
  std::span<const FunctionKind* const> functions = kinds();
};

/// Parses a configuration from `text`; `name` is the file's name in messages. Errors: usage (all
/// problems, a line each).
Result<Config> parse_config(std::string_view text, std::string_view name,
                            const SchemeNames& schemes);
/// Reads a configuration file. Errors: those of `parse_config`; unreadable (the file cannot be
/// read).
Result<Config> read_config(const std::string& path, const SchemeNames& schemes);

/// Reads the key that all servers have. Errors: unreadable (there is no such file), usage (it is no
/// key, or others may read it).
Result<ServersKey> read_servers_key(const OtherServers& servers);

/// Returns what the configurations of servers with the same connections must have in common: the
/// function's part, how connections are spread over shards, and in a cluster the ports, whose
/// numbers travel with packets.
std::string agreement(const Config& config);

/// Returns problems, a line each, with the file's name in front of every line.
std::string in_file(const std::string& path, std::string_view problems);

/// Returns the parts of a configuration that the reading of a function's settings needs. The result
/// refers to `config`.
Surroundings surroundings(const Config& config);

/// Returns warnings, a line each, about settings that are allowed but probably not wanted.
std::vector<std::string> doubts(const Config& config);

// --- settings for the parts of a line, after the command line has been applied

/// Checks that the spread brings all packets of every connection to one worker. Errors: usage.
Result<void> check_spread(const Config& config);
/// Returns a run's settings for functions with `stateless_when_full` and `quiet_ms` set. The caller
/// sets the other members.
FunctionRun function_run(const Config& config);
/// True if the kernel delivers the packets of at least one port.
bool comes_by_kernel(const Config::Live& live);
/// Returns how workers share tables. If the configuration does not say: `lock-free-race` if the
/// kernel delivers packets, there are several workers, the table is `race` and shards do not move;
/// else `sharded`. Reason: the kernel chooses the worker that receives a packet, so under `sharded`
/// half of the packets or more would have to be handed over to the worker that has their
/// connection.
std::string sharing_of(const Config& config);
/// Returns the line's configuration. The caller also sets `pages`, `secret`, `sources`, `catch_up`
/// and `shards_that_move`.
LineConfig line_config(const Config& config);

}  // namespace millrace
