#include "control/connections.h"

#include <fmt/compile.h>
#include <fmt/format.h>

#include <iterator>
#include <variant>

#include "core/address.h"
#include "core/protocol.h"

namespace millrace {

Json explanation_json(const Control::Explanation& is, const Json& connection) {
  const auto or_null = [](const std::string& text) {
    return text.empty() ? Json(nullptr) : Json(text);
  };
  Json side = nullptr;
  if (is.is.side) side = *is.is.side == Side::originator ? "originator" : "reply";
  Json json{{"worker", is.worker ? Json(*is.worker) : Json(nullptr)}, {"side", side}};
  for (const auto& [name, value] : is.is.names) json[std::string(name)] = or_null(value);
  json["connection"] = connection;
  json["verdict"] = to_string(is.is.verdict);
  json["why"] = is.is.why;
  return json;
}

/// Formats by hand, since lists may have millions of connections. No value needs an escape.
void append_json(std::string& text, const WorkersConnection& of, const FunctionView& view) {
  const ListedConnection& connection = of.connection;
  const auto append = [out = std::back_inserter(text)](const auto& format, const auto&... values) {
    fmt::format_to(out, format, values...);
  };
  std::visit(
      [&]<class K>(const K& key) {
        const K& to = std::get<K>(connection.translated);
        append(FMT_COMPILE(R"({{"protocol":"{}","source":"{}","source_port":{},"destination":"{}",)"
                           R"("destination_port":{},"state":"{}","idle_ms":{},"expires_ms":)"),
               protocol_name(key.protocol), to_string(key.source), key.source_port,
               to_string(key.destination), key.destination_port, to_string(connection.state),
               connection.idle_ms);
        if (connection.expires_ms) {
          append(FMT_COMPILE("{}"), *connection.expires_ms);
        } else {
          text += "null";
        }
        append(FMT_COMPILE(R"(,"worker":{})"), of.worker);
        view.append_names(text, {connection.key, connection.translated, connection.image.data()});
        if (connection.has_reply) {
          const K reply = reversed(to);
          append(FMT_COMPILE(R"(,"reply_source":"{}","reply_source_port":{},)"
                             R"("reply_destination":"{}","reply_destination_port":{})"),
                 to_string(reply.source), reply.source_port, to_string(reply.destination),
                 reply.destination_port);
        }
        text += '}';
      },
      connection.key);
}

std::string connections_text(const Workers& workers) {
  std::string text;
  const auto view = workers.function().view();
  workers.list([&](const WorkersConnection& connection) {
    append_json(text, connection, *view);
    text += '\n';
  });
  return text;
}

}  // namespace millrace
