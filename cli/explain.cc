// `millrace explain`: what a configuration alone says about a packet.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "command_line/output.h"
#include "command_line/validators.h"
#include "commands.h"
#include "common_options.h"
#include "config/config.h"
#include "core/parameters.h"
#include "function/kind.h"
#include "live/filter.h"

namespace millrace::cli {
namespace {

struct Explain {
  std::string config_path;
  std::string protocol;
  std::string source;
  std::string destination;
  std::string customer;

  int run() const;

 private:
  Result<AnyKey> key(const Customers& customers) const;
};

/// Reads the packet's key as the control socket does.
Result<AnyKey> Explain::key(const Customers& customers) const {
  std::vector<std::pair<std::string, std::string>> given{{"protocol", protocol}};
  for (const auto& [name, text] : {std::pair{"source", source}, {"destination", destination}}) {
    const auto end = parse_backend(text);
    if (!end)
      return std::unexpected(Error{text + " is no address with a port: give one like "
                                          "198.51.100.7:40000, or [2001:db8::7]:53124",
                                   Error::Kind::usage});
    given.emplace_back(name,
                       std::visit([](const auto& is) { return to_string(is); }, end->address));
    given.emplace_back(std::string(name) + "_port", std::to_string(end->port.value_or(0)));
  }
  if (!customer.empty()) given.emplace_back("customer", customer);
  return parse_key(given, customers);
}

int Explain::run() const {
  const auto config = read_config(config_path, scheme_names());
  if (!config) return fail(config.error());
  const auto of = key(*config->live.customers);
  if (!of) return fail(of.error());
  const auto deployment = config->function->kind().deploy(config->function, function_run(*config));
  if (!deployment) return fail(deployment.error());
  const Explained is = (*deployment)->view()->explain(*of, nullptr, false);
  fmt::print("{}: {}\n", to_string(is.verdict),
             is.why.empty() ? "no function concerns itself with it" : is.why);
  for (const auto& [name, value] : is.names) {
    if (!value.empty()) fmt::print("  {:<12}{}\n", name, value);
  }
  return kDone;
}

}  // namespace

void add_explain(CLI::App& app, Run& run) {
  auto* command = app.add_subcommand(
      "explain", "Say what a configuration does with the first packet of a connection");
  command->description(
      "Says what a configuration does with the first packet of a connection, without a running\n"
      "dataplane: which rule or service concerns it and, with deterministic pools of NAT, which\n"
      "customer has a public port, and which ports a customer gets (docs/nat.md). `millctl "
      "explain`\n"
      "asks a running one.");
  const auto is = std::make_shared<Explain>();
  command->add_option("PROTOCOL", is->protocol, "tcp, udp, ... or a number")->required();
  command->add_option("SOURCE", is->source, "Address and port: 10.0.0.5:40000")->required();
  command->add_option("DESTINATION", is->destination, "Address and port: 198.51.100.1:2345")
      ->required();
  command->add_option("--config", is->config_path, "Configuration file")
      ->required()
      ->check(not_empty())
      ->type_name("FILE");
  command
      ->add_option("--customer", is->customer,
                   "Customer from whose tunnel or VLAN the packet comes")
      ->type_name("NAME");
  command->footer(
      "\nExample: millrace explain --config nat.toml tcp 192.0.2.1:443 198.51.100.1:2345");
  command->callback([&run, is] { run = [is] { return is->run(); }; });
}

}  // namespace millrace::cli
