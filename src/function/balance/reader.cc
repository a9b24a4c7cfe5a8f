// Reads the load balancer's part of a configuration: [balance] and [[service]].
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/address.h"
#include "function/balance/scheduler.h"
#include "function/balance/settings.h"
#include "function/reader.h"
#include "host/addresses_of.h"
#include "toml/addresses.h"

namespace millrace {
namespace {

using namespace config;

// --- single values

/// The largest capacity of a table.
constexpr std::int64_t kMostConnections = 1'800'000'000;

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

void read_key(const Context& context, const toml::node& node, BalanceSettings& out) {
  constexpr std::string_view kRight = ": give 32 hexadecimal digits";
  const auto* text = node.as_string();
  if (text == nullptr) {
    context.problem(node, kind_of(node).append(kRight));
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

void read_table_size(const Context& context, const toml::node& node, BalanceSettings& out) {
  integer(&BalanceSettings::maglev_table_size, 2, Maglev::kMaxSize, "entries")(context, node, out);
  std::uint32_t prime = out.maglev_table_size;
  while (!is_prime(prime)) ++prime;
  if (prime == out.maglev_table_size) return;
  context.problem(
      node, std::to_string(out.maglev_table_size) + " is no prime: give " + std::to_string(prime));
}

Keys<BalanceSettings> balance_keys() {
  using B = BalanceSettings;
  using U = Unmatched;
  return {
      {"stateful", boolean(&B::stateful)},
      {"unmatched", choice(&B::unmatched, {{"pass", U::pass}, {"drop", U::drop}})},
      {"key", read_key},
      {"maglev_table_size", read_table_size},
  };
}

std::vector<std::string> scheduler_names() {
  std::vector<std::string> names;
  for (const SchedulerKind& kind : schedulers()) names.emplace_back(kind.name);
  return names;
}

std::vector<std::pair<std::string, std::uint8_t>> protocol_choices() {
  return {protocols().begin(), protocols().end()};
}

void read_max_connections(const Context& context, const toml::node& node, RawService& out) {
  using Limit = Located<std::uint32_t>;
  integer(&Limit::value, 1, kMostConnections, "connections")(context, node, out.max_connections);
  out.max_connections.line = node.source().begin.line;
  out.max_connections.given = node.is_integer();
}

Keys<RawBackend> backend_keys() {
  using B = RawBackend;
  return {
      {"address", text(&B::address), true},
      {"port", integer(&B::port, 1, 65535)},
      {"weight", integer(&B::weight, 0, BackendSpec<AddressV4>::kMaxWeight)},
  };
}

void read_backends(const Context& context, const toml::node& node, RawService& out) {
  tables(&RawService::backends, backend_keys(), "{ address = \"10.0.0.1\" }")(context, node, out);
  if (node.is_array() && node.as_array()->empty()) {
    context.problem(node, "is empty: give one backend at least");
  }
}

Keys<RawHealth> health_keys() {
  using H = RawHealth;
  constexpr int kHour = 3'600'000;
  return {
      {"check",
       choice(&H::kind, {{"tcp", H::Kind::tcp}, {"http", H::Kind::http}, {"icmp", H::Kind::icmp}}),
       true},
      {"path", any_text(&H::path)},
      {"host", any_text(&H::host)},
      {"port", integer(&H::port, 1, 65535)},
      {"interval_ms", integer(&H::interval_ms, 10, kHour, "ms")},
      {"timeout_ms", integer(&H::timeout_ms, 1, kHour, "ms")},
      {"rise", integer(&H::rise, 1, 1000)},
      {"fall", integer(&H::fall, 1, 1000)},
      {"move_udp", boolean(&H::move_udp)},
  };
}

void read_health(const Context& context, const toml::node& node, RawService& out) {
  struct Health {
    RawHealth check;
  } of;
  table(&Health::check, health_keys())(context, node, of);
  out.health = {of.check, node.source().begin.line, node.is_table()};
}

// --- checks across several values

/// Turns the raw services of one family into `ServiceSpec`s, and checks them.
template <class A>
class ServiceReader {
 public:
  ServiceReader(Problems& problems, const BalanceSettings& settings, const Surroundings& around)
      : problems_(problems),
        settings_(settings),
        around_(around),
        broadcasts_(broadcasts_of(around.family<A>())) {}

  /// Adds a service. `address` is its address, and `bits` the prefix length if there is one.
  void add(const RawService& raw, const A& address, std::optional<std::string_view> bits) {
    ServiceSpec<A> spec{.address = address,
                        .port = raw.port,
                        .protocol = raw.protocol,
                        .forward = raw.forward,
                        .scheduler = raw.scheduler,
                        .max_connections = raw.max_connections.value,
                        .health = raw.health.value,
                        .no_backend = raw.no_backend,
                        .on_unhealthy = raw.on_unhealthy.value_or(OnUnhealthy::keep),
                        .move_udp = moves_udp(raw),
                        .direct = raw.direct,
                        .backends = {}};
    if (bits) read_prefix(raw, *bits, spec);
    check(raw, spec);
    read_backends(raw, spec);
    if (spec.health) check_health(raw, spec);
    if (raw.on_unhealthy && !spec.health)
      problem(raw.line, "on_unhealthy",
              "needs health: without a health check every backend counts as healthy");
    services_.push_back(std::move(spec));
  }

  std::vector<ServiceSpec<A>> take() { return std::move(services_); }

 private:
  void read_prefix(const RawService& raw, std::string_view digits, ServiceSpec<A>& spec) {
    const auto prefix = config::read_prefix(spec.address, digits);
    if (!prefix) problem(raw.address.line, "address", prefix.error());
    spec.prefix_bits = prefix ? prefix->bits : 0;  // the checks that follow take it for a prefix
  }

  void check(const RawService& raw, const ServiceSpec<A>& spec) {
    if (!spec.is_prefix() && std::ranges::count(broadcasts_, spec.address) != 0)
      problem(raw.address.line, "address",
              raw.address.value + " is the broadcast address of a port's network: give another");
    const auto [first, fresh] = lines_.emplace(spec.destination(), raw.line);
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
    if (!settings_.stateful && spec.two_way()) {
      problem(raw.line, "forward",
              "\"nat\" needs balance.stateful = true, since replies are known by entries: give "
              "\"dsr\", where backends have the service's address and answer clients themselves");
    }
    if (!settings_.stateful && spec.scheduler != "maglev") {
      problem(raw.line, "scheduler",
              in_quotes(spec.scheduler) + " needs balance.stateful = true: give \"maglev\"");
    }
    if (!settings_.stateful && raw.max_connections.given)
      problem(raw.max_connections.line, "max_connections", std::string(kNeedsStateful));
    if (raw.backends.size() > settings_.maglev_table_size) {
      problem(raw.line, "backends",
              "has " + std::to_string(raw.backends.size()) +
                  " backends, more than the Maglev table takes: enlarge "
                  "balance.maglev_table_size");
    }
  }

  /// Returns the service's `move_udp`. The key may also be in the health check, its place in
  /// earlier versions.
  bool moves_udp(const RawService& raw) {
    const auto& health = raw.health.value;
    const std::optional<bool> there = health ? health->move_udp : std::nullopt;
    if (raw.move_udp && there && *raw.move_udp != *there)
      problem(raw.health.line, "health.move_udp",
              "contradicts the service's move_udp: leave health.move_udp out");
    return raw.move_udp.value_or(there.value_or(true));
  }

  void check_health(const RawService& raw, const ServiceSpec<A>& spec) {
    const HealthCheck& health = *spec.health;
    const auto is_odd = [](char c) { return c <= ' ' || c > '~'; };
    if (!health.path.starts_with('/') || std::ranges::any_of(health.path, is_odd))
      problem(raw.health.line, "health.path",
              in_quotes(health.path) +
                  " is no path: give one that begins with /, and %20 for a "
                  "space");
    if (std::ranges::any_of(health.host, is_odd))
      problem(raw.health.line, "health.host",
              in_quotes(health.host) + " is no host: give one like www.example.com");
    if (health.kind == HealthCheck::Kind::icmp || health.port != 0 || spec.port != 0) return;
    for (const auto& backend : spec.backends) {
      if (backend.port != 0) continue;
      return problem(raw.health.line, "health",
                     "has no port to check: neither the service nor the backend " +
                         to_string(backend.address) + " has a port: give port");
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
        const auto hint = hint_of_port(text);
        problem(line, "backends.address",
                hint               ? in_quotes(text) + " has its port in it: " + *hint
                : is_address(text) ? text + " is not of the service's family: give an " +
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
      if (!is_one_host(*address) || std::ranges::count(broadcasts_, *address) != 0)
        problem(line, "backends.address",
                text + " is no address of one machine: give the backend's");
      if (*address == spec.address && !spec.is_prefix())
        problem(line, "backends.address",
                text + " is the service's own address: give the backend's");
      if (is_own(*address))
        problem(line, "backends.address",
                text + " is the address of a port, which has no server: give another machine's");
      if (spec.forward == Forward::dsr) check_direct(backend, *address, spec);
      spec.backends.push_back({*address, backend.port, backend.weight});
    }
  }

  bool is_own(const A& address) const {
    return std::ranges::any_of(around_.family<A>().own,
                               [&](const auto& own) { return own.address == address; });
  }

  void check_direct(const RawBackend& backend, const A& address, const ServiceSpec<A>& spec) {
    if (backend.port != 0 && backend.port != spec.port)
      problem(backend.line, "backends.port",
              "must be the service's with forward = \"dsr\", which rewrites nothing: leave it out");
    if (around_.is_live() && !is_on_link(around_.family<A>(), address))
      problem(backend.address.line, "backends.address",
              backend.address.value +
                  " is on the link of no port, and forward = \"dsr\" reaches a backend by its MAC "
                  "only: give a port an address in the backend's network");
  }

  void problem(std::uint32_t line, std::string_view key, const std::string& what) {
    problems_.add(line, std::string("service.").append(key), what);
  }

  Problems& problems_;
  const BalanceSettings& settings_;
  const Surroundings& around_;
  std::vector<A> broadcasts_;  // broadcast addresses of the ports' networks
  std::vector<ServiceSpec<A>> services_;
  std::map<Destination<A>, std::uint32_t> lines_;
};

Keys<RawService> service_keys() {
  using S = RawService;
  return {
      {"address", text(&S::address), true},
      {"port", integer(&S::port, 1, 65535)},
      {"protocol", choice(&S::protocol, protocol_choices())},
      {"forward", choice(&S::forward, {{"nat", Forward::nat}, {"dsr", Forward::dsr}})},
      {"scheduler", name(&S::scheduler, scheduler_names())},
      {"max_connections", read_max_connections},
      {"health", read_health},
      {"no_backend", choice(&S::no_backend, {{"refuse", NoBackend::refuse},
                                             {"drop", NoBackend::drop},
                                             {"pass", NoBackend::pass}})},
      {"on_unhealthy",
       choice(&S::on_unhealthy, {{"keep", OnUnhealthy::keep}, {"reset", OnUnhealthy::reset}})},
      {"move_udp", boolean(&S::move_udp)},
      {"direct", boolean(&S::direct)},
      {"backends", read_backends, true},
  };
}

/// Turns the raw services into those of `settings`, whose other members must have been read.
void read_services(Problems& problems, const std::vector<RawService>& raw,
                   const Surroundings& around, BalanceSettings& settings) {
  if (raw.empty()) return;
  ServiceReader<AddressV4> v4(problems, settings, around);
  ServiceReader<AddressV6> v6(problems, settings, around);
  for (const RawService& service : raw) {
    const std::string& text = service.address.value;
    if (!service.address.given) continue;
    const AddressAndBits parts(text);
    if (const auto address = parse_address<AddressV4>(parts.address)) {
      v4.add(service, *address, parts.bits);
    } else if (const auto address6 = parse_address<AddressV6>(parts.address)) {
      v6.add(service, *address6, parts.bits);
    } else {
      const auto hint = hint_of_port(text);
      problems.add(service.address.line, "service.address",
                   hint ? in_quotes(text) + " has its port in it: " + *hint
                        : in_quotes(text) +
                              " is no address: give one like 203.0.113.10, "
                              "2001:db8::1, 10.0.0.0/8");
    }
  }
  settings.services_given = true;
  settings.services.v4 = v4.take();
  settings.services.v6 = v6.take();
}

class BalanceReader final : public SettingsReader {
 public:
  void read(std::string_view key, const Context& context, const toml::node& node) override {
    if (key == "balance") {
      table(&Raw::settings, balance_keys())(context, node, raw_);
    } else {
      tables(&Raw::services, service_keys())(context, node, raw_);
    }
  }

  std::shared_ptr<const FunctionSettings> finish(Problems& problems,
                                                 const Surroundings& around) override {
    read_services(problems, raw_.services, around, raw_.settings);
    return std::make_shared<const BalanceSettings>(std::move(raw_.settings));
  }

 private:
  struct Raw {
    BalanceSettings settings;
    std::vector<RawService> services;
  } raw_;
};

}  // namespace

std::unique_ptr<SettingsReader> balance_reader() { return std::make_unique<BalanceReader>(); }

}  // namespace millrace
