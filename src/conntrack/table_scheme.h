// Wraps a table template in a type, so that a `SchemeList` can hold it. `Of<K>` is the table for
// keys `K`.
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
