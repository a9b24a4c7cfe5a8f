#include "config/config.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>
#include <sstream>
#include <utility>

#include "config/chain.h"
#include "config/ports.h"
#include "config/servers.h"
#include "core/processors.h"
#include "function/chained.h"
#include "function/grants.h"
#include "shard/indirection.h"
#include "shard/spread.h"
#include "toml/keys.h"

namespace millrace {
namespace {

using config::Context;
using config::in_quotes;
using config::Keys;

// --- the keys of the file

struct RawConfig {
  Config config;
  std::uint32_t limits_line = 0;  ///< line of the table `limits`; 0: there is none
  std::vector<config::RawPort> ports;
  std::vector<config::RawRoute> routes;
  config::RawServers servers;
};

/// Wraps a reader for `Config` as a reader for `RawConfig`.
template <class Read>
auto in_config(const Read& read) {
  return [read](const Context& context, const toml::node& node, RawConfig& out) {
    read(context, node, out.config);
  };
}

Keys<Config::Table> table_keys(const SchemeNames& schemes) {
  using T = Config::Table;
  using W = Config::WhenFull;
  return {
      {"scheme", config::name(&T::scheme, schemes.tables)},
      {"capacity", config::integer(&T::capacity, 1, T::kMaxCapacity, "connections")},
      {"capacity_v6", config::integer(&T::capacity_v6, 1, T::kMaxCapacity, "connections")},
      {"when_full",
       config::choice(&T::when_full,
                      {{"evict", W::evict}, {"stateless", W::stateless}, {"drop", W::drop}})},
      {"half_open_percent", config::integer(&T::half_open_percent, 1, 100, "percent")},
  };
}

Keys<TimeoutSeconds> timeout_keys() {
  struct One {
    std::uint32_t seconds = 0;
  };
  const auto read = config::integer(&One::seconds, 1, Config::Ageing::kMaxTimeout, "seconds");
  Keys<TimeoutSeconds> keys;
  for (std::size_t i = 0; i < kTimeoutSettings.size(); ++i) {
    keys.push_back({kTimeoutSettings[i].name,
                    [read, i](const Context& context, const toml::node& node, TimeoutSeconds& out) {
                      One one{out.of[i]};
                      read(context, node, one);
                      out.of[i] = one.seconds;
                      out.given |= std::uint64_t{1} << i;
                    }});
  }
  keys.push_back({"sctp", [](const Context& context, const toml::node& node, TimeoutSeconds&) {
                    context.problem(node,
                                    "give sctp_established, and sctp_init, sctp_shutdown, "
                                    "sctp_closed or sctp_midstream for other states");
                  }});
  return keys;
}

Keys<Config::Ageing> ageing_keys(const SchemeNames& schemes) {
  using A = Config::Ageing;
  return {
      {"scheme", config::name(&A::scheme, schemes.ageing)},
      {"interval_ms", config::integer(&A::interval_ms, 1, 1000, "milliseconds")},
      {"timeout_s", config::table(&A::timeout_s, timeout_keys())},
  };
}

void read_entries(const Context& context, const toml::node& node, Config::Spread& out) {
  config::integer(&Config::Spread::entries, Indirection::kLeast, Indirection::kMost, "entries")(
      context, node, out);
  if (std::has_single_bit(out.entries)) return;
  context.problem(node, std::to_string(out.entries) + " is no power of two: give 128, 256 or 512");
}

Keys<Config::Spread> spread_keys() {
  return {
      {"scheme", config::name(&Config::Spread::scheme, spread_names())},
      {"entries", read_entries},
      {"level", config::boolean(&Config::Spread::level)},
      {"level_interval_ms",
       config::integer(&Config::Spread::level_interval_ms, 1, 60'000, "milliseconds")},
  };
}

void read_limits(const Context& context, const toml::node& node, RawConfig& out) {
  using L = SourceLimit;
  const Keys<L> keys{{"per_source", config::integer(&L::most, 1, L::kMost, "connections")},
                     {"source_prefix_v4", config::integer(&L::prefix_v4, 1, 32, "bits")},
                     {"source_prefix_v6", config::integer(&L::prefix_v6, 1, 128, "bits")}};
  config::table(&Config::source_limit, keys)(context, node, out.config);
  out.limits_line = node.source().begin.line;
  if (!node.is_table() || node.as_table()->contains("per_source")) return;
  for (const std::string_view prefix : {"source_prefix_v4", "source_prefix_v6"}) {
    if (const toml::node* given = node.as_table()->get(prefix))
      context.sub(prefix).problem(*given, "does nothing by itself: give limits.per_source, too");
  }
}

void read_workers(const Context& context, const toml::node& node, Config& out) {
  const auto* const word = node.as_string();
  if (word == nullptr)
    return config::integer(&Config::workers, 1, Indirection::kLeast, "threads")(context, node, out);
  if (word->get() != "auto")
    return context.problem(node, in_quotes(word->get()) + " is no number: give one, or \"auto\"");
  out.workers = std::min(processors(), Indirection::kLeast);
  out.uses_few_workers = true;
}

/// Returns a reader for `[pair]` or `[cluster]`.
auto servers(std::string_view name, Keys<config::RawServers> keys) {
  return [name, read = config::table(&RawConfig::servers, std::move(keys))](
             const Context& context, const toml::node& node, RawConfig& out) {
    out.servers.has_both = !out.servers.table.empty();
    out.servers.table = name;
    out.servers.line = node.source().begin.line;
    read(context, node, out);
  };
}

/// Skips a key that `ChainReader` has read.
void skip(const Context&, const toml::node&, RawConfig&) {}

Keys<RawConfig> root_keys(const SchemeNames& schemes, config::ChainReader& chain) {
  Keys<RawConfig> keys{
      {"function", skip},
      {"chain", skip},
      {"workers", in_config(read_workers)},
      {"sharing", in_config(config::name(&Config::sharing, schemes.sharing))},
      {"spread", in_config(config::table(&Config::spread, spread_keys()))},
      {"table", in_config(config::table(&Config::table, table_keys(schemes)))},
      {"ageing", in_config(config::table(&Config::ageing, ageing_keys(schemes)))},
      {"limits", read_limits},
      {"port", config::tables(&RawConfig::ports, config::port_keys())},
      {"route", config::tables(&RawConfig::routes, config::route_keys())},
      {"pair", servers("pair", config::pair_keys())},
      {"cluster", servers("cluster", config::cluster_keys())},
      {"host", in_config(config::table(&Config::live, config::host_keys()))},
  };
  chain.for_each_key([&keys](std::string_view name, const auto& read) {
    keys.push_back({name, [read](const Context& context, const toml::node& node, RawConfig&) {
                      read(context, node);
                    }});
  });
  return keys;
}

Result<std::string> contents(const std::string& path) {
  constexpr std::size_t kMost = std::size_t{16} << 20;
  const auto unreadable = [&](const std::string& why) {
    return std::unexpected(
        Error{path + ": " + why + ": give a readable TOML file", Error::Kind::unreadable});
  };
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return unreadable(std::strerror(errno));
  std::string text;
  std::array<char, 65536> block;
  ssize_t n = 0;
  while ((n = ::read(file, block.data(), block.size())) > 0 && text.size() <= kMost) {
    text.append(block.data(), static_cast<std::size_t>(n));
  }
  const int why = errno;
  ::close(file);
  if (n < 0) return unreadable(std::strerror(why));
  if (text.size() > kMost) return unreadable("is larger than 16 MiB");
  return text;
}

/// Returns the offset behind the string that begins at `begin`: the text's end if the string is not
/// closed.
std::size_t end_of_string(std::string_view text, std::size_t begin) {
  const char mark = text[begin];
  const bool is_long = text.substr(begin, 3) == std::string(3, mark);
  const std::string_view quotes = text.substr(begin, is_long ? 3 : 1);
  for (std::size_t i = begin + quotes.size(); i < text.size(); ++i) {
    if (mark == '"' && text[i] == '\\') {
      ++i;
    } else if (text.substr(i).starts_with(quotes)) {
      // Quotes in front of the closing three belong to the string: skip all of them.
      return is_long ? std::min(text.find_first_not_of(mark, i), text.size()) : i + 1;
    }
  }
  return text.size();
}

/// Returns the line of a key with so many parts that toml++, which recurses for each part, may
/// overflow the stack; 0 if there is no such key.
std::uint32_t line_of_deep_key(std::string_view text) {
  constexpr unsigned kMostParts = 256;  // toml++'s limit for nested values
  unsigned dots = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '#') i = std::min(text.find('\n', i), text.size()) - 1;
    if (c == '"' || c == '\'') i = end_of_string(text, i) - 1;
    if (std::string_view("\n=,[]{}").contains(c)) dots = 0;
    dots += c == '.';
    if (dots == kMostParts)
      return static_cast<std::uint32_t>(std::ranges::count(text.substr(0, i), '\n')) + 1;
  }
  return 0;
}

/// Returns toml++'s message, with a hint about what would be right for two of the messages.
std::string with_hint(std::string_view said, const SchemeNames& schemes) {
  std::string text(said);
  std::vector<std::string_view> lists{"port", "route"};
  for (const FunctionKind* const kind : schemes.functions) {
    for (const FunctionKey& key : kind->keys) {
      if (key.is_list) lists.push_back(key.name);
    }
  }
  for (const std::string_view name : lists) {
    if (said.contains("redefine existing table '" + std::string(name) + "'"))
      return text.append(": write [[").append(name).append("]] each time, in double brackets");
  }
  if (said.contains("could not determine value type"))
    text += ": give text in straight quotes (\")";
  return text;
}

std::optional<toml::table> parse_toml(std::string_view text, std::string_view name,
                                      const SchemeNames& schemes, config::Problems& problems) {
  if (const auto line = line_of_deep_key(text)) {
    problems.add(line, "", "a key has more than 256 parts: give it fewer");
    return std::nullopt;
  }
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& wrong) {
    problems.add(wrong.source().begin.line, "", with_hint(wrong.description(), schemes));
    return std::nullopt;
  } catch (const std::runtime_error& assertion) {
    problems.add(1, "", assertion.what());
    return std::nullopt;
  }
}

}  // namespace

Result<Config> parse_config(std::string_view text, std::string_view name,
                            const SchemeNames& schemes) {
  config::Problems problems(name);
  const auto parsed = parse_toml(text, name, schemes, problems);
  if (!parsed) return std::unexpected(problems.error());
  problems.set_top({"function", "chain", "workers", "sharing"});
  RawConfig raw;
  config::ChainReader chain(problems, *parsed, schemes.functions);
  config::read_keys({problems, ""}, *parsed, root_keys(schemes, chain), raw);
  config::read_live(problems, raw.ports, raw.routes, raw.config.live);
  for (const config::RawPort& port : raw.ports) {
    if (port.tunnels.customers_line != 0)
      chain.check_customers(problems, port.tunnels.customers_line, port.name.value);
  }
  if (raw.config.uses_few_workers) raw.config.spread.level = true;
  config::read_servers(problems, raw.servers, raw.config);
  raw.config.function = chained(chain.finish(problems, surroundings(raw.config)));
  if (raw.config.function != nullptr) {
    for (const FunctionTimeout& timeout : raw.config.function->facts().timeouts)
      raw.config.ageing.timeout_s.raise(timeout.name, timeout.seconds);
  }
  const std::string_view wrong = raw.config.function->facts().counts_nothing;
  if (raw.limits_line != 0 && !wrong.empty()) problems.add(raw.limits_line, "limits", wrong);
  if (!problems.none()) return std::unexpected(problems.error());
  return raw.config;
}

std::string in_file(const std::string& path, std::string_view problems) {
  std::string all;
  std::istringstream lines{std::string(problems)};
  for (std::string line; std::getline(lines, line);)
    all.append(all.empty() ? "" : "\n").append(path).append(": ").append(line);
  return all;
}

Result<Config> read_config(const std::string& path, const SchemeNames& schemes) {
  const auto text = contents(path);
  if (!text) return std::unexpected(text.error());
  return parse_config(*text, path, schemes);
}

Surroundings surroundings(const Config& config) {
  Surroundings around{
      .v4 = config.live.v4, .v6 = config.live.v6, .ports = {}, .customers = config.live.customers};
  for (const Config::Port& port : config.live.ports)
    around.ports.push_back({port.name, !port.kernel.empty()});
  return around;
}

namespace {

/// Returns this server's share of what functions give. In a cluster it has nothing before its agent
/// says what.
Share share_of(const Config& config) {
  if (!config.servers) return {};
  if (!config.servers->is_cluster)
    return {.number = config.servers->number - 1, .of = 2, .grants = {}};
  return {.number = 0,
          .of = 1,
          .grants = std::make_shared<Grants>(config.spread.entries, Secret::random())};
}

}  // namespace

FunctionRun function_run(const Config& config) {
  // Connections that never expire can resume after any pause.
  constexpr std::uint32_t kForever = 0xffffffff;
  constexpr std::uint32_t kSynRetransmissions = 128;  // seconds for which a SYN may be repeated
  const std::uint32_t longest =
      std::max(config.ageing.timeout_s.longest_without_syn(), kSynRetransmissions);
  return {.stateless_when_full = config.table.when_full != Config::WhenFull::drop,
          .quiet_ms = config.ageing.scheme == "none" ? kForever : longest * 1000,
          .share = share_of(config)};
}

Result<void> check_spread(const Config& config) {
  const bool is_one = config.workers == 1 && !(config.servers && config.servers->is_cluster);
  if (is_one || spread_named(config.spread.scheme)->by_client ||
      !config.function->facts().has_replies)
    return {};
  return std::unexpected(
      Error{"spread.scheme \"" + config.spread.scheme +
                "\" (--spread) sends the replies of services to other workers than their requests: "
                "give \"keyed\" or \"toeplitz\", or workers = 1",
            Error::Kind::usage});
}

bool comes_by_kernel(const Config::Live& live) {
  return std::ranges::any_of(
      live.ports, [](const Config::Port& port) { return is_of_kernel(port.device.kind); });
}

std::string sharing_of(const Config& config) {
  if (config.sharing) return *config.sharing;
  const bool shared = !config.servers && comes_by_kernel(config.live) && config.workers > 1 &&
                      config.table.scheme == "race" && !config.spread.level;
  return shared ? "lock-free-race" : "sharded";
}

LineConfig line_config(const Config& config) {
  LineConfig line;
  line.table = config.table.scheme;
  line.sharing = sharing_of(config);
  line.ageing = config.ageing.scheme;
  line.capacity = config.table.capacity;
  line.capacity_v6 =
      config.table.capacity_v6.value_or(std::max<std::size_t>(config.table.capacity / 8, 1));
  line.half_open_percent = config.table.half_open_percent;
  line.evicts = config.table.when_full == Config::WhenFull::evict;
  line.source_limit = config.source_limit;
  line.timeouts = config.ageing.timeout_s.timeouts();
  line.interval_ms = config.ageing.interval_ms;
  line.pass_unmatched = config.function->facts().drops_unmatched.empty();
  return line;
}

}  // namespace millrace
