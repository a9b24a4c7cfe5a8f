#include "function/firewall/log.h"

#include <fmt/compile.h>
#include <fmt/format.h>

#include <iterator>
#include <utility>
#include <variant>

#include "core/json.h"
#include "core/protocol.h"
#include "function/firewall/matching.h"

namespace millrace {
namespace {

constexpr std::string_view kNull = "null";

std::string_view zone_name(const FirewallLog::Names& names, std::uint8_t zone) {
  if (zone == kNoZone) return kNull;
  if (zone == kHostZone) return R"("host")";
  return names.zones[zone - kHostZone - 1U];
}

/// Appends the event's members, each behind a comma.
template <class K>
void append_members(std::string& text, const K& key, const FirewallEvent& of,
                    const FirewallLog::Names& names) {
  const auto append = [out = std::back_inserter(text)](const auto& format, const auto&... values) {
    fmt::format_to(out, format, values...);
  };
  append(FMT_COMPILE(R"(,"rule":{},"action":"{}","verdict":"{}","from":{},"to":{},"interface":{})"),
         names.rules[of.rule], to_string(of.action), to_string(of.verdict),
         zone_name(names, of.from), zone_name(names, of.to),
         of.link < names.ports.size() ? std::string_view(names.ports[of.link]) : kNull);
  append(FMT_COMPILE(R"(,"protocol":"{}","source":"{}","destination":"{}")"),
         protocol_name(key.protocol), to_string(key.source), to_string(key.destination));
  if (has_ports(key.protocol)) {
    append(FMT_COMPILE(R"(,"source_port":{},"destination_port":{})"), key.source_port,
           key.destination_port);
  } else if (key.protocol == kProtocolIcmp || key.protocol == kProtocolIcmpV6) {
    append(FMT_COMPILE(R"(,"icmp_type":{},"icmp_code":{})"), of.message >> 8, of.message & 0xff);
  }
  const auto& leaves = std::get<typename K::Address>(of.destination);
  if (leaves != key.destination || of.destination_port != key.destination_port) {
    append(FMT_COMPILE(R"(,"translated_destination":"{}")"), to_string(leaves));
    if (has_ports(key.protocol))
      append(FMT_COMPILE(R"(,"translated_destination_port":{})"), of.destination_port);
  }
  append(FMT_COMPILE(R"(,"length":{})"), of.length);
  const auto append_customer = [&](std::string_view name, Zone customer) {
    if (customer != 0)
      append(FMT_COMPILE(R"(,"{}":{})"), name, Json(names.customers->name_of(customer)).dump());
  };
  append_customer("customer", key.number_of_zone());
  append_customer("to_customer", of.to_customer);
}

}  // namespace

class FirewallLog::Reader final : public LogReader {
 public:
  Reader(std::shared_ptr<FirewallLog> log, bool only_new)
      : log_(std::move(log)), reader_(log_->events_, only_new), unknown_(log_->workers_) {}

  void append(std::string& text) override {
    reader_.read(kMost, [&](const FirewallEvent& event, unsigned worker, std::uint64_t missed) {
      missed += std::exchange(unknown_[worker], 0);
      const auto names = log_->names(event.names);
      if (names == nullptr) {
        unknown_[worker] = missed + 1;
        return;
      }
      begin_event(text, event.time_ns);
      std::visit([&](const auto& key) { append_members(text, key, event, *names); }, event.key);
      end_event(text, worker, missed);
    });
  }

 private:
  std::shared_ptr<FirewallLog> log_;
  EventLog<FirewallEvent>::Reader reader_;
  std::vector<std::uint64_t> unknown_;  // by worker: events whose names are not kept
};

std::unique_ptr<LogReader> FirewallLog::reader(std::shared_ptr<FirewallLog> of, bool only_new) {
  return std::make_unique<Reader>(std::move(of), only_new);
}

std::uint32_t FirewallLog::rename(Names names) {
  const std::lock_guard guard(mutex_);
  names_.push_back(std::make_shared<const Names>(std::move(names)));
  if (names_.size() > kMostNames) names_.pop_front();
  return ++renamed_;
}

/// Returns the names that the call of `rename` with that result has set; null if they are not kept.
auto FirewallLog::names(std::uint32_t number) -> std::shared_ptr<const Names> {
  const std::lock_guard guard(mutex_);
  const std::size_t back = renamed_ - number;
  return back < names_.size() ? names_[names_.size() - 1 - back] : nullptr;
}

}  // namespace millrace
