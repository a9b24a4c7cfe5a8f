// Reads a TOML table into a struct, by a list of keys, each with a reader for its value. To add a
// setting, add a member to the struct and a line to the struct's list of keys. One thread reads a
// file; all problems of the file are collected (`Problems`) and reported together.
#pragma once

#include <stdexcept>

namespace millrace::config {
[[noreturn]] inline void not_toml() { throw std::runtime_error("is no valid TOML"); }
}  // namespace millrace::config

// Some texts that are no TOML ("[=(") fail an assertion of toml++ 3.3. The assertion throws here,
// so that such a text is an error like any other.
#define TOML_ASSERT(expr) ((expr) ? static_cast<void>(0) : ::millrace::config::not_toml())
#include <toml++/toml.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/edit_distance.h"
#include "millrace/types.h"

namespace millrace::config {

/// True for control characters of ASCII, which would break lines of output.
constexpr bool is_control(char c) { return (c >= 0 && c < ' ') || c == 0x7f; }

/// The problems that were found in one file.
class Problems {
 public:
  explicit Problems(std::string_view file) : file_(file) {}

  void add(std::uint32_t line, std::string_view key, std::string_view what) {
    std::string text = file_ + ":" + std::to_string(line) + ": ";
    if (!key.empty()) text.append(key).append(": ");
    text += what;
    std::ranges::replace_if(text, is_control, ' ');
    found_.push_back({line, std::string(key), std::move(text)});
  }
  bool none() const { return found_.empty(); }
  std::size_t count() const { return found_.size(); }
  /// True if keys that begin so have problems, so that others may follow from these.
  bool has(std::string_view key) const {
    return std::ranges::any_of(found_, [key](const auto& one) { return one.key.starts_with(key); });
  }

  /// Sets the names of the keys that belong above all tables. In TOML, a key below a table's header
  /// belongs to that table.
  void set_top(std::vector<std::string_view> names) { top_ = std::move(names); }
  bool is_top(std::string_view name) const { return std::ranges::find(top_, name) != top_.end(); }

  /// Returns all problems as one error, a line each, in the order of the file.
  Error error() {
    std::ranges::stable_sort(found_, {}, &Found::line);
    std::string all;
    for (const auto& problem : found_) {
      if (!all.empty()) all += '\n';
      all += problem.text;
    }
    return {all, Error::Kind::usage};
  }

 private:
  struct Found {
    std::uint32_t line = 0;
    std::string key;
    std::string text;
  };
  std::string file_;
  std::vector<std::string_view> top_;
  std::vector<Found> found_;
};

/// The value that is being read.
struct Context {
  Problems& problems;
  std::string key;           ///< the value's key behind the keys of its tables: "balance.key"
  bool is_required = false;  ///< the key must be given

  void problem(const toml::node& at, std::string_view what) const {
    problems.add(at.source().begin.line, key, what);
  }
  Context sub(std::string_view name) const {
    return {problems, key.empty() ? std::string(name) : key + "." + std::string(name)};
  }
};

template <class T>
struct KeyOf {
  std::string_view name;
  std::function<void(const Context&, const toml::node&, T&)> read;
  bool required = false;
};
template <class T>
using Keys = std::vector<KeyOf<T>>;

/// A value with its line in the file, for checks that need the rest of the file.
template <class V>
struct Located {
  V value{};
  std::uint32_t line = 0;
  /// False if the key is missing. Most readers also leave `given` false if the value has a wrong
  /// type.
  bool given = false;
};

/// A text and its line.
using Text = Located<std::string>;

inline std::string in_quotes(std::string_view text) {
  std::string result = "\"";
  return result.append(text).append("\"");
}

inline std::string joined(const std::vector<std::string>& names, std::string_view between) {
  std::string all;
  for (const auto& name : names) all.append(all.empty() ? "" : between).append(in_quotes(name));
  return all;
}

/// Returns "is a string", "is an array", ...
inline std::string kind_of(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "is a table";
    case toml::node_type::array:
      return "is an array";
    case toml::node_type::string:
      return "is a string";
    case toml::node_type::integer:
      return "is an integer";
    case toml::node_type::floating_point:
      return "is a floating-point number";
    case toml::node_type::boolean:
      return "is a boolean";
    default:
      return "is a date or time";
  }
}

template <class T>
void read_keys(const Context& context, const toml::table& table, const Keys<T>& keys, T& out) {
  for (const auto& [name, node] : table) {
    const auto known = std::ranges::find(keys, name.str(), &KeyOf<T>::name);
    Context here = context.sub(name.str());
    if (known != keys.end()) {
      here.is_required = known->required;
      known->read(here, node, out);
      continue;
    }
    if (!context.key.empty() && context.problems.is_top(name.str())) {
      here.problem(node, "unknown key: " + in_quotes(name.str()) +
                             " belongs to no table: move it above the first [table]");
      continue;
    }
    const auto distance = [&](const KeyOf<T>& key) { return edit_distance(key.name, name.str()); };
    const auto nearest = std::ranges::min_element(keys, {}, distance);
    const bool is_near =
        2 * distance(*nearest) <= std::max(nearest->name.size(), name.str().size());
    std::vector<std::string> all;
    for (const auto& key : keys) all.emplace_back(key.name);
    // toml++ gives the line of the value. That is the key's line, too; the line of a table is that
    // of the table's header.
    here.problem(node,
                 "unknown key: " + (is_near ? "the nearest known is " + in_quotes(nearest->name)
                                            : "known are " + joined(all, ", ")));
  }
  for (const auto& key : keys) {
    if (key.required && !table.contains(key.name)) {
      context.sub(key.name).problem(table, "is missing: give it");
    }
  }
}

// --- readers

template <class V>
void assign(V& to, std::int64_t value) {
  to = static_cast<V>(value);
}
template <class V>
void assign(std::optional<V>& to, std::int64_t value) {
  to = static_cast<V>(value);
}

template <class T, class V>
auto integer(V T::* member, std::int64_t least, std::int64_t most, std::string_view unit = "") {
  return [=](const Context& context, const toml::node& node, T& out) {
    std::string right = ": give " + std::to_string(least);
    if (most > least) right.append(" to ").append(std::to_string(most));
    if (!unit.empty()) right.append(" ").append(unit);
    const auto* value = node.as_integer();
    if (value == nullptr) {
      context.problem(node, kind_of(node) + right);
      return;
    }
    if (**value < least || **value > most) {
      context.problem(node, std::to_string(**value) + " is out of range" + right);
      return;
    }
    assign(out.*member, **value);
  };
}

template <class T, class V>
auto boolean(V T::* member) {
  return [=](const Context& context, const toml::node& node, T& out) {
    const auto* value = node.as_boolean();
    if (value == nullptr) {
      context.problem(node, kind_of(node) + ": give true or false");
      return;
    }
    out.*member = **value;
  };
}

template <class T>
auto text(Located<std::string> T::* member) {
  return [=](const Context& context, const toml::node& node, T& out) {
    const auto* value = node.as_string();
    if (value == nullptr) {
      context.problem(node, kind_of(node) + ": give a string");
      return;
    }
    out.*member = {**value, node.source().begin.line, true};
  };
}

/// Reads a name, which lines of output show.
template <class T>
auto name_text(Located<std::string> T::* member) {
  return [=](const Context& context, const toml::node& node, T& out) {
    text(member)(context, node, out);
    if (std::ranges::any_of((out.*member).value, is_control))
      context.problem(node, in_quotes((out.*member).value) +
                                " has control characters: give a name without line breaks, tabs "
                                "and the like");
  };
}

template <class T>
auto any_text(std::string T::* member) {
  return [=](const Context& context, const toml::node& node, T& out) {
    const auto* value = node.as_string();
    if (value == nullptr) {
      context.problem(node, kind_of(node) + ": give a string");
      return;
    }
    out.*member = **value;
  };
}

/// Returns the text with ASCII letters in lower case.
inline std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

/// Reads one text or a list of texts; numbers count as texts.
inline std::vector<Text> read_texts(const Context& context, const toml::node& node) {
  std::vector<Text> all;
  const auto add = [&](const toml::node& one) {
    if (const auto* text = one.as_string()) {
      all.push_back({text->get(), one.source().begin.line, true});
    } else if (const auto* number = one.as_integer()) {
      all.push_back({std::to_string(number->get()), one.source().begin.line, true});
    } else {
      context.problem(one, kind_of(one) + ": give a string, or a list of strings");
    }
  };
  const toml::array* const list = node.as_array();
  if (list == nullptr) {
    add(node);
    return all;
  }
  for (const toml::node& one : *list) add(one);
  if (list->empty())
    context.problem(node, std::string("is empty: name at least one") +
                              (context.is_required ? "" : ", or leave the key out"));
  return all;
}

template <class T>
auto texts(std::vector<Text> T::* member) {
  return [member](const Context& context, const toml::node& node, T& out) {
    out.*member = read_texts(context, node);
  };
}

/// Reads one of the names in `values`, in upper or lower case.
template <class T, class V>
auto choice(V T::* member, std::vector<std::pair<std::string, V>> values) {
  return
      [member, values = std::move(values)](const Context& context, const toml::node& node, T& out) {
        std::vector<std::string> names;
        for (const auto& known : values) names.push_back(known.first);
        const std::string right = ": give " + joined(names, " or ");
        const auto* value = node.as_string();
        if (value == nullptr) {
          context.problem(node, kind_of(node) + right);
          return;
        }
        const std::string given = lower(**value);
        for (const auto& [name, meaning] : values) {
          if (name == given) {
            out.*member = meaning;
            return;
          }
        }
        context.problem(node, in_quotes(**value) + " is not known" + right);
      };
}

/// Reads one of `names`, in upper or lower case, and stores it as `names` spells it.
template <class T, class Name>
auto name(Name T::* member, const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, Name>> values;
  for (const auto& known : names) values.emplace_back(known, known);
  return choice(member, std::move(values));
}

template <class T, class S>
auto table(S T::* member, Keys<S> keys) {
  return [member, keys = std::move(keys)](const Context& context, const toml::node& node, T& out) {
    const auto* value = node.as_table();
    if (value == nullptr) {
      context.problem(node, kind_of(node) + ": give a table");
      return;
    }
    read_keys(context, *value, keys, out.*member);
  };
}

/// Reads an array of tables, and sets the `line` of each element. `example` shows in messages what
/// an element looks like.
template <class T, class S>
auto tables(std::vector<S> T::* member, Keys<S> keys, std::string_view example = "a table") {
  return [member, keys = std::move(keys), example](const Context& context, const toml::node& node,
                                                   T& out) {
    const auto* array = node.as_array();
    if (array == nullptr) {
      const bool is_section = node.is_table() && !node.as_table()->is_inline();
      const bool is_inside = context.key.contains('.');
      context.problem(
          node, kind_of(node) + (is_inside && !is_section ? ": give an array of tables"
                                                          : ": give one [[" + context.key +
                                                                "]] for each, in double brackets"));
      return;
    }
    for (const toml::node& element : *array) {
      if (!element.is_table()) {
        context.problem(element, kind_of(element) + ": give " + std::string(example));
        continue;
      }
      S& item = (out.*member).emplace_back();
      item.line = element.source().begin.line;
      read_keys(context, *element.as_table(), keys, item);
    }
  };
}

}  // namespace millrace::config
