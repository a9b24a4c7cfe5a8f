#include "control/control.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>

#include "core/address.h"
#include "core/json.h"

namespace millrace {
namespace {

Refusal refusal(const Error& error, Refusal::Kind kind) { return {kind, error.message}; }

}  // namespace

void Control::alone(const std::function<void()>& work) {
  const std::lock_guard guard(mutex_);
  work();
}

bool Control::connections(
    const ConnectionFilter& filter,
    const std::function<bool(std::span<const WorkersConnection>, const FunctionView&)>& take) {
  std::vector<WorkersConnection> piece;
  for (unsigned n = 0; n < workers_->count(); ++n) {
    for (LineCursor at; at.at != LineCursor::At::end;) {
      piece.clear();
      const auto visit = [&](const ListedConnection& connection) {
        if (filter.takes(connection)) piece.push_back({n, connection});
        return Visit::leave;
      };
      std::shared_ptr<const FunctionView> view;
      {
        const std::lock_guard guard(mutex_);
        view = workers_->function().view();
        if (!workers_->ask(n, [&] { at = workers_->line(n).visit(at, visit); })) return false;
      }
      if (!piece.empty() && !take(piece, *view)) return false;
    }
  }
  return true;
}

CommandResult<std::uint64_t> Control::kill(const ConnectionFilter& filter, bool tells) {
  const std::lock_guard guard(mutex_);
  if (auto no = refusal_while_handing_over()) return std::unexpected(*no);
  std::uint64_t ended = 0;
  const auto visit = [&](const ListedConnection& connection) {
    if (connection.is_others || !filter.takes(connection)) return Visit::leave;
    ++ended;
    return tells ? Visit::reset : Visit::end;
  };
  for (unsigned n = 0; n < workers_->count(); ++n) {
    for (LineCursor at; at.at != LineCursor::At::end;) {
      if (!workers_->ask(n, [&] { at = workers_->line(n).visit(at, visit); })) return ended;
    }
  }
  return ended;
}

auto Control::right_to_trace() -> CommandResult<std::shared_ptr<TraceRight>> {
  if (is_tracing_.exchange(true)) {
    return std::unexpected(
        Refusal{Refusal::Kind::not_now, "another trace is running: end it, or wait for its end"});
  }
  return std::make_shared<TraceRight>(is_tracing_);
}

CommandResult<std::uint64_t> Control::trace(const TraceRight&, const ConnectionFilter& filter,
                                            const std::function<bool(const TracedPacket*)>& take) {
  const bool hides_sources = kind().rewrites == Rewrites::sources;
  std::vector<std::unique_ptr<Tracer>> tracers;
  for (unsigned n = 0; n < workers_->count(); ++n) {
    auto tracer = Tracer::create(filter, hides_sources);
    if (!tracer) return std::unexpected(refusal(tracer.error(), Refusal::Kind::not_now));
    tracers.push_back(std::move(*tracer));
  }
  const auto set = [&](const auto& tracer_of) {
    const std::lock_guard guard(mutex_);
    return workers_->ask_all([&](unsigned n) { live_->trace(n, tracer_of(n)); });
  };
  // Resets the workers' tracers also if `take` throws.
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

/// Returns why nothing may be changed now; none if changes are allowed. While a shard moves, its
/// new worker reads state of its old worker's function, so that state must not change.
std::optional<Refusal> Control::refusal_to_change() const {
  if (auto no = refusal_while_handing_over()) return no;
  if (live_->owners().moves().is_under_way())
    return Refusal{Refusal::Kind::not_now, "a shard is on its way to another worker: ask again"};
  return std::nullopt;
}

CommandResult<Json> Control::command(const FunctionCommand& command, Parameters given) {
  const std::lock_guard guard(mutex_);
  if (command.changes) {
    if (auto no = refusal_to_change()) return std::unexpected(*no);
  }
  return workers_->command(command.path, given);
}

std::unique_ptr<LogReader> Control::log(const FunctionCommand& command, bool only_new) {
  const std::lock_guard guard(mutex_);
  return workers_->function().log(command.path, only_new);
}

/// Changes to that configuration; returns how many connections end.
Result<std::size_t> Control::take_on(Config config) {
  std::swap(config_, config);
  Result<std::size_t> ended = 0;
  if (auto ok = live_->update_kernel(config_); !ok) {
    ended = std::unexpected(ok.error());
  } else {
    ended = workers_->update(config_.function, function_run(config_));
  }
  if (!ended) {
    std::swap(config_, config);
    static_cast<void>(live_->update_kernel(config_));
    return ended;
  }
  const LineConfig line = line_config(config_);
  if (workers_->sources() != nullptr) workers_->sources()->set_most(line.source_limit.most);
  std::vector hosts(workers_->count(), live_->host_plan(config_));
  workers_->ask_all([&](unsigned n) {
    workers_->line(n).set_timeouts(line.timeouts);
    live_->update(n, hosts[n]);
  });
  if (Copies* const copies = live_->copies())
    copies->set_settings(agreement(config_), config_.function->facts().needs_grants);
  changed_.notify_all();
  return ended;
}

auto Control::reload() -> CommandResult<Reloaded> {
  const auto start = std::chrono::steady_clock::now();
  // Reloads take effect in the order in which they read the file.
  const std::unique_lock one_at_a_time(reloading_, kReloadPatience);
  if (!one_at_a_time)
    return std::unexpected(Refusal{Refusal::Kind::not_now, "another reload is under way"});
  const auto wrong = [](const Error& error) {
    return std::unexpected(refusal(error, Refusal::Kind::configuration));
  };
  const auto wrong_together = [this](const Error& error) {
    return std::unexpected(Refusal{Refusal::Kind::configuration, in_file(path_, error.message)});
  };
  std::error_code error;  // reading a file that is not regular might block for ever
  if (std::filesystem::exists(path_, error) && (!std::filesystem::is_regular_file(path_, error) ||
                                                std::filesystem::file_size(path_, error) == 0))
    return wrong_together(
        {"is empty, or no regular file any more: put a configuration there, or restart"});
  auto config = read_config(path_, schemes_);
  if (!config) return wrong(config.error());
  if (auto ok = check_live(*config); !ok) return wrong_together(ok.error());
  if (auto ok = check_spread(*config); !ok) return wrong_together(ok.error());
  const std::lock_guard guard(mutex_);
  if (auto no = refusal_to_change()) return std::unexpected(*no);
  if (const auto differ = unchangeable(config_, *config); !differ.empty()) {
    std::string message;
    for (const std::string& key : differ) {
      message += (message.empty() ? "" : "\n") + path_ + ": " + key +
                 ": cannot change while millrace runs: leave it as it was, or have another "
                 "process take over (millctl upgrade, millrace run --take-over)";
    }
    return std::unexpected(Refusal{Refusal::Kind::configuration, message});
  }
  const auto ended = take_on(std::move(*config));
  if (!ended) {
    if (ended.error().kind == Error::Kind::usage) return wrong_together(ended.error());
    return std::unexpected(refusal(ended.error(), Refusal::Kind::not_now));
  }
  Reloaded is{
      .counts = config_.function->facts().counts, .ended = *ended, .warnings = doubts(config_)};
  is.took_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return is;
}

std::vector<std::string> Control::alarms() {
  const std::lock_guard guard(mutex_);
  return workers_->function().alarms();
}

std::shared_ptr<const Customers> Control::customers() {
  const std::lock_guard guard(mutex_);
  return config_.live.customers;
}

auto Control::explain(const AnyKey& key) -> CommandResult<Explanation> {
  const std::lock_guard guard(mutex_);
  Explanation out;
  out.view = workers_->function().view();
  for (unsigned n = 0; n < workers_->count() && !out.connection; ++n) {
    std::optional<ListedConnection> found;
    if (!workers_->ask(n, [&] { found = workers_->line(n).find(key); }))
      return std::unexpected(Refusal{Refusal::Kind::not_now, "millrace is ending"});
    if (found) out.connection = {n, *found};
    if (workers_->is_shared()) break;
  }
  const auto ending = std::unexpected(Refusal{Refusal::Kind::not_now, "millrace is ending"});
  const Host& host = live_->port(0).host();
  Steered steered;
  bool is_hosts = false;
  const auto ask = [&] {
    const Steering& steering = workers_->steering();
    steered = std::visit([&](const auto& of) { return steering.steer(std::span(&of, 1)); }, key);
    is_hosts = host.keeps(key, steering);
  };
  if (!workers_->ask(0, ask)) return ending;
  Explained& is = out.is;
  if (out.connection) {
    const ListedConnection& connection = out.connection->connection;
    const FunctionView::Flow flow{connection.key, connection.translated, connection.image.data()};
    is = out.view->explain(key, &flow, false);
    is.why += ", which is " + std::string(to_string(connection.state));
  } else {
    is = out.view->explain(key, nullptr, false);
    if (is_hosts && is.side && !config_.function->facts().guards_host) {
      is.side.reset();
      is.why.clear();
    }
  }
  if (is.side)
    out.worker = std::visit(
        [&](const auto& of) -> std::optional<unsigned> {
          const auto shard = live_->owners().shard_of(steered, of);
          return shard ? std::optional(live_->owners().worker_of(*shard)) : std::nullopt;
        },
        key);
  const bool is_unmatched = !is.side;
  if (!is_unmatched && (is.side == Side::reply || !is.sent_to)) return out;
  const AnyAddress to =
      is_unmatched ? std::visit([](const auto& of) { return AnyAddress(of.destination); }, key)
                   : *is.sent_to;
  WayTo way;
  const Zone customer = std::visit([](const auto& of) { return of.number_of_zone(); }, key);
  if (!workers_->ask(0, [&] { way = host.way_to(to, customer); })) return ending;
  if (is_unmatched && customer != 0 && way.kind != WayTo::Kind::here) {
    is.verdict = Verdict::untranslated;
    is.why += is.why.empty() ? "" : ": ";
    is.why += "nothing gives it a public source, so replies would not find him";
  } else if (is_unmatched) {
    explain_unmatched(way, to, is);
  } else if (const std::string trouble = trouble_on(way, to); !trouble.empty()) {
    is.why += "; but " + trouble;
  }
  return out;
}

/// Explains where a packet that no function serves goes. Sets the verdict if it is `not_ours` or
/// `no_route`.
void Control::explain_unmatched(const WayTo& way, const AnyAddress& to, Explained& out) const {
  if (!out.why.empty()) out.why += ": ";
  if (way.kind == WayTo::Kind::here) {
    out.verdict = Verdict::not_ours;
    out.why += "it is for millrace itself, which answers pings, or for the kernel beside it";
  } else if (way.kind == WayTo::Kind::group) {
    out.verdict = Verdict::not_ours;
    out.why += "it is for a group, or for all stations on its link, and is not forwarded";
  } else if (const auto key = config_.function->facts().drops_unmatched; !key.empty()) {
    out.why += "it is dropped (" + std::string(key) + ")";
  } else if (way.kind == WayTo::Kind::nowhere) {
    out.verdict = Verdict::no_route;
    out.why += trouble_on(way, to);
  } else {
    out.why += "it is routed to " + to_string(way.next_hop) + " on port " +
               config_.live.ports[way.link].name;
    if (way.is_silent) out.why += "; but " + trouble_on(way, to);
  }
}

/// Returns why packets to that address do not arrive; "" if no reason is known.
std::string Control::trouble_on(const WayTo& way, const AnyAddress& to) const {
  if (way.kind == WayTo::Kind::nowhere) return "no route leads to " + to_string(to);
  if (!way.is_silent) return "";
  return to_string(way.next_hop) + " does not answer on port " + config_.live.ports[way.link].name;
}

}  // namespace millrace
