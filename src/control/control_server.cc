#include "control/control_server.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/connections.h"
#include "control/log_stream.h"
#include "control/offer_json.h"
#include "control/unix_http.h"
#include "core/json.h"
#include "core/parameters.h"
#include "function/kinds.h"
#include "port/pcapng.h"

namespace millrace {
namespace {

using httplib::Request;
using httplib::Response;

constexpr const char* kJson = "application/json";

Refusal no_number() {
  return {Refusal::Kind::wrong,
          "number is missing or wrong: give the number that POST /handover returned"};
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

/// Returns JSON text. Bytes that are not UTF-8 are replaced: file names and requests may contain
/// any bytes.
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

/// Adds the header "Content-Length: 0" to a request without a body. A request that does not mention
/// a body has none (RFC 9112, 6.3), but the library would read one until the client closes. The
/// request object is the library's own and not really constant.
void has_no_body_unless_said(const Request& request) {
  if (request.has_header("Content-Length") || request.has_header("Transfer-Encoding")) return;
  const_cast<Request&>(request).headers.emplace("Content-Length", "0");
}

std::vector<std::pair<std::string, std::string>> parameters(const Request& request) {
  return {request.params.begin(), request.params.end()};
}

using Handler = std::function<void(const Request&, Response&)>;

/// Returns a handler that refuses parameters other than the known ones.
Handler only(std::vector<std::string> known, Handler handle) {
  return [known = std::move(known), handle = std::move(handle)](const Request& request,
                                                                Response& response) {
    for (const auto& [name, value] : request.params) {
      if (std::ranges::find(known, name) != known.end()) continue;
      const std::string right =
          known.empty() ? "leave it out" : fmt::format("give {}", fmt::join(known, " and "));
      return refuse(response,
                    wrong_parameter("the parameter", name, "is not known: " + right).error());
    }
    handle(request, response);
  };
}

/// Returns the parameter of that name as a bool; none if it is neither true nor false.
std::optional<bool> truth(const Request& request, const std::string& name) {
  const std::string text = request.get_param_value(name);
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

/// Returns the parameter of that name, or `missing` if it is not given; none if it is not a number,
/// below `least` or above 1,000,000,000.
std::optional<unsigned> number(const Request& request, const std::string& name, unsigned missing,
                               unsigned least = 1) {
  if (!request.has_param(name)) return missing;
  const std::string text = request.get_param_value(name);
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least ||
      value > 1'000'000'000)
    return std::nullopt;
  return value;
}

std::optional<unsigned> offer_of(const Request& request) {
  return request.has_param("number") ? number(request, "number", 0) : std::nullopt;
}

std::string block_of(const TracedPacket& packet, const Customers& customers) {
  std::string comment =
      (packet.sent ? "sent: " : "received: ") + std::string(to_string(packet.verdict));
  if (packet.customer != 0)
    comment += (packet.sent ? ", to " : ", from ") + customers.name_of(packet.customer);
  return pcapng_packet({.interface = packet.link,
                        .time_ns = packet.time_ns,
                        .wire_length = packet.wire_length,
                        .data = packet.data(),
                        .comment = comment});
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
  void route_other_servers();
  void list(const Request& request, Response& response);
  void trace(const Request& request, Response& response);
  void explain(const Request& request, Response& response);
  void command(const FunctionCommand& command, const Request& request, Response& response);
  void log(const FunctionCommand& command, const Request& request, Response& response);
  void kill(const Request& request, Response& response);
  void reload(Response& response);
  void shards(Response& response);
  void move_shard(const Request& request, Response& response);
  void offer(const Request& request, Response& response);
  void hand_over(const Request& request, Response& response);
  void let_go(const Request& request, Response& response);
  void give_up(const Request& request, Response& response);

  Control* control = nullptr;
  std::function<Json()> stats;
  LogPlaces log_readers;
  UnixHttp http;
};

void ControlServer::Implementation::route() {
  http.Get("/stats", only({}, [this](const Request&, Response& response) {
             Json json;
             control->alone([&] { json = stats(); });
             answer(response, json);
           }));
  http.Get("/connections",
           [this](const Request& request, Response& response) { list(request, response); });
  http.Get("/trace",
           [this](const Request& request, Response& response) { trace(request, response); });
  http.Get("/explain",
           [this](const Request& request, Response& response) { explain(request, response); });
  http.Post("/reload", only({}, [this](const Request&, Response& response) { reload(response); }));
  http.Get("/shards", only({}, [this](const Request&, Response& response) { shards(response); }));
  http.Post("/shards/move",
            only({"shard", "to"}, [this](const Request& request, Response& response) {
              move_shard(request, response);
            }));
  route_other_servers();
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
  for (const FunctionCommand& one : control->kind().commands) {
    const Handler command_it = [this, &one](const Request& request, Response& response) {
      command(one, request, response);
    };
    const Handler log_it = only(
        {"follow", "new"},
        [this, &one](const Request& request, Response& response) { log(one, request, response); });
    const Handler& handle = one.is_log ? log_it : command_it;
    const std::string path(one.path);
    one.changes ? http.Post(path, handle) : http.Get(path, handle);
  }
  for (const FunctionKind* const kind : kinds()) {
    for (const FunctionCommand& one : kind->commands) {
      // The handlers above take precedence.
      const auto refuses = [&one, kind](const Request&, Response& response) {
        refuse(response,
               Refusal{Refusal::Kind::absent, std::string(one.path) + " needs the function \"" +
                                                  std::string(kind->name) +
                                                  "\", which the configuration does not choose"});
      };
      const std::string path(one.path);
      one.changes ? http.Post(path, refuses) : http.Get(path, refuses);
    }
  }
  http.set_pre_routing_handler([this](const Request& request, Response& response) {
    using Handled = httplib::Server::HandlerResponse;
    has_no_body_unless_said(request);
    for (const auto& [name, value] : request.params) {
      if (request.params.count(name) == 1) continue;
      refuse(response,
             Refusal{Refusal::Kind::wrong, name + " is given more than once: give it once"});
      return Handled::Handled;
    }
    if (request.has_header("Range")) {
      refuse(response, Refusal{Refusal::Kind::wrong,
                               "Range requests are not supported: leave the Range header out"});
      return Handled::Handled;
    }
    if (!http.is_ending() && control->wait_until_ready()) return Handled::Unhandled;
    refuse(response, Refusal{Refusal::Kind::not_now, "millrace is starting or ending: ask again"});
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

void ControlServer::Implementation::route_other_servers() {
  const auto answers = [this](const auto& ask) {
    return only({}, [this, ask](const Request&, Response& response) {
      const CommandResult<Json> is = ask(*control);
      is ? answer(response, *is) : refuse(response, is.error());
    });
  };
  http.Get("/pair", answers([](Control& of) { return of.pair_status(); }));
  http.Post("/pair/active", answers([](Control& of) { return of.set_active(true); }));
  http.Post("/pair/standby", answers([](Control& of) { return of.set_active(false); }));
  http.Post("/pair/gone", answers([](Control& of) { return of.set_gone(); }));
  http.Get("/cluster", answers([](Control& of) { return of.cluster_status(); }));
  http.Put("/cluster", only({}, [this](const Request& request, Response& response) {
             const CommandResult<Json> is = control->follow(request.body);
             is ? answer(response, *is) : refuse(response, is.error());
           }));
}

/// Lists connections. Each piece of the list is made when the client reads it, so that a slow
/// reader delays no other request.
void ControlServer::Implementation::list(const Request& request, Response& response) {
  const auto filter = parse_filter(parameters(request), *control->customers(),
                                   [](std::string_view) { return false; });
  if (!filter) return refuse(response, filter.error());
  response.set_chunked_content_provider(
      "application/x-ndjson", [this, filter = *filter](std::size_t, httplib::DataSink& sink) {
        const bool is_whole = control->connections(
            filter, [&](std::span<const WorkersConnection> piece, const FunctionView& view) {
              std::string text;
              for (const WorkersConnection& connection : piece) {
                append_json(text, connection, view);
                text += '\n';
              }
              return !http.is_ending() && sink.write(text.data(), text.size());
            });
        if (is_whole) sink.done();
        return is_whole;
      });
}

void ControlServer::Implementation::trace(const Request& request, Response& response) {
  const auto customers = control->customers();
  const auto filter = parse_filter(parameters(request), *customers, [](std::string_view name) {
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
  // The right is taken before the answer has a status. The response holds the right, and releases
  // it if the client is gone.
  const auto right = control->right_to_trace();
  if (!right) return refuse(response, right.error());
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(*seconds);
  response.set_chunked_content_provider(
      "application/x-pcapng", [this, right = *right, filter = *filter, customers, left = *packets,
                               until](std::size_t, httplib::DataSink& sink) mutable {
        const auto write = [&sink](const std::string& block) {
          return sink.write(block.data(), block.size());
        };
        // Sent once all workers copy packets, so that every later packet is shown or counted as
        // lost.
        std::string beginning = pcapng_beginning(control->ports(), TracedPacket::kMost);
        const auto is = control->trace(*right, filter, [&](const TracedPacket* packet) {
          if (!beginning.empty() && !write(std::exchange(beginning, {}))) return false;
          if (http.is_ending() || std::chrono::steady_clock::now() >= until) return false;
          if (packet == nullptr) return sink.is_writable();
          return write(block_of(*packet, *customers)) && --left > 0;
        });
        right->end();  // released before the reader sees the end
        if (!is || http.is_ending()) return false;
        const std::string lost = pcapng_lost(*is);
        if (sink.write(lost.data(), lost.size())) sink.done();
        return true;
      });
}

void ControlServer::Implementation::explain(const Request& request, Response& response) {
  const auto key = parse_key(parameters(request), *control->customers());
  if (!key) return refuse(response, key.error());
  const auto is = control->explain(*key);
  if (!is) return refuse(response, is.error());
  Json connection;  // null
  if (is->connection) {
    std::string text;
    append_json(text, *is->connection, *is->view);
    connection = Json::parse(text);
  }
  answer(response, explanation_json(*is, connection));
}

void ControlServer::Implementation::command(const FunctionCommand& command, const Request& request,
                                            Response& response) {
  auto given = parameters(request);
  if (!request.body.empty()) given.emplace_back("body", request.body);
  const auto done = control->command(command, given);
  if (!done) return refuse(response, done.error());
  answer(response, *done);
}

void ControlServer::Implementation::log(const FunctionCommand& command, const Request& request,
                                        Response& response) {
  for (const auto& [name, value] : request.params) {
    if (!truth(request, name))
      return refuse(response, wrong_parameter(name, value, "is wrong: give true or false").error());
  }
  auto place = log_readers.take();
  if (!place) return refuse(response, place.error());
  const bool only_new = truth(request, "new") == true;
  send_log(response, http, std::move(*place), control->log(command, only_new),
           truth(request, "follow") == true);
}

void ControlServer::Implementation::kill(const Request& request, Response& response) {
  const auto filter =
      parse_filter(parameters(request), *control->customers(),
                   [](std::string_view name) { return name == "all" || name == "silent"; });
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
  Json json = Json::object();
  for (const auto& [what, count] : is->counts) {
    std::string name = std::string(what) + "s";
    for (char& c : name) c = c == ' ' ? '_' : static_cast<char>(std::tolower(c));
    json[name] = count;
  }
  json["ended"] = is->ended;
  json["took_ms"] = is->took_ms;
  json["warnings"] = is->warnings;
  answer(response, json);
}

void ControlServer::Implementation::shards(Response& response) {
  const Control::Shards is = control->shards();
  Json all = Json::array();
  for (std::size_t shard = 0; shard < is.all.size(); ++shard) {
    all.push_back({{"shard", shard},
                   {"worker", is.all[shard].worker},
                   {"packets", is.all[shard].packets},
                   {"moves", is.all[shard].moves}});
  }
  answer(
      response,
      {{"workers", is.workers}, {"in_use", is.in_use}, {"level", is.is_levelled}, {"shards", all}});
}

void ControlServer::Implementation::move_shard(const Request& request, Response& response) {
  const auto given = [&request](const std::string& name) -> std::optional<unsigned> {
    return request.has_param(name) ? number(request, name, 0, 0) : std::nullopt;
  };
  const auto shard = given("shard");
  const auto to = given("to");
  if (!shard || !to)
    return refuse(response, Refusal{Refusal::Kind::wrong,
                                    "give shard and to, the numbers of a shard and of a worker"});
  const auto took_ms = control->move_shard(*shard, *to);
  if (!took_ms) return refuse(response, took_ms.error());
  answer(response, {{"shard", *shard}, {"worker", *to}, {"took_ms", *took_ms}});
}

void ControlServer::Implementation::offer(const Request& request, Response& response) {
  if (number(request, "version", kCarriedVersion) != kCarriedVersion) {
    return refuse(response,
                  Refusal{Refusal::Kind::not_now,
                          "this process hands over in version " + std::to_string(kCarriedVersion) +
                              ": end it, and start the new one without --take-over"});
  }
  const auto offer = control->offer();
  if (!offer) return refuse(response, offer.error());
  answer(response, to_json(*offer));
}

void ControlServer::Implementation::hand_over(const Request& request, Response& response) {
  const auto offered = offer_of(request);
  if (!offered) return refuse(response, no_number());
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
  if (!offered) return refuse(response, no_number());
  const auto last = control->let_go(*offered);
  if (!last) return refuse(response, last.error());
  answer(response, *last);
}

void ControlServer::Implementation::give_up(const Request& request, Response& response) {
  const auto offered = offer_of(request);
  if (!offered) return refuse(response, no_number());
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

}  // namespace millrace
