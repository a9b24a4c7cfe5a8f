#include "worker/config.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "function/balance/address.h"
#include "shard/indirection.h"
#include "shard/spread.h"
#include "worker/config_keys.h"
#include "worker/workers.h"

namespace millrace {
namespace {

using config::Context;
using config::in_quotes;
using config::Keys;
using config::Located;

// --- what a file may say

struct RawBackend {
  std::uint32_t line = 0;
  Located<std::string> address;
  std::uint16_t port = 0;
  std::uint32_t weight = 1;
};

struct RawService {
  std::uint32_t line = 0;
  Located<std::string> address;
  std::uint16_t port = 0;
  std::uint8_t protocol = 0;
  std::string scheduler = "maglev";
  std::vector<RawBackend> backends;
};

struct RawConfig {
  Config config;
  std::vector<RawService> services;
};

void read_key(const Context& context, const toml::node& node, Config::Balance& out) {
  constexpr std::string_view kRight = ": give 32 hexadecimal digits";
  const auto* text = node.as_string();
  if (text == nullptr) {
    context.problem(node, config::kind_of(node).append(kRight));
    return;
  }
  const std::string& digits = text->get();
  bool good = digits.size() == 2 * out.key.size();
  for (std::size_t i = 0; good && i < out.key.size(); ++i) {
    const char* pair = &digits[2 * i];
    const auto [end, error] = std::from_chars(pair, pair + 2, out.key[i], 16);
    good = error == std::errc{} && end == pair + 2;
  }
  if (!good) context.problem(node, in_quotes(digits).append(" is no key").append(kRight));
}

void read_table_size(const Context& context, const toml::node& node, Config::Balance& out) {
  config::integer(&Config::Balance::maglev_table_size, 2, Maglev::kMaxSize, "entries")(context,
                                                                                       node, out);
  std::uint32_t prime = out.maglev_table_size;
  while (!is_prime(prime)) ++prime;
  if (prime == out.maglev_table_size) return;
  context.problem(
      node, std::to_string(out.maglev_table_size) + " is no prime: give " + std::to_string(prime));
}

void read_function(const Context& context, const toml::node& node, RawConfig& out) {
  if (node.is_array()) {
    context.problem(node, "a chain is not in this version: give \"balance\"");
    return;
  }
  config::name(&Config::function, {"balance"}, {"forward", "nat", "firewall"})(context, node,
                                                                               out.config);
}

std::vector<std::string> scheduler_names() {
  std::vector<std::string> names;
  for (const SchedulerKind& kind : schedulers()) names.emplace_back(kind.name);
  return names;
}

std::vector<std::pair<std::string, std::uint8_t>> protocol_choices() {
  return {protocols().begin(), protocols().end()};
}

std::vector<std::pair<std::string, Config::Model>> model_choices() {
  return {models().begin(), models().end()};
}

/// Reads what belongs to Config itself.
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
                    }});
  }
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
      {"balance", config::boolean(&Config::Spread::balance)},
      {"balance_interval_ms",
       config::integer(&Config::Spread::balance_interval_ms, 1, 60'000, "milliseconds")},
  };
}

Keys<Config::Balance> balance_keys() {
  using B = Config::Balance;
  using U = Config::Unmatched;
  return {
      {"stateful", config::boolean(&B::stateful)},
      {"unmatched", config::choice(&B::unmatched, {{"pass", U::pass}, {"drop", U::drop}})},
      {"key", read_key},
      {"maglev_table_size", read_table_size},
  };
}

Keys<RawBackend> backend_keys() {
  using B = RawBackend;
  return {
      {"address", config::text(&B::address), true},
      {"port", config::integer(&B::port, 1, 65535)},
      {"weight", config::integer(&B::weight, 1, BackendSpec<AddressV4>::kMaxWeight)},
  };
}

void read_backends(const Context& context, const toml::node& node, RawService& out) {
  config::tables(&RawService::backends, backend_keys())(context, node, out);
  if (node.is_array() && node.as_array()->empty()) {
    context.problem(node, "is empty: give one backend at least");
  }
}

Keys<RawService> service_keys() {
  using S = RawService;
  return {
      {"address", config::text(&S::address), true},
      {"port", config::integer(&S::port, 1, 65535)},
      {"protocol", config::choice(&S::protocol, protocol_choices())},
      {"scheduler", config::name(&S::scheduler, scheduler_names())},
      {"backends", read_backends, true},
  };
}

Keys<RawConfig> root_keys(const SchemeNames& schemes) {
  const std::string live = "belongs to `millrace run`, which is not in this version: leave it out";
  return {
      {"function", read_function},
      {"workers", in_config(config::integer(&Config::workers, 1, Workers::kMost, "threads"))},
      {"model", in_config(config::choice(&Config::model, model_choices()))},
      {"sharing", in_config(config::name(&Config::sharing, schemes.sharing))},
      {"spread", in_config(config::table(&Config::spread, spread_keys()))},
      {"table", in_config(config::table(&Config::table, table_keys(schemes)))},
      {"ageing", in_config(config::table(&Config::ageing, ageing_keys(schemes)))},
      {"balance", in_config(config::table(&Config::balance, balance_keys()))},
      {"service", config::tables(&RawConfig::services, service_keys())},
      {"port", config::refused<RawConfig>(live)},
      {"route", config::refused<RawConfig>(live)},
  };
}

// --- services: what only holds together

template <class A>
constexpr std::string_view kFamilyName = A::kBytes == 4 ? "IPv4" : "IPv6";

bool is_address(std::string_view text) {
  return parse_address<AddressV4>(text).has_value() || parse_address<AddressV6>(text).has_value();
}

/// Turns raw services into those of one family.
template <class A>
class ServiceReader {
 public:
  ServiceReader(config::Problems& problems, const Config& config)
      : problems_(problems), config_(config) {}

  /// `address` is the service's, without its prefix length `bits` where one was given.
  void add(const RawService& raw, const A& address, std::optional<std::string_view> bits) {
    ServiceSpec<A> spec{.address = address,
                        .port = raw.port,
                        .protocol = raw.protocol,
                        .scheduler = raw.scheduler,
                        .backends = {}};
    if (bits) read_prefix(raw, *bits, spec);
    check(raw, spec);
    read_backends(raw, spec);
    services_.push_back(std::move(spec));
  }

  std::vector<ServiceSpec<A>> take() { return std::move(services_); }

 private:
  void read_prefix(const RawService& raw, std::string_view bits, ServiceSpec<A>& spec) {
    const std::string digits(bits);
    const char* end = digits.c_str() + digits.size();
    const auto parsed = std::from_chars(digits.c_str(), end, spec.prefix_bits);
    constexpr unsigned kMost = 8 * A::kBytes;
    if (parsed.ec != std::errc{} || parsed.ptr != end || spec.prefix_bits > kMost) {
      spec.prefix_bits = kMost;
      problem(raw.address.line, "address",
              in_quotes(bits) + " is no prefix length: give 0 to " + std::to_string(kMost));
      return;
    }
    const A prefix = prefix_of(spec.address, spec.prefix_bits);
    if (prefix == spec.address) return;
    problem(raw.address.line, "address",
            raw.address.value + " has bits set behind its prefix: give " + to_string(prefix) + "/" +
                std::string(bits));
  }

  void check(const RawService& raw, const ServiceSpec<A>& spec) {
    const auto [first, fresh] = lines_.emplace(ServiceTable<A>::identity(spec), raw.line);
    if (!fresh) {
      problems_.add(raw.line, "service",
                    to_string(spec) + " is there already, on line " +
                        std::to_string(first->second) +
                        ": give it another address, port or protocol");
    }
    if (spec.port != 0 && spec.protocol != 0 && !has_ports(spec.protocol)) {
      problem(raw.line, "port", protocol_name(spec.protocol) + " has no ports: leave it out");
    }
    const std::uint8_t foreign = A::kBytes == 4 ? kProtocolIcmpV6 : kProtocolIcmp;
    if (spec.protocol == foreign) {
      problem(raw.line, "protocol",
              protocol_name(foreign) + " is not of " + std::string(kFamilyName<A>) + ": give " +
                  in_quotes(A::kBytes == 4 ? "icmp" : "icmpv6"));
    }
    if (!config_.balance.stateful && spec.scheduler != "maglev") {
      problem(raw.line, "scheduler",
              in_quotes(spec.scheduler) + " needs balance.stateful = true: give \"maglev\"");
    }
    if (raw.backends.size() >= config_.balance.maglev_table_size) {
      problem(raw.line, "backends",
              "has " + std::to_string(raw.backends.size()) +
                  " backends, more than the Maglev table takes: enlarge "
                  "balance.maglev_table_size");
    }
  }

  void read_backends(const RawService& raw, ServiceSpec<A>& spec) {
    std::map<std::pair<A, std::uint16_t>, std::uint32_t> seen;
    for (const RawBackend& backend : raw.backends) {
      const auto& text = backend.address.value;
      const std::uint32_t line = backend.address.line;
      if (!backend.address.given) continue;
      const auto address = parse_address<A>(text);
      if (!address) {
        problem(line, "backends.address",
                is_address(text) ? text + " is not of the service's family: give an " +
                                       std::string(kFamilyName<A>) + " address"
                                 : in_quotes(text) + " is no address: give one of " +
                                       std::string(kFamilyName<A>));
        continue;
      }
      if (!seen.emplace(std::pair(*address, backend.port), line).second) {
        problem(line, "backends.address",
                with_port(*address, backend.port) +
                    " is in the list already: leave it out, or give the first a weight");
        continue;
      }
      if (backend.port != 0 && spec.protocol != 0 && !has_ports(spec.protocol)) {
        problem(line, "backends.port",
                protocol_name(spec.protocol) + " has no ports: leave it out");
      }
      spec.backends.push_back({*address, backend.port, backend.weight});
    }
  }

  void problem(std::uint32_t line, std::string_view key, const std::string& what) {
    problems_.add(line, std::string("service.").append(key), what);
  }

  config::Problems& problems_;
  const Config& config_;
  std::vector<ServiceSpec<A>> services_;
  std::map<typename ServiceTable<A>::Words, std::uint32_t> lines_;
};

void read_services(config::Problems& problems, const std::vector<RawService>& raw, Config& config) {
  if (raw.empty()) return;
  ServiceReader<AddressV4> v4(problems, config);
  ServiceReader<AddressV6> v6(problems, config);
  for (const RawService& service : raw) {
    const std::string& text = service.address.value;
    if (!service.address.given) continue;
    const std::size_t slash = text.find('/');
    const std::string_view host = std::string_view(text).substr(0, slash);
    std::optional<std::string_view> bits;
    if (slash != text.npos) bits = std::string_view(text).substr(slash + 1);
    if (const auto address = parse_address<AddressV4>(host)) {
      v4.add(service, *address, bits);
    } else if (const auto address6 = parse_address<AddressV6>(host)) {
      v6.add(service, *address6, bits);
    } else {
      problems.add(
          service.address.line, "service.address",
          in_quotes(text) + " is no address: give one like 203.0.113.10, 2001:db8::1, 10.0.0.0/8");
    }
  }
  config.services_given = true;
  config.services.v4 = v4.take();
  config.services.v6 = v6.take();
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

std::optional<toml::table> parse_toml(std::string_view text, std::string_view name,
                                      config::Problems& problems) {
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& wrong) {
    problems.add(wrong.source().begin.line, "", wrong.description());
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
  const auto parsed = parse_toml(text, name, problems);
  if (!parsed) return std::unexpected(problems.error());
  RawConfig raw;
  config::read_keys({problems, ""}, *parsed, root_keys(schemes), raw);
  read_services(problems, raw.services, raw.config);
  if (!problems.none()) return std::unexpected(problems.error());
  return raw.config;
}

Result<Config> read_config(const std::string& path, const SchemeNames& schemes) {
  const auto text = contents(path);
  if (!text) return std::unexpected(text.error());
  return parse_config(*text, path, schemes);
}

BalanceConfig balance_config(const Config& config) {
  // Connections that never end can resume after any pause.
  constexpr std::uint32_t kForever = 0xffffffff;
  constexpr std::uint32_t kSynRetransmissions = 128;
  const std::uint32_t longest =
      std::max(config.ageing.timeout_s.longest_without_syn(), kSynRetransmissions);
  return {.services = config.services,
          .key = config.balance.key,
          .maglev_table_size = config.balance.maglev_table_size,
          .stateful = config.balance.stateful,
          .stateless_when_full = config.table.when_full != Config::WhenFull::drop,
          .quiet_ms = config.ageing.scheme == "none" ? kForever : longest * 1000};
}

std::span<const std::pair<std::string_view, Config::Model>> models() {
  using M = Config::Model;
  static constexpr std::array<std::pair<std::string_view, M>, 2> kModels{
      {{"run-to-completion", M::run_to_completion}, {"pipeline", M::pipeline}}};
  return kModels;
}

Result<void> check_spread(const Config& config) {
  if (config.spread.balance && config.model == Config::Model::pipeline) {
    return std::unexpected(
        Error{"spread.balance (--balance) does not go with the model \"pipeline\" (--model), whose "
              "workers "
              "do not meet: give \"run-to-completion\", or leave it out",
              Error::Kind::usage});
  }
  if (config.workers == 1 || !config.balance.stateful) return {};
  if (spread_named(config.spread.scheme)->by_client) return {};
  const auto rewritten = [](const auto& specs) {
    return std::ranges::any_of(specs, [](const auto& spec) { return spec.two_way(); });
  };
  if (!rewritten(config.services.v4) && !rewritten(config.services.v6)) return {};
  return std::unexpected(
      Error{"spread.scheme \"" + config.spread.scheme +
                "\" (--spread) sends the replies of services to other workers than their requests: "
                "give \"keyed\" or \"toeplitz\", or workers = 1",
            Error::Kind::usage});
}

LineConfig line_config(const Config& config) {
  LineConfig line;
  line.table = config.table.scheme;
  line.sharing = config.sharing;
  line.ageing = config.ageing.scheme;
  line.capacity = config.table.capacity;
  line.capacity_v6 =
      config.table.capacity_v6.value_or(std::max<std::size_t>(config.table.capacity / 8, 1));
  line.half_open_percent = config.table.half_open_percent;
  line.evicts = config.table.when_full == Config::WhenFull::evict;
  line.timeouts = config.ageing.timeout_s.timeouts();
  line.interval_ms = config.ageing.interval_ms;
  if (config.spread.balance && config.workers > 1) line.entries_that_move = config.spread.entries;
  line.pass_unmatched = config.balance.unmatched == Config::Unmatched::pass;
  return line;
}

}  // namespace millrace
