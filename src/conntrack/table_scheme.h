// A table template, for any key size, as a type that can stand in a list.
#pragma once

#include <string_view>

#include "millrace/key.h"

namespace millrace {

template <template <class> class T>
struct TableScheme {
  template <class K>
  using Of = T<K>;
  static constexpr std::string_view kName = T<KeyV4>::kName;
  static constexpr std::string_view kSummary = T<KeyV4>::kSummary;
};

}  // namespace millrace
