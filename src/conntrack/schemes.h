// The lists: every table and every ageing scheme there is, once. Tests, benchmarks and the choice
// at start go through them; to add one, write its header and name it here.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "conntrack/ageing/none.h"
#include "conntrack/ageing/wheel.h"
#include "conntrack/sharing/sharded.h"
#include "conntrack/table/std.h"
#include "millrace/race.h"

namespace millrace {

/// A table of any key size, as a type that can stand in a list.
template <template <class> class T>
struct TableScheme {
  template <class K>
  using Of = T<K>;
  static constexpr std::string_view kName = T<KeyV4>::kName;
  static constexpr std::string_view kSummary = T<KeyV4>::kSummary;
};

struct SchemeDescription {
  std::string name;
  std::string summary;
};

template <class... Scheme>
struct SchemeList {
  static std::vector<std::string> names() { return {std::string(Scheme::kName)...}; }
  static std::vector<SchemeDescription> descriptions() {
    return {{std::string(Scheme::kName), std::string(Scheme::kSummary)}...};
  }

  /// Calls `use` with an object of the scheme of that name; false where there is none.
  template <class Use>
  static bool select(std::string_view name, Use&& use) {
    return ((Scheme::kName == name && (use(std::type_identity<Scheme>{}), true)) || ...);
  }
};

using TableSchemes = SchemeList<TableScheme<Race>, TableScheme<Std>>;
using SharingSchemes = SchemeList<Sharded>;
using AgeingSchemes = SchemeList<Wheel, NoAgeing>;

}  // namespace millrace
