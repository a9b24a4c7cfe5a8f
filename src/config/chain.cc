#include "config/chain.h"

#include <algorithm>
#include <map>
#include <string>

#include "core/address.h"
#include "host/host_for.h"

namespace millrace::config {

ChainReader::ChainReader(Problems& problems, const toml::table& file,
                         std::span<const FunctionKind* const> known)
    : known_(known) {
  const Context root{problems, ""};
  const toml::node* const function = file.get("function");
  const toml::node* const chain = file.get("chain");
  if (function != nullptr) read_function(root.sub("function"), *function);
  if (chain != nullptr && function != nullptr) {
    root.sub("chain").problem(*chain, "function is given, too: leave function out");
    is_wrong_ = true;
  } else if (chain != nullptr) {
    read_chain(root.sub("chain"), *chain);
  }
  if (chosen_.empty()) choose(*known.front());
  for (const FunctionKind* const kind : known) {
    if (is_wrong_ && reader_of(*kind) == nullptr) choose(*kind);
  }
}

void ChainReader::read_function(const Context& context, const toml::node& node) {
  if (node.is_array()) {
    is_wrong_ = true;
    context.problem(node, "is an array: give one function, or a list of them as chain");
  } else if (const FunctionKind* kind = named(context, node)) {
    choose(*kind);
  }
}

/// Returns the function that the value names; null, with a problem noted, if it names none.
const FunctionKind* ChainReader::named(const Context& context, const toml::node& node) {
  struct Named {
    std::string name;
  } is;
  std::vector<std::string> names;
  for (const FunctionKind* const kind : known_) names.emplace_back(kind->name);
  name(&Named::name, names)(context, node, is);
  const auto at = std::ranges::find(known_, is.name, &FunctionKind::name);
  is_wrong_ = is_wrong_ || at == known_.end();
  return at != known_.end() ? *at : nullptr;
}

void ChainReader::read_chain(const Context& context, const toml::node& node) {
  line_ = node.source().begin.line;
  const toml::array* const list = node.as_array();
  if (list == nullptr || list->empty()) {
    is_wrong_ = true;
    context.problem(node, (list == nullptr ? kind_of(node) : "is empty") +
                              ": give a list of functions, as [" + in_quotes(known_.front()->name) +
                              "]");
    return;
  }
  std::vector<const FunctionKind*> repeated;
  for (const toml::node& element : *list) {
    const FunctionKind* const kind = named(context, element);
    if (kind == nullptr) continue;
    if (reader_of(*kind) == nullptr) {
      choose(*kind);
    } else if (std::ranges::find(repeated, kind) == repeated.end()) {
      repeated.push_back(kind);
      context.problem(element, in_quotes(kind->name) + " is there more than once: name it once");
    }
  }
  check_order(context, node);
}

/// Notes a problem for two functions that rewrite the same ends of packets, and for one that
/// chooses destinations behind one that chooses sources: the source depends on the destination.
void ChainReader::check_order(const Context& context, const toml::node& node) {
  const FunctionKind* before = nullptr;
  for (const Chosen& one : chosen_) {
    if (one.kind->rewrites == Rewrites::nothing) continue;
    if (before != nullptr && before->rewrites >= one.kind->rewrites)
      context.problem(node, before->rewrites == one.kind->rewrites
                                ? in_quotes(before->name) + " and " + in_quotes(one.kind->name) +
                                      " rewrite the same: name one of them"
                                : in_quotes(one.kind->name) +
                                      " chooses destinations, on which "
                                      "sources depend: name it before " +
                                      in_quotes(before->name));
    before = one.kind;
  }
}

SettingsReader* ChainReader::reader_of(const FunctionKind& kind) const {
  const auto at = std::ranges::find(chosen_, &kind, &Chosen::kind);
  return at != chosen_.end() ? at->reader.get() : nullptr;
}

void ChainReader::refuse(const FunctionKind& kind, const Context& context, const toml::node& node) {
  const std::string name = in_quotes(kind.name);
  context.problem(node,
                  "belongs to the function " + name +
                      ", which is not chosen: name that in function or chain, or leave this out");
}

void ChainReader::check_customers(Problems& problems, std::uint32_t line,
                                  std::string_view port) const {
  std::vector<std::string> right;
  for (const FunctionKind* const kind : known_) {
    if (!kind->serves_customers) continue;
    if (reader_of(*kind) != nullptr) return;
    right.emplace_back(kind->name);
  }
  problems.add(line, "port.customers",
               "no function serves the customers of " + in_quotes(port) + ": name " +
                   joined(right, " or ") +
                   " in function or chain, or leave customers (and tunnel) out");
}

std::vector<std::shared_ptr<const FunctionSettings>> ChainReader::finish(
    Problems& problems, const Surroundings& around) {
  std::vector<std::shared_ptr<const FunctionSettings>> all;
  const auto problem = [&](const Chosen& one, std::string_view why) {
    if (chosen_.size() > 1 && !why.empty() && !is_wrong_)
      problems.add(line_, "chain", in_quotes(one.kind->name) + " " + std::string(why));
  };
  const bool rewrites_sources = std::ranges::any_of(
      chosen_, [](const Chosen& one) { return one.kind->rewrites == Rewrites::sources; });
  std::map<AddressV4, const FunctionKind*> whose;
  for (const Chosen& one : chosen_) {
    all.push_back(one.reader->finish(problems, around));
    HostAddresses<AddressV4> v4;
    HostAddresses<AddressV6> v6;
    all.back()->tell(v4, v6);
    for (const AddressV4& address : v4.virtual_addresses) {
      const auto [at, is_new] = whose.emplace(address, one.kind);
      if (!is_new && at->second != one.kind)
        problem(one, "has the address " + to_string(address) + ", and so has " +
                         in_quotes(at->second->name) + ": give each function its own");
    }
    const FunctionFacts facts = all.back()->facts();
    problem(one, facts.counts_nothing);
    const bool chooses = one.kind->rewrites == Rewrites::destinations;
    if (rewrites_sources && chooses && !facts.missing.empty()) {
      problem(one, "has " + std::string(facts.missing));
    } else if (rewrites_sources && !facts.loses_replies.empty()) {
      problem(one, std::string(facts.loses_replies) +
                       ": a function that rewrites sources needs them, so take those out");
    }
  }
  return all;
}

}  // namespace millrace::config
