#include "connections.h"

#include <variant>

#include "core/address.h"
#include "function/balance/service.h"
#include "json.h"

namespace millrace::cli {

Json to_json(const WorkersConnection& of, const BalancePlan& plan) {
  const ListedConnection& connection = of.connection;
  return std::visit(
      [&]<class K>(const K& key) -> Json {
        const K& to = std::get<K>(connection.translated);
        const auto& of_family = plan.family<K>();
        const auto* service = of_family.serving(key);
        Json object{
            {"protocol", protocol_name(key.protocol)},
            {"source", to_string(key.source)},
            {"source_port", key.source_port},
            {"destination", to_string(key.destination)},
            {"destination_port", key.destination_port},
            {"state", to_string(connection.state)},
            {"idle_ms", connection.idle_ms},
            {"expires_ms", connection.expires_ms ? Json(*connection.expires_ms) : Json(nullptr)},
            {"worker", of.worker},
            {"service", service != nullptr ? to_string(service->spec) : ""},
            {"backend", of_family.backend_name(key, to)}};
        if (!connection.has_reply) return object;
        const K reply = reversed(to);
        object["reply_source"] = to_string(reply.source);
        object["reply_source_port"] = reply.source_port;
        object["reply_destination"] = to_string(reply.destination);
        object["reply_destination_port"] = reply.destination_port;
        return object;
      },
      connection.key);
}

std::string connections_text(const Workers& workers) {
  std::string text;
  workers.list([&](const WorkersConnection& connection) {
    text += to_json(connection, *workers.plan()).dump();
    text += '\n';
  });
  return text;
}

}  // namespace millrace::cli
