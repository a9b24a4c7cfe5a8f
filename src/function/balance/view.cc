// Explanations of packets and connections by a plan, as text.
#include <fmt/compile.h>
#include <fmt/format.h>

#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "core/address.h"
#include "core/protocol.h"
#include "function/balance/deployment.h"

namespace millrace {
namespace {

Explained explained(std::optional<Side> side, const std::string& service,
                    const std::string& backend) {
  Explained out{.side = side, .names = {{"service", service}, {"backend", backend}}};
  return out;
}

/// Explains a packet that has no connection.
template <class K>
Explained explain_by(const PlanFor<K>& plan, const K& key) {
  using Service = typename PlanFor<K>::Service;
  const std::optional<Side> side = plan.side(key);
  const bool is_reply = side == Side::reply;
  if (!side ||
      (is_reply && plan.index->reply_sources.find(key.source, 0, 0) == PlanFor<K>::kNone)) {
    Explained out = explained(std::nullopt, "", "");
    out.why = "no service has its destination, and no backend its source";
    return out;
  }
  Explained out = explained(side, "", "");
  if (is_reply) {
    const auto* const there = plan.serving_at(key);
    if (there == nullptr) {
      out.side.reset();
      out.why = "it comes from a backend, but not from a port that is configured for the backend";
      return out;
    }
    const bool is_stray = !there->is_direct;
    if (is_stray) out.verdict = Verdict::stray_reply;
    out.why = std::string("it comes from a backend, and belongs to no connection: ") +
              (is_stray ? "it is dropped" : "it is routed") +
              ", unless it may be a reply to a packet that was served without an entry";
    return out;
  }
  const Service* service = plan.service_for(key);
  if (service == nullptr) {
    out.why = "its service is no longer configured, and serves only the connections that it has";
    return out;
  }
  std::string& service_name = out.names.front().second;
  service_name = to_string(service->spec);
  if (service->willing == 0) {
    out.verdict = without_backend(service->spec.no_backend);
    out.why = "no backend of its service takes new connections";
    return out;
  }
  const std::uint32_t most = service->spec.max_connections;
  if (most != 0 && !service->proved->has_room(most)) {
    out.verdict = Verdict::service_limit;
    out.why = "its service has as many connections as max_connections allows";
    return out;
  }
  const Maglev* const table = plan.settings.maglev->make(*service->maglev);
  const std::uint16_t id = service->listed[table->pick(plan.settings.hash(key))];
  const auto& backend = plan.backends[id];
  const std::string name = with_port(backend.address, backend.port);
  const bool by_hash = !plan.settings.stateful || service->spec.scheduler == "maglev";
  if (by_hash) {
    out.names.back().second = name;
    out.sent_to = backend.address;
  }
  out.verdict = plan.settings.stateful ? Verdict::tracked : Verdict::stateless;
  const bool is_direct = service->spec.forward == Forward::dsr;
  out.why = "it has no connection yet: ";
  if (by_hash) {
    out.why += "consistent hashing sends it to " + name;
  } else if (key.protocol == kProtocolTcp) {
    out.why += "a SYN goes to the backend that the scheduler " + service->spec.scheduler +
               " chooses when the SYN arrives, a packet in mid-connection to " + name +
               ", by consistent hashing";
  } else {
    out.why += "it goes to the backend that the scheduler " + service->spec.scheduler +
               " chooses when it arrives";
  }
  if (is_direct) out.why += ", unchanged (dsr)";
  return out;
}

class BalanceView final : public FunctionView {
 public:
  explicit BalanceView(std::shared_ptr<const BalancePlan> plan) : plan_(std::move(plan)) {}

  Explained explain(const AnyKey& key, const Flow* connection, bool) const override {
    return std::visit(
        [&]<class K>(const K& of) {
          const PlanFor<K>& plan = plan_->family<K>();
          if (connection == nullptr) return explain_by(plan, of);
          const K& originator = std::get<K>(connection->key);
          const K& translated = std::get<K>(connection->translated);
          if (!BalanceFor<K>::is_served(connection->image)) {  // only in a chain
            Explained out = explained(std::nullopt, "", "");
            out.why = "it belongs to a connection to no service";
            return out;
          }
          const std::string backend = plan.backend_name(originator, translated);
          Explained out = explained(of == originator ? Side::originator : Side::reply,
                                    service_name(plan, originator), backend);
          out.sent_to = translated.destination;
          out.verdict = Verdict::tracked;
          out.why = "it belongs to a connection to " + backend;
          return out;
        },
        key);
  }

  /// Appends the service and backend; nothing for a connection to no service (in a chain). The JSON
  /// is formatted by hand, since a list may have millions of connections; no value needs an escape.
  void append_names(std::string& text, const Flow& connection) const override {
    std::visit(
        [&]<class K>(const K& key) {
          if (!BalanceFor<K>::is_served(connection.image)) return;
          const PlanFor<K>& plan = plan_->family<K>();
          fmt::format_to(std::back_inserter(text), FMT_COMPILE(R"(,"service":"{}","backend":"{}")"),
                         service_name(plan, key),
                         plan.backend_name(key, std::get<K>(connection.translated)));
        },
        connection.key);
  }

 private:
  template <class K>
  static std::string service_name(const PlanFor<K>& plan, const K& key) {
    const auto* const service = plan.serving(key);
    return service != nullptr ? to_string(service->spec) : "";
  }

  std::shared_ptr<const BalancePlan> plan_;
};

}  // namespace

std::shared_ptr<const FunctionView> view_of(std::shared_ptr<const BalancePlan> plan) {
  return std::make_shared<const BalanceView>(std::move(plan));
}

}  // namespace millrace
