// The load balancer's commands over the control socket: marks of backends, and the list of services
// with these marks.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/address.h"
#include "core/parameters.h"
#include "core/protocol.h"
#include "function/balance/deployment.h"
#include "function/command_done.h"

namespace millrace {
namespace {

/// Calls `each(spec)` for all services of both families.
template <class ServicesType, class Each>
void for_each_service(ServicesType& services, Each&& each) {
  for (auto& spec : services.v4) each(spec);
  for (auto& spec : services.v6) each(spec);
}

template <class A>
std::string name_of(const BackendSpec<A>& backend) {
  return with_port(backend.address, backend.port);
}

/// Returns the backends of a service that have this name: the backend with exactly that address and
/// port, if there is one; else all backends at that address that serve at that port, or at any port
/// if the name has none.
template <class A>
std::vector<BackendSpec<A>> named(const ServiceSpec<A>& service, const BackendName& name) {
  std::vector<BackendSpec<A>> all;
  const A* const address = std::get_if<A>(&name.address);
  if (address == nullptr) return all;
  for (const auto& backend : service.backends) {
    if (backend.address != *address) continue;
    if (backend.port == name.port.value_or(0)) return {backend};
    const std::uint16_t port = backend.port != 0 ? backend.port : service.port;
    if (!name.port || *name.port == port) all.push_back(backend);
  }
  return all;
}

std::unexpected<Refusal> wrong(const std::string& message) {
  return std::unexpected(Refusal{Refusal::Kind::wrong, message});
}

/// A request to set or remove a mark: the parameters of `/drain` or `/health`.
struct Wanted {
  std::string backend;
  std::string service;  ///< empty: all services
  bool is_so = false;   ///< value of the parameter that names the mark
};

/// Reads a request. `name` is the parameter that names the mark.
CommandResult<Wanted> wanted_from(Parameters given, const std::string& name) {
  Wanted wanted;
  bool is_given = false;
  std::optional<bool> is;
  for (const auto& [key, value] : given) {
    if (key != "backend" && key != "service" && key != name) {
      return wrong(std::string("the parameter ")
                       .append(key)
                       .append(" is not known: there are backend, service and ")
                       .append(name));
    }
    if (value.empty()) return wrong(key + " is empty: give a value, or leave the parameter out");
    is_given = is_given || key == "backend";
    if (key == "backend") wanted.backend = value;
    if (key == "service") wanted.service = value;
    if (key == name && value == "true") is = true;
    if (key == name && value == "false") is = false;
  }
  if (!is_given || !is)
    return wrong("the parameters backend and " + name + " are needed: give " + name +
                 " = true or false");
  wanted.is_so = *is;
  return wanted;
}

Json to_json(const std::optional<HealthCheck>& health) {
  if (!health) return nullptr;
  using Kind = HealthCheck::Kind;
  Json object{{"check", health->kind == Kind::tcp    ? "tcp"
                        : health->kind == Kind::http ? "http"
                                                     : "icmp"},
              {"path", health->path},
              {"host", health->host},
              {"interval_ms", health->interval_ms},
              {"timeout_ms", health->timeout_ms},
              {"rise", health->rise},
              {"fall", health->fall}};
  if (health->port != 0) object["port"] = health->port;
  return object;
}

}  // namespace

auto BalanceDeployment::command(std::string_view path, Parameters given,
                                const OnEachWorker& on_each) -> CommandResult<CommandDone> {
  if (path == "/services") return CommandDone{.result = list()};
  return mark(path == "/drain" ? Mark::drained : Mark::unhealthy, given, on_each);
}

auto BalanceDeployment::mark(Mark mark, Parameters given, const OnEachWorker& on_each)
    -> CommandResult<CommandDone> {
  const bool drains = mark == Mark::drained;
  const auto wanted = wanted_from(given, drains ? "drained" : "healthy");
  if (!wanted) return std::unexpected(wanted.error());
  const auto name = parse_backend(wanted->backend);
  if (!name) return wrong(name.error().message);
  auto& marked = marked_[static_cast<std::size_t>(mark)];
  const auto before = marked;
  unsigned count = 0;
  for_each_service(settings_->services, [&](const auto& spec) {
    if (!wanted->service.empty() && wanted->service != to_string(spec)) return;
    for (const auto& one : named(spec, *name)) {
      ++count;
      if (wanted->is_so == drains) {
        marked.emplace(to_string(spec), name_of(one));
      } else {
        marked.erase({to_string(spec), name_of(one)});
      }
    }
  });
  if (count == 0) {
    const std::string whose = wanted->service.empty()
                                  ? "no service has a backend "
                                  : "there is no service " + wanted->service + " with a backend ";
    return std::unexpected(
        Refusal{Refusal::Kind::absent,
                whose + wanted->backend + ": `millctl stats` and GET /services list the backends"});
  }
  CommandDone done{.result = {{"backends", count}}};
  if (marked == before) return done;
  const auto review = make_plan(on_each);
  if (!review) {
    marked = before;
    return std::unexpected(Refusal{Refusal::Kind::not_now, review.error().message});
  }
  done.review = *review;
  return done;
}

/// Returns the configured services, with the marks of their backends applied.
Services BalanceDeployment::effective() const {
  Services services = settings_->services;
  for_each_service(services, [this](auto& spec) {
    const std::string name = to_string(spec);
    for (auto& backend : spec.backends) {
      const std::string of = name_of(backend);
      if (has(Mark::drained, name, of)) backend.weight = 0;
      backend.is_healthy = !has(Mark::unhealthy, name, of);
    }
  });
  return services;
}

/// Removes the mark `unhealthy` from the backends of services without a health check.
void BalanceDeployment::forget_health() {
  auto& unhealthy = marked_[static_cast<std::size_t>(Mark::unhealthy)];
  for_each_service(settings_->services, [&](const auto& spec) {
    if (spec.health) return;
    const std::string name = to_string(spec);
    std::erase_if(unhealthy, [&name](const auto& one) { return one.first == name; });
  });
}

Json BalanceDeployment::list() const {
  Json all = Json::array();
  for_each_service(settings_->services, [&](const auto& spec) {
    const std::string service = to_string(spec);
    Json backends = Json::array();
    for (const auto& backend : spec.backends) {
      const std::string name = name_of(backend);
      backends.push_back({{"address", to_string(backend.address)},
                          {"port", backend.port},
                          {"weight", backend.weight},
                          {"drained", has(Mark::drained, service, name)},
                          {"healthy", !has(Mark::unhealthy, service, name)}});
    }
    all.push_back({{"service", service},
                   {"address", to_string(spec.address)},
                   {"prefix", spec.prefix_bits},
                   {"port", spec.port},
                   {"protocol", spec.protocol != 0 ? protocol_name(spec.protocol) : ""},
                   {"forward", to_string(spec.forward)},
                   {"health", to_json(spec.health)},
                   {"backends", backends}});
  });
  return all;
}

}  // namespace millrace
