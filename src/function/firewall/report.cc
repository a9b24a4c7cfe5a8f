#include "function/firewall/report.h"

#include <fmt/format.h>

#include <iterator>

#include "core/grouped.h"
#include "core/json.h"

namespace millrace {

Json to_json(const std::vector<RuleStatistics>& rules) {
  Json list = Json::array();
  for (const RuleStatistics& rule : rules) {
    list.push_back({{"rule", rule.name},
                    {"action", to_string(rule.action)},
                    {"gone", rule.is_gone},
                    {"connections", rule.connections},
                    {"live", rule.live},
                    {"packets", rule.packets},
                    {"bytes", rule.bytes},
                    {"replies", rule.replies},
                    {"reply_bytes", rule.reply_bytes},
                    {"refused", rule.refused},
                    {"refused_bytes", rule.refused_bytes},
                    {"limited", rule.limited},
                    {"logged", rule.logged},
                    {"not_logged", rule.not_logged}});
  }
  return list;
}

std::string to_table(const std::vector<RuleStatistics>& rules) {
  constexpr std::size_t kMost = 24;
  std::string text;
  const auto line = [&text]<class... Args>(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text), format, std::forward<Args>(args)...);
    text += '\n';
  };
  std::size_t shown = 0;
  std::size_t hidden = 0;
  line("\n{:<24}{:<8}{:>13}{:>14}{:>14}{:>14}{:>14}", "rule", "action", "connections", "packets",
       "replies", "refused", "limited");
  for (const RuleStatistics& rule : rules) {
    // After a take-over, a rule may have packets of connections that began before.
    if (rule.connections + rule.packets + rule.replies + rule.refused + rule.limited == 0) continue;
    if (shown++ >= kMost) {
      ++hidden;
      continue;
    }
    line("{:<24}{:<8}{:>13}{:>14}{:>14}{:>14}{:>14}", rule.name, to_string(rule.action),
         grouped(rule.connections), grouped(rule.packets), grouped(rule.replies),
         grouped(rule.refused), grouped(rule.limited));
  }
  if (hidden != 0) line("... and {} more rules (--stats has all)", hidden);
  return shown == 0 ? std::string() : text;
}

}  // namespace millrace
