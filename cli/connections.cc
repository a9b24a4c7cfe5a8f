#include "connections.h"

#include <nlohmann/json.hpp>
#include <variant>

#include "core/address.h"
#include "function/balance/service.h"

namespace millrace::cli {
namespace {

nlohmann::ordered_json to_json(const ListedConnection& connection) {
  return std::visit(
      [&connection](const auto& key) -> nlohmann::ordered_json {
        return {{"protocol", protocol_name(key.protocol)},
                {"source", to_string(key.source)},
                {"source_port", key.source_port},
                {"destination", to_string(key.destination)},
                {"destination_port", key.destination_port},
                {"state", to_string(connection.state)},
                {"idle_ms", connection.idle_ms}};
      },
      connection.key);
}

}  // namespace

std::string connections_text(const Workers& workers) {
  std::string text;
  workers.list([&text](const ListedConnection& connection) {
    text += to_json(connection).dump();
    text += '\n';
  });
  return text;
}

}  // namespace millrace::cli
