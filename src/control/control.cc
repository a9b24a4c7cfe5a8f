#include "control/control.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>

#include "core/address.h"
#include "core/protocol.h"

namespace millrace {
namespace {

Refusal refusal(const Error& error, Refusal::Kind kind) { return {kind, error.message}; }

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

/// The backends of a service that are meant: the one that has exactly that name, or else those of
/// that port, or of any where none is given.
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

}  // namespace

void Control::alone(const std::function<void()>& work) {
  const std::lock_guard guard(mutex_);
  work();
}

bool Control::connections(
    const ConnectionFilter& filter,
    const std::function<bool(std::span<const WorkersConnection>, const BalancePlan&)>& take) {
  std::vector<WorkersConnection> piece;
  for (unsigned n = 0; n < workers_->count(); ++n) {
    for (LineCursor at; at.at != LineCursor::At::end;) {
      piece.clear();
      const auto look = [&](const ListedConnection& connection) {
        if (filter.takes(connection)) piece.push_back({n, connection});
        return Look::leave;
      };
      std::shared_ptr<const BalancePlan> plan;
      {
        const std::lock_guard guard(mutex_);
        plan = workers_->plan();
        if (!workers_->ask(n, [&] { at = workers_->line(n).look(at, look); })) return false;
      }
      if (!piece.empty() && !take(piece, *plan)) return false;
    }
  }
  return true;
}

Answer<std::uint64_t> Control::kill(const ConnectionFilter& filter, bool tells) {
  const std::lock_guard guard(mutex_);
  if (auto no = refusal_while_handing_over()) return std::unexpected(*no);
  std::uint64_t ended = 0;
  const auto look = [&](const ListedConnection& connection) {
    if (!filter.takes(connection)) return Look::leave;
    ++ended;
    return tells ? Look::reset : Look::end;
  };
  for (unsigned n = 0; n < workers_->count(); ++n) {
    for (LineCursor at; at.at != LineCursor::At::end;) {
      if (!workers_->ask(n, [&] { at = workers_->line(n).look(at, look); })) return ended;
    }
  }
  return ended;
}

auto Control::right_to_trace() -> Answer<std::shared_ptr<TraceRight>> {
  if (is_tracing_.exchange(true)) {
    return std::unexpected(
        Refusal{Refusal::Kind::not_now, "somebody is tracing already: end that, or wait for it"});
  }
  return std::make_shared<TraceRight>(is_tracing_);
}

Answer<std::uint64_t> Control::trace(const TraceRight&, const ConnectionFilter& filter,
                                     const std::function<bool(const TracedPacket*)>& take) {
  std::vector<std::unique_ptr<Tracer>> tracers;
  for (unsigned n = 0; n < workers_->count(); ++n) {
    auto tracer = Tracer::create(filter);
    if (!tracer) return std::unexpected(refusal(tracer.error(), Refusal::Kind::not_now));
    tracers.push_back(std::move(*tracer));
  }
  const auto set = [&](const auto& tracer_of) {
    const std::lock_guard guard(mutex_);
    return workers_->ask_all([&](unsigned n) { live_->trace(n, tracer_of(n)); });
  };
  // Also where `take` throws: workers must not keep what goes away.
  const auto forget = [&set](const auto*) { set([](unsigned) -> Tracer* { return nullptr; }); };
  std::unique_ptr<const Control, decltype(forget)> tracing(this, forget);
  if (!set([&](unsigned n) { return tracers[n].get(); }))
    return std::unexpected(Refusal{Refusal::Kind::not_now, "millrace is ending"});
  bool goes_on = take(nullptr);
  while (goes_on) {
    constexpr std::chrono::milliseconds kPause{5};
    bool is_idle = true;
    for (const auto& tracer : tracers) {
      const TracedPacket* packet = nullptr;
      while (goes_on && (packet = tracer->take()) != nullptr) {
        is_idle = false;
        goes_on = take(packet);
      }
    }
    if (!goes_on) break;
    goes_on = take(nullptr);
    if (is_idle) std::this_thread::sleep_for(kPause);
  }
  tracing.reset();
  std::uint64_t lost = 0;
  for (const auto& tracer : tracers) lost += tracer->lost();
  return lost;
}

std::vector<std::string> Control::ports() {
  const std::lock_guard guard(mutex_);
  std::vector<std::string> names;
  for (const Config::Port& port : config_.live.ports) names.push_back(port.name);
  return names;
}

Services Control::effective(const Config& config) const {
  Services services = config.services;
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

Answer<unsigned> Control::mark(Mark mark, const std::string& backend, const std::string& service,
                               bool is_so) {
  const auto name = parse_backend(backend);
  if (!name) return std::unexpected(refusal(name.error(), Refusal::Kind::wrong));
  const std::lock_guard guard(mutex_);
  if (auto no = refusal_while_handing_over()) return std::unexpected(*no);
  auto& marked = marked_[static_cast<std::size_t>(mark)];
  const auto before = marked;
  unsigned count = 0;
  for_each_service(config_.services, [&](const auto& spec) {
    if (!service.empty() && service != to_string(spec)) return;
    for (const auto& one : named(spec, *name)) {
      ++count;
      if (is_so) {
        marked.emplace(to_string(spec), name_of(one));
      } else {
        marked.erase({to_string(spec), name_of(one)});
      }
    }
  });
  if (count == 0) {
    return std::unexpected(
        Refusal{Refusal::Kind::absent,
                service.empty() ? "no service has a backend " + backend +
                                      ": `millctl stats` and GET /services list them"
                                : "there is no service " + service + " with a backend " + backend +
                                      ": `millctl stats` and GET /services list them"});
  }
  if (marked == before) return count;
  if (auto ok = workers_->update(effective(config_)); !ok) {
    marked = before;
    return std::unexpected(refusal(ok.error(), Refusal::Kind::not_now));
  }
  return count;
}

/// Of services that nobody checks any more.
void Control::forget_health() {
  auto& unhealthy = marked_[static_cast<std::size_t>(Mark::unhealthy)];
  for_each_service(config_.services, [&](const auto& spec) {
    if (spec.health) return;
    const std::string name = to_string(spec);
    std::erase_if(unhealthy, [&name](const auto& one) { return one.first == name; });
  });
}

/// Marks that nobody would take back any more must not weigh.
Result<void> Control::take_on(Config config) {
  std::swap(config_, config);
  Marked before = marked_;
  forget_health();
  auto ok = live_->update_kernel(config_);
  if (ok) ok = workers_->update(effective(config_));
  if (!ok) {
    std::swap(config_, config);
    marked_ = std::move(before);
    static_cast<void>(live_->update_kernel(config_));
    return ok;
  }
  const LineConfig line = line_config(config_);
  const std::uint32_t quiet_ms = balance_config(config_).quiet_ms;
  if (workers_->sources() != nullptr) workers_->sources()->set_most(line.source_limit.most);
  std::vector hosts(workers_->count(), live_->host_plan(config_));
  workers_->ask_all([&](unsigned n) {
    workers_->line(n).set_timeouts(line.timeouts);
    workers_->balance(n).set_quiet_ms(quiet_ms);
    live_->update(n, hosts[n]);
  });
  return {};
}

auto Control::reload() -> Answer<Reloaded> {
  const auto start = std::chrono::steady_clock::now();
  // Who reads the file later also takes it on later.
  const std::unique_lock one_at_a_time(reloading_, kReloadPatience);
  if (!one_at_a_time)
    return std::unexpected(Refusal{Refusal::Kind::not_now, "another reload is under way"});
  const auto wrong = [](const Error& error) {
    return std::unexpected(refusal(error, Refusal::Kind::configuration));
  };
  const auto wrong_together = [this](const Error& error) {
    return std::unexpected(Refusal{Refusal::Kind::configuration, in_file(path_, error.message)});
  };
  std::error_code error;  // reading something else might take for ever
  if (std::filesystem::exists(path_, error) && (!std::filesystem::is_regular_file(path_, error) ||
                                                std::filesystem::file_size(path_, error) == 0))
    return wrong_together({"is empty, or no regular file any more: put one there, or restart"});
  auto config = read_config(path_, schemes_);
  if (!config) return wrong(config.error());
  if (auto ok = check_live(*config); !ok) return wrong_together(ok.error());
  if (auto ok = check_spread(*config); !ok) return wrong_together(ok.error());
  const std::lock_guard guard(mutex_);
  if (auto no = refusal_while_handing_over()) return std::unexpected(*no);
  if (const auto differ = unchangeable(config_, *config); !differ.empty()) {
    std::string message;
    for (const std::string& key : differ) {
      message += (message.empty() ? "" : "\n") + path_ + ": " + key +
                 ": cannot change while millrace runs: leave it as it was, or have another "
                 "process take over (millctl upgrade, millrace run --take-over)";
    }
    return std::unexpected(Refusal{Refusal::Kind::configuration, message});
  }
  if (auto ok = take_on(std::move(*config)); !ok) {
    if (ok.error().kind == Error::Kind::usage) return wrong_together(ok.error());
    return std::unexpected(refusal(ok.error(), Refusal::Kind::not_now));
  }
  Reloaded is{.warnings = doubts(config_)};
  for_each_service(config_.services, [&is](const auto& spec) {
    ++is.services;
    is.backends += spec.backends.size();
  });
  is.took_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return is;
}

auto Control::services() -> std::vector<ServiceState> {
  const std::lock_guard guard(mutex_);
  std::vector<ServiceState> all;
  for_each_service(config_.services, [&](const auto& spec) {
    ServiceState& state = all.emplace_back(
        ServiceState{.service = to_string(spec),
                     .address = to_string(spec.address),
                     .prefix = spec.prefix_bits,
                     .port = spec.port,
                     .protocol = spec.protocol != 0 ? protocol_name(spec.protocol) : "",
                     .forward = spec.forward,
                     .health = spec.health,
                     .backends = {}});
    for (const auto& backend : spec.backends) {
      const std::string name = name_of(backend);
      state.backends.push_back({.address = to_string(backend.address),
                                .port = backend.port,
                                .weight = backend.weight,
                                .drained = has(Mark::drained, state.service, name),
                                .healthy = !has(Mark::unhealthy, state.service, name)});
    }
  });
  return all;
}

namespace {

/// What a plan says about a packet without an entry.
template <class K>
void explain_by(const PlanFor<K>& plan, const K& key, Control::Explanation& out) {
  using Service = typename PlanFor<K>::Service;
  const bool is_reply = out.side == Side::reply;
  if (!out.side ||
      (is_reply && plan.index->reply_sources.find(key.source, 0, 0) == PlanFor<K>::kNone)) {
    out.side.reset();
    out.worker.reset();
    out.why = "no service has its destination, and no backend its source: ";
    return;
  }
  if (is_reply) {
    const auto* const there = plan.serving_at(key);
    const bool is_stray = there != nullptr && !there->is_direct;
    if (is_stray) out.verdict = Verdict::stray_reply;
    out.why = std::string("it comes from a backend, and answers no connection: ") +
              (is_stray ? "it is dropped" : "it is routed") +
              ", unless it answers a packet that was served without an entry";
    return;
  }
  const Service* service = plan.service_for(key);
  if (service == nullptr) {
    out.why = "its service is no longer configured, and serves only the connections it has";
    return;
  }
  out.service = to_string(service->spec);
  if (service->willing == 0) {
    out.verdict = without_backend(service->spec.no_backend);
    out.why = "no backend of its service takes new connections";
    return;
  }
  const std::uint32_t most = service->spec.max_connections;
  if (most != 0 && !service->proved->has_room(most)) {
    out.verdict = Verdict::service_limit;
    out.why = "its service has as many connections as max_connections allows";
    return;
  }
  const Maglev* const table = plan.settings.maglev->make(*service->maglev);
  const std::uint16_t id = service->listed[table->pick(plan.settings.hash(key))];
  const auto& backend = plan.backends[id];
  const std::string name = with_port(backend.address, backend.port);
  const bool by_hash = !plan.settings.stateful || service->spec.scheduler == "maglev";
  if (by_hash) {
    out.backend = name;
    out.backend_address = backend.address;
  }
  out.verdict = plan.settings.stateful ? Verdict::tracked : Verdict::stateless;
  const bool is_direct = service->spec.forward == Forward::dsr;
  out.why = "it has no connection yet: ";
  if (by_hash) {
    out.why += "consistent hashing sends it to " + name;
  } else if (key.protocol == kProtocolTcp) {
    out.why += "a SYN goes to the backend that the scheduler " + service->spec.scheduler +
               " chooses then, a packet in mid-connection to " + name + ", by consistent hashing";
  } else {
    out.why +=
        "it goes to the backend that the scheduler " + service->spec.scheduler + " chooses then";
  }
  if (is_direct) out.why += ", unchanged (dsr)";
}

}  // namespace

auto Control::explain(const AnyKey& key) -> Answer<Explanation> {
  const std::lock_guard guard(mutex_);
  Explanation out;
  out.plan = workers_->plan();
  for (unsigned n = 0; n < workers_->count() && !out.connection; ++n) {
    std::optional<ListedConnection> found;
    if (!workers_->ask(n, [&] { found = workers_->line(n).find(key); }))
      return std::unexpected(Refusal{Refusal::Kind::not_now, "millrace is ending"});
    if (found) out.connection = {n, *found};
    if (workers_->is_shared()) break;
  }
  std::visit(
      [&]<class K>(const K& of) {
        const auto& plan = out.plan->family<K>();
        out.side = plan.side(of);
        const Steered steered{.by_source = out.side == Side::originator,
                              .by_destination = out.side == Side::reply};
        if (out.side) out.worker = live_->owners().of(steered, of);
        if (!out.connection) return explain_by(plan, of, out);
        const ListedConnection& is = out.connection->connection;
        out.verdict = Verdict::tracked;
        out.side = of == std::get<K>(is.key) ? Side::originator : Side::reply;
        if (const auto* serving = plan.serving(std::get<K>(is.key)))
          out.service = to_string(serving->spec);
        const K& translated = std::get<K>(is.translated);
        out.backend = plan.backend_name(std::get<K>(is.key), translated);
        out.backend_address = translated.destination;
        out.why = "it belongs to a connection to " + out.backend + ", which is " +
                  std::string(to_string(is.state));
      },
      key);
  const bool is_unmatched = !out.side;
  if (!is_unmatched && (out.side == Side::reply || !out.backend_address)) return out;
  const AnyAddress to =
      is_unmatched ? std::visit([](const auto& of) { return AnyAddress(of.destination); }, key)
                   : *out.backend_address;
  WayTo way;
  if (!workers_->ask(0, [&] { way = live_->port(0).host().way_to(to); }))
    return std::unexpected(Refusal{Refusal::Kind::not_now, "millrace is ending"});
  if (is_unmatched) {
    explain_unmatched(way, to, out);
  } else if (const std::string trouble = trouble_on(way, to); !trouble.empty()) {
    out.why += "; but " + trouble;
  }
  return out;
}

/// Says, and sets the verdict by it, where a packet goes that concerns no service.
void Control::explain_unmatched(const WayTo& way, const AnyAddress& to, Explanation& out) const {
  if (way.kind == WayTo::Kind::here) {
    out.verdict = Verdict::not_ours;
    out.why += "it is for millrace itself, which answers pings, or for the kernel beside it";
  } else if (way.kind == WayTo::Kind::group) {
    out.verdict = Verdict::not_ours;
    out.why += "it is for everybody on its link, and goes no further";
  } else if (config_.balance.unmatched == Config::Unmatched::drop) {
    out.why += "it is dropped (balance.unmatched)";
  } else if (way.kind == WayTo::Kind::nowhere) {
    out.verdict = Verdict::no_route;
    out.why += trouble_on(way, to);
  } else {
    out.why += "it is routed to " + to_string(way.next_hop) + " on port " +
               config_.live.ports[way.link].name;
    if (way.is_silent) out.why += "; but " + trouble_on(way, to);
  }
}

/// Says why what is sent to that address does not arrive; "" where nothing is wrong.
std::string Control::trouble_on(const WayTo& way, const AnyAddress& to) const {
  if (way.kind == WayTo::Kind::nowhere) return "no route leads to " + to_string(to);
  if (!way.is_silent) return "";
  return to_string(way.next_hop) + " does not answer on port " + config_.live.ports[way.link].name;
}

}  // namespace millrace
