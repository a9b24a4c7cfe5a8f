// The configuration: what a user may set in a TOML file, and what holds where nothing is set.
// docs/configuration.md says of every key its meaning, unit, default, effect and when to touch it.
//
// All problems of a file are reported together, one a line, as
//   file:line: key: what is wrong: what would be right
// Plain functions and values; any thread may call them.
#pragma once

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
#include "function/kinds.h"
#include "host/host_for.h"
#include "line/line.h"
#include "millrace/types.h"
#include "port/device_name.h"

namespace millrace {

struct Config {
  enum class WhenFull : std::uint8_t { evict, stateless, drop };

  struct Table {
    std::string scheme = "race";
    std::size_t capacity = 1'000'000;
    std::optional<std::size_t> capacity_v6;  ///< none: an eighth of `capacity`
    WhenFull when_full = WhenFull::evict;
    unsigned half_open_percent = 25;

    /// A connection has two entries, ConnId has 32 bits, and a table has more slots than it
    /// promises.
    static constexpr std::int64_t kMaxCapacity = 1'800'000'000;
  };
  struct Ageing {
    std::string scheme = "wheel";
    std::uint32_t interval_ms = 10;
    TimeoutSeconds timeout_s;

    /// 23 days: ticks compare correctly up to 24.
    static constexpr std::int64_t kMaxTimeout = 2'000'000;
  };
  struct Spread {
    std::string scheme = "keyed";
    unsigned entries = 512;
    /// For `millrace run` only: shards move from busy workers to idle ones.
    bool level = false;
    std::uint32_t level_interval_ms = 100;
  };

  /// For `millrace run` only.
  struct Port {
    std::string name;
    DeviceName device;
    unsigned mtu = 0;    ///< 0: as the device has it
    std::string kernel;  ///< its interface of the kernel's; empty: it has none
    ReversePath reverse_path = ReversePath::off;
  };
  enum class Idle : std::uint8_t {
    by_device,  ///< sleep where packets come through the kernel
    sleep,      ///< a worker without packets
    spin,
  };
  struct Live {
    std::vector<Port> ports;
    HostAddresses<AddressV4> v4;  ///< own addresses and routes; their links are places in `ports`
    HostAddresses<AddressV6> v6;
    template <class A>
    auto& family() {
      return of_family<A>(v4, v6);
    }
    template <class A>
    const auto& family() const {
      return of_family<A>(v4, v6);
    }
    bool tells_unreachable = true;
    Idle idle = Idle::by_device;
  };

  /// The function that packets meet, or a chain of several (chained.h).
  std::shared_ptr<const FunctionSettings> function = default_function();

  unsigned workers = 1;
  /// `workers = "auto"`: `workers` are as many as the processors, and of these `millrace run` uses
  /// as many as its load needs, by moving shards.
  bool uses_few_workers = false;
  std::optional<std::string> sharing;  ///< else `sharing_of` decides
  Spread spread;
  Table table;
  Ageing ageing;
  SourceLimit source_limit;
  Live live;
};

/// The schemes and functions that exist; a configuration that names another is refused.
struct SchemeNames {
  std::vector<std::string> tables;
  std::vector<std::string> sharing;
  std::vector<std::string> ageing;
  std::span<const FunctionKind* const> functions = kinds();
};

/// The configuration that `text` describes; `name` stands for the file in messages. Errors are of
/// kind `usage`.
Result<Config> parse_config(std::string_view text, std::string_view name,
                            const SchemeNames& schemes);
/// The same of a file; `unreadable` where it cannot be read.
Result<Config> read_config(const std::string& path, const SchemeNames& schemes);

/// Returns problems, a line each, with the file's name in front of every line.
std::string in_file(const std::string& path, std::string_view problems);

/// Returns what a function's settings are read beside. It refers to `config`.
Surroundings surroundings(const Config& config);

/// Returns warnings, a line each, about what the configuration allows and its user may not want.
std::vector<std::string> doubts(const Config& config);

// Settings for the parts of a line, after the command line has had its say.

/// Whether the packets of every connection reach one worker, and can be moved where that is asked
/// for. Errors are of kind `usage`.
Result<void> check_spread(const Config& config);
/// What functions are told beside their settings; not how many workers there are.
FunctionRun function_run(const Config& config);
/// Whether the kernel brings the packets of a port.
bool comes_by_kernel(const Config::Live& live);
/// How workers share tables. Where the configuration leaves it open: `lock-free-race` where the
/// kernel brings packets to several workers and the table is `race`, since half of the packets
/// would have to be handed over to the worker that knows their connection; else `sharded`.
std::string sharing_of(const Config& config);
/// Everything but pages, secret and clock.
LineConfig line_config(const Config& config);

}  // namespace millrace
