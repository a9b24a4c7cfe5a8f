// The load balancer's statistics as JSON (docs/stats.schema.json), and as text.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "core/grouped.h"
#include "core/json.h"
#include "function/balance/deployment.h"

namespace millrace {
namespace {

Json services_of(const std::vector<ServiceStatistics>& services) {
  Json list = Json::array();
  for (const auto& service : services) {
    list.push_back({{"service", service.service},
                    {"scheduler", service.scheduler},
                    {"forward", to_string(service.forward)},
                    {"draining", service.draining},
                    {"established", service.established},
                    {"max_connections",
                     service.max_connections != 0 ? Json(service.max_connections) : Json(nullptr)},
                    {"limited", service.limited},
                    {"refused", service.refused},
                    {"collisions", service.collisions},
                    {"stateless", service.stateless}});
  }
  return list;
}

Json backends_of(const std::vector<ServiceStatistics>& services) {
  Json list = Json::array();
  for (const auto& service : services) {
    for (const auto& backend : service.backends) {
      list.push_back({{"address", backend.address},
                      {"service", service.service},
                      {"weight", backend.weight},
                      {"draining", backend.draining},
                      {"packets", backend.packets},
                      {"bytes", backend.bytes},
                      {"replies", backend.replies},
                      {"reply_bytes", backend.reply_bytes},
                      {"connections", backend.connections},
                      {"live", backend.live},
                      {"established", std::max<std::int64_t>(backend.established, 0)}});
    }
  }
  return list;
}

std::string limit_of(const ServiceStatistics& service) {
  if (service.max_connections == 0) return "";
  return fmt::format(": {} of at most {} connections, refused {} times at the limit",
                     grouped(service.established), grouped(service.max_connections),
                     grouped(service.limited));
}

double quotient(std::uint64_t dividend, std::uint64_t divisor) {
  return divisor == 0 ? 0.0 : static_cast<double>(dividend) / static_cast<double>(divisor);
}

}  // namespace

Json to_json(const std::vector<ServiceStatistics>& services,
             const MaglevTables::Statistics& maglev) {
  return {{"maglev",
           {{"tables", maglev.tables}, {"made", maglev.made}, {"bytes", maglev.memory_bytes}}},
          {"services", services_of(services)},
          {"backends", backends_of(services)}};
}

std::string to_table(const std::vector<ServiceStatistics>& services) {
  constexpr std::size_t kMost = 24;
  constexpr int kBar = 20;
  std::string text;
  const auto line = [&text]<class... Args>(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text), format, std::forward<Args>(args)...);
    text += '\n';
  };
  std::size_t shown = 0;
  std::size_t hidden = 0;
  for (const auto& service : services) {
    std::uint64_t packets = 0;
    std::uint64_t most = 0;
    for (const auto& backend : service.backends) {
      packets += backend.packets;
      most = std::max(most, backend.packets);
    }
    if (packets == 0 && service.refused == 0) continue;
    if (shown >= kMost) {
      hidden += service.backends.size();
      continue;
    }
    line("\n{} ({}{}){}{}", service.service, service.scheduler,
         service.forward == Forward::nat ? "" : ", dsr", limit_of(service),
         service.refused == 0 ? "" : ", " + grouped(service.refused) + " without a backend");
    line("  {:<26}{:>13}{:>10}{:>14}", "backend", "packets", "share", "connections");
    for (const auto& backend : service.backends) {
      if (shown++ >= kMost) {
        ++hidden;
        continue;
      }
      line("  {:<26}{:>13}{:>8.1f} %{:>14}  {:#<{}}", backend.address, grouped(backend.packets),
           100.0 * quotient(backend.packets, packets), grouped(backend.connections), "",
           static_cast<int>(kBar * quotient(backend.packets, most)));
    }
  }
  if (hidden != 0) line("  ... and {} more backends (--stats has all)", hidden);
  return text;
}

}  // namespace millrace
