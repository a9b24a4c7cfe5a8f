// Explanations of packets and connections by a plan, as text.
#include <fmt/format.h>

#include <cstring>
#include <iterator>
#include <utility>
#include <variant>

#include "core/burst.h"
#include "core/json.h"
#include "function/firewall/deployment.h"

namespace millrace {
namespace {

class FirewallView final : public FunctionView {
 public:
  FirewallView(std::shared_ptr<const FirewallPlan> plan, RuleIds ids)
      : plan_(std::move(plan)), ids_(std::move(ids)) {}

  Explained explain(const AnyKey& key, const Flow* connection, bool is_rewritten) const override {
    return std::visit(
        [&]<class K>(const K& of) {
          Explained out;
          out.side = Side::originator;
          out.verdict = Verdict::tracked;
          if (connection != nullptr) {
            if (of != std::get<K>(connection->key)) out.side = Side::reply;
            const std::string name = rule_of(connection->image);
            out.names = {{"rule", name}};
            out.why = "it belongs to a connection that " + named(name) + " has accepted";
            return out;
          }
          if (is_rewritten) {
            out.names = {{"rule", ""}};
            out.why = "the firewall's rules decide by where it then goes";
          } else {
            explain_first(of, out);
          }
          return out;
        },
        key);
  }

  void append_names(std::string& text, const Flow& connection) const override {
    fmt::format_to(std::back_inserter(text), ",\"rule\":{}",
                   Json(rule_of(connection.image)).dump());
  }

 private:
  static std::string named(std::string_view rule) {
    return rule == kDefaultName ? "the default" : fmt::format("the rule \"{}\"", rule);
  }
  /// Returns the name of the rule in an image; empty if no rule has it any more.
  std::string rule_of(const std::byte* image) const {
    std::uint64_t hash;
    std::memcpy(&hash, image, sizeof(hash));
    const auto at = plan_->ids.find(hash);
    return at == plan_->ids.end() ? std::string() : ids_.name_of(at->second);
  }
  std::string zone_name(std::uint8_t zone) const {
    if (zone == kNoZone) return "no zone";
    if (zone == kHostZone) return std::string(kHostZoneName);
    return plan_->settings->zones[zone - kHostZone - 1U];
  }

  /// Explains a packet that has no connection, as if it arrived where packets to its source leave.
  template <class K>
  void explain_first(const K& key, Explained& out) const {
    // A key does not show the message of an ICMP query: an echo request is meant.
    const std::uint16_t message = key.protocol == kProtocolIcmp     ? icmp_message(8, 0)
                                  : key.protocol == kProtocolIcmpV6 ? icmp_message(128, 0)
                                                                    : std::uint16_t{0};
    const auto fields = plan_->fields_of<K>(key, nullptr, kNoLink, message);
    const Ruling by = plan_->ruling(fields);
    const std::string& name = ids_.name_of(by.rule);
    out.names = {{"rule", name}};
    out.verdict = verdict_of(by.action);
    out.why =
        fmt::format("it has no connection yet, and goes from {} to {}: {} {}s it{}",
                    zone_name(fields.from), zone_name(fields.to), named(name), to_string(by.action),
                    by.limit != nullptr ? ", unless the rule's limit is reached" : "");
  }

  std::shared_ptr<const FirewallPlan> plan_;
  RuleIds ids_;
};

}  // namespace

std::shared_ptr<const FunctionView> FirewallDeployment::view() const {
  return std::make_shared<const FirewallView>(plan_, ids_);
}

}  // namespace millrace
