#include "control_server.h"

#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "command_line/json.h"
#include "connections.h"
#include "offer_json.h"
#include "port/pcapng.h"
#include "unix_http.h"

namespace millrace::cli {
namespace {

using httplib::Request;
using httplib::Response;

constexpr const char* kJson = "application/json";

Refusal no_offer() {
  return {Refusal::Kind::wrong, "number is that of an offer: POST /handover makes one"};
}

int status_of(Refusal::Kind kind) {
  switch (kind) {
    case Refusal::Kind::wrong:
      return 400;
    case Refusal::Kind::absent:
      return 404;
    case Refusal::Kind::not_now:
      return 409;
    case Refusal::Kind::configuration:
      return 422;
  }
  return 500;
}

/// What is no UTF-8 is replaced: names of files, and what somebody asks, may hold any bytes.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void refuse(Response& response, const Refusal& refusal) {
  response.status = status_of(refusal.kind);
  response.set_content(text_of({{"error", refusal.message}}), kJson);
}
void refuse(Response& response, const Error& error) {
  refuse(response, Refusal{Refusal::Kind::wrong, error.message});
}
void answer(Response& response, const Json& json) { response.set_content(text_of(json), kJson); }

/// A request that says nothing of a body has none (RFC 9112, 6.3). The library would read one until
/// the client closes. The request is its own, and not constant.
void has_no_body_unless_said(const Request& request) {
  if (request.has_header("Content-Length") || request.has_header("Transfer-Encoding")) return;
  const_cast<Request&>(request).headers.emplace("Content-Length", "0");
}

std::vector<std::pair<std::string, std::string>> parameters(const Request& request) {
  return {request.params.begin(), request.params.end()};
}

/// The parameter of that name as a bool; nothing where it is neither.
std::optional<bool> truth(const Request& request, const std::string& name) {
  const std::string text = request.get_param_value(name);
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

/// The parameter of that name, or what it is where it is missing; nothing where it is no number.
std::optional<unsigned> number(const Request& request, const std::string& name, unsigned missing) {
  if (!request.has_param(name)) return missing;
  const std::string text = request.get_param_value(name);
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1 ||
      value > 1'000'000'000)
    return std::nullopt;
  return value;
}

std::optional<unsigned> offer_of(const Request& request) {
  return request.has_param("number") ? number(request, "number", 0) : std::nullopt;
}

std::string block_of(const TracedPacket& packet) {
  const std::string comment =
      (packet.sent ? "sent: " : "received: ") + std::string(to_string(packet.verdict));
  return pcapng_packet({.interface = packet.link,
                        .time_ns = packet.time_ns,
                        .wire_length = packet.wire_length,
                        .data = packet.data(),
                        .comment = comment});
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

Json to_json(const Control::ServiceState& service) {
  Json backends = Json::array();
  for (const auto& backend : service.backends) {
    backends.push_back({{"address", backend.address},
                        {"port", backend.port},
                        {"weight", backend.weight},
                        {"drained", backend.drained},
                        {"healthy", backend.healthy}});
  }
  return {{"service", service.service},        {"address", service.address},
          {"prefix", service.prefix},          {"port", service.port},
          {"protocol", service.protocol},      {"forward", to_string(service.forward)},
          {"health", to_json(service.health)}, {"backends", backends}};
}

Json or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

/// Not `to_json`: two arguments of which the second is JSON are also the library's own way to
/// convert.
Json json_of(const Control::Explanation& is, const Json& connection) {
  Json side = nullptr;
  if (is.side) side = *is.side == Side::originator ? "originator" : "reply";
  return {{"worker", is.worker ? Json(*is.worker) : Json(nullptr)},
          {"side", side},
          {"service", or_null(is.service)},
          {"backend", or_null(is.backend)},
          {"connection", connection},
          {"verdict", to_string(is.verdict)},
          {"why", is.why}};
}

}  // namespace

std::string default_socket() {
  if (::geteuid() == 0) return "/run/millrace.sock";
  const char* const folder = std::getenv("XDG_RUNTIME_DIR");
  const bool is_set = folder != nullptr && *folder != '\0';
  return (is_set ? folder : "/run/user/" + std::to_string(::geteuid())) +
         std::string("/millrace.sock");
}

struct ControlServer::Implementation {
  void route();
  void list(const Request& request, Response& response);
  void trace(const Request& request, Response& response);
  void explain(const Request& request, Response& response);
  void mark(Mark mark, const char* name, bool when, const Request& request, Response& response);
  void kill(const Request& request, Response& response);
  void reload(Response& response);
  void offer(const Request& request, Response& response);
  void hand_over(const Request& request, Response& response);
  void let_go(const Request& request, Response& response);
  void give_up(const Request& request, Response& response);

  Control* control = nullptr;
  std::function<Json()> stats;
  UnixHttp http;
};

void ControlServer::Implementation::route() {
  http.Get("/stats", [this](const Request&, Response& response) {
    Json json;
    control->alone([&] { json = stats(); });
    answer(response, json);
  });
  http.Get("/services", [this](const Request&, Response& response) {
    Json list = Json::array();
    for (const auto& service : control->services()) list.push_back(to_json(service));
    answer(response, list);
  });
  http.Get("/connections",
           [this](const Request& request, Response& response) { list(request, response); });
  http.Get("/trace",
           [this](const Request& request, Response& response) { trace(request, response); });
  http.Get("/explain",
           [this](const Request& request, Response& response) { explain(request, response); });
  http.Post("/reload", [this](const Request&, Response& response) { reload(response); });
  http.Post("/handover",
            [this](const Request& request, Response& response) { offer(request, response); });
  http.Post("/handover/connections",
            [this](const Request& request, Response& response) { hand_over(request, response); });
  http.Post("/handover/end",
            [this](const Request& request, Response& response) { let_go(request, response); });
  http.Post("/handover/give_up",
            [this](const Request& request, Response& response) { give_up(request, response); });
  http.Post("/kill",
            [this](const Request& request, Response& response) { kill(request, response); });
  http.Post("/drain", [this](const Request& request, Response& response) {
    mark(Mark::drained, "drained", true, request, response);
  });
  http.Post("/health", [this](const Request& request, Response& response) {
    mark(Mark::unhealthy, "healthy", false, request, response);
  });
  http.set_pre_routing_handler([this](const Request& request, Response& response) {
    using Handled = httplib::Server::HandlerResponse;
    has_no_body_unless_said(request);
    for (const auto& [name, value] : request.params) {
      if (request.params.count(name) == 1) continue;
      refuse(response, Refusal{Refusal::Kind::wrong, name + " is given twice: give it once"});
      return Handled::Handled;
    }
    if (request.has_header("Range")) {
      refuse(response,
             Refusal{Refusal::Kind::wrong, "parts of answers are not given: ask for all"});
      return Handled::Handled;
    }
    if (!http.is_ending() && control->wait_until_ready()) return Handled::Unhandled;
    refuse(response, Refusal{Refusal::Kind::not_now, "millrace starts, or ends: ask again"});
    return Handled::Handled;
  });
  http.set_exception_handler([](const Request&, Response& response, const std::exception_ptr&) {
    response.status = 500;
    response.set_content(text_of({{"error", "millrace failed: there may be no memory left"}}),
                         kJson);
  });
  http.set_error_handler([](const Request& request, Response& response) {
    if (!response.body.empty()) return;
    const std::string message =
        response.status == 404
            ? "there is no " + request.method + " " + request.path +
                  ": docs/control.md lists what there is"
            : "the request is malformed, or too large: docs/control.md says what may be asked";
    response.set_content(text_of({{"error", message}}), kJson);
  });
}

/// Pieces are made as they are read, so that a slow reader holds up nobody.
void ControlServer::Implementation::list(const Request& request, Response& response) {
  const auto filter = parse_filter(parameters(request), [](std::string_view) { return false; });
  if (!filter) return refuse(response, filter.error());
  response.set_chunked_content_provider(
      "application/x-ndjson", [this, filter = *filter](std::size_t, httplib::DataSink& sink) {
        const bool is_whole = control->connections(
            filter, [&](std::span<const WorkersConnection> piece, const BalancePlan& plan) {
              std::string text;
              for (const WorkersConnection& connection : piece) {
                append_json(text, connection, plan);
                text += '\n';
              }
              return !http.is_ending() && sink.write(text.data(), text.size());
            });
        if (is_whole) sink.done();
        return is_whole;
      });
}

void ControlServer::Implementation::trace(const Request& request, Response& response) {
  const auto filter = parse_filter(parameters(request), [](std::string_view name) {
    return name == "packets" || name == "seconds";
  });
  if (!filter) return refuse(response, filter.error());
  const auto packets = number(request, "packets", 1000);
  const auto seconds = number(request, "seconds", 10);
  if (filter->state || !packets || !seconds) {
    return refuse(response, Refusal{Refusal::Kind::wrong,
                                    filter->state ? "a packet has no state: leave state out"
                                                  : "packets and seconds are numbers from 1 to "
                                                    "1000000000"});
  }
  // Before the answer has a status. The response has it, too, and lets it go where nobody reads.
  const auto right = control->right_to_trace();
  if (!right) return refuse(response, right.error());
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(*seconds);
  response.set_chunked_content_provider(
      "application/x-pcapng", [this, right = *right, filter = *filter, left = *packets, until](
                                  std::size_t, httplib::DataSink& sink) mutable {
        const auto write = [&sink](const std::string& block) {
          return sink.write(block.data(), block.size());
        };
        // The beginning tells the reader that from now on nothing is missed.
        std::string beginning = pcapng_beginning(control->ports(), TracedPacket::kMost);
        const auto is = control->trace(*right, filter, [&](const TracedPacket* packet) {
          if (!beginning.empty() && !write(std::exchange(beginning, {}))) return false;
          if (http.is_ending() || std::chrono::steady_clock::now() >= until) return false;
          if (packet == nullptr) return sink.is_writable();
          return write(block_of(*packet)) && --left > 0;
        });
        right->end();  // before the reader knows that this is the end
        if (!is || http.is_ending()) return false;
        const std::string lost = pcapng_lost(*is);
        if (sink.write(lost.data(), lost.size())) sink.done();
        return true;
      });
}

void ControlServer::Implementation::explain(const Request& request, Response& response) {
  const auto key = parse_key(parameters(request));
  if (!key) return refuse(response, key.error());
  const auto is = control->explain(*key);
  if (!is) return refuse(response, is.error());
  Json connection;  // null
  if (is->connection) {
    std::string text;
    append_json(text, *is->connection, *is->plan);
    connection = Json::parse(text);
  }
  answer(response, json_of(*is, connection));
}

void ControlServer::Implementation::mark(Mark mark, const char* name, bool when,
                                         const Request& request, Response& response) {
  for (const auto& [given, value] : request.params) {
    if (given != "backend" && given != "service" && given != name) {
      return refuse(response, Refusal{Refusal::Kind::wrong,
                                      "the parameter " + given +
                                          " is not known: give backend, service and " + name});
    }
    if (!value.empty()) continue;
    return refuse(response,
                  Refusal{Refusal::Kind::wrong, given + " is empty: give it, or leave it out"});
  }
  const auto is = truth(request, name);
  if (!request.has_param("backend") || !is) {
    return refuse(response, Refusal{Refusal::Kind::wrong,
                                    std::string("give backend, and ") + name + " = true or false"});
  }
  const auto count = control->mark(mark, request.get_param_value("backend"),
                                   request.get_param_value("service"), *is == when);
  if (!count) return refuse(response, count.error());
  answer(response, {{"backends", *count}});
}

void ControlServer::Implementation::kill(const Request& request, Response& response) {
  const auto filter = parse_filter(
      parameters(request), [](std::string_view name) { return name == "all" || name == "silent"; });
  if (!filter) return refuse(response, filter.error());
  if (filter->takes_all() && truth(request, "all") != true) {
    return refuse(response, Refusal{Refusal::Kind::wrong,
                                    "this would end every connection: give a filter, or all=true"});
  }
  const auto is_silent = request.has_param("silent") ? truth(request, "silent") : false;
  if (!is_silent)
    return refuse(response, Refusal{Refusal::Kind::wrong, "silent: give true or false"});
  const auto count = control->kill(*filter, !*is_silent);
  if (!count) return refuse(response, count.error());
  answer(response, {{"killed", *count}});
}

void ControlServer::Implementation::reload(Response& response) {
  const auto is = control->reload();
  if (!is) return refuse(response, is.error());
  answer(response, {{"services", is->services},
                    {"backends", is->backends},
                    {"took_ms", is->took_ms},
                    {"warnings", is->warnings}});
}

void ControlServer::Implementation::offer(const Request& request, Response& response) {
  if (number(request, "version", kCarriedVersion) != kCarriedVersion) {
    return refuse(response,
                  Refusal{Refusal::Kind::not_now,
                          "this one hands over in version " + std::to_string(kCarriedVersion) +
                              ": end it, and start the other one without --take-over"});
  }
  const auto offer = control->offer();
  if (!offer) return refuse(response, offer.error());
  answer(response, cli::to_json(*offer));
}

void ControlServer::Implementation::hand_over(const Request& request, Response& response) {
  const auto offered = offer_of(request);
  if (!offered) return refuse(response, no_offer());
  const bool last = truth(request, "last") == true;
  response.set_chunked_content_provider(
      "application/octet-stream",
      [this, offered = *offered, last](std::size_t, httplib::DataSink& sink) {
        const auto take = [&sink](std::span<const std::byte> bytes) {
          return sink.write(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        };
        const auto told = last ? control->tell_last(offered, take) : control->tell(offered, take);
        if (!told) give_refusal(told.error().message, take);
        sink.done();
        return true;
      });
}

void ControlServer::Implementation::let_go(const Request& request, Response& response) {
  const auto offered = offer_of(request);
  if (!offered) return refuse(response, no_offer());
  const auto overflowed = control->let_go(*offered);
  if (!overflowed) return refuse(response, overflowed.error());
  answer(response, {{"overflowed", *overflowed}});
}

void ControlServer::Implementation::give_up(const Request& request, Response& response) {
  const auto offered = offer_of(request);
  if (!offered) return refuse(response, no_offer());
  control->give_up(*offered);
  answer(response, Json::object());
}

ControlServer::ControlServer() = default;

Result<std::unique_ptr<ControlServer>> ControlServer::bind(const std::string& path, bool replaces) {
  std::unique_ptr<ControlServer> server(new ControlServer);
  server->is_ = std::make_unique<Implementation>();
  if (auto ok = server->is_->http.bind(path, replaces); !ok) return std::unexpected(ok.error());
  return server;
}

Result<void> ControlServer::start(Control& control, std::function<Json()> stats) {
  is_->control = &control;
  is_->stats = std::move(stats);
  is_->route();
  return is_->http.start();
}

Result<void> ControlServer::take_place() { return is_->http.take_place(); }

void ControlServer::leave() { is_->http.leave(); }

ControlServer::~ControlServer() = default;

}  // namespace millrace::cli
