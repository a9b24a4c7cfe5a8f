// Reads which functions serve packets, from `function` or `chain`, and the functions' own keys.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "function/kind.h"
#include "function/reader.h"
#include "toml/keys.h"

namespace millrace::config {

/// Reads one file. One thread uses a reader.
class ChainReader {
 public:
  /// Reads the names of the chosen functions; without a name, the first of `known` is chosen.
  /// `known` are all kinds of functions, which must outlive the reader.
  ChainReader(Problems& problems, const toml::table& file,
              std::span<const FunctionKind* const> known);

  /// Calls `each(key, read)` for each key of all functions. `read` reads the key's value, or
  /// refuses the key if its function is not chosen. If a function's name is wrong, the choice is
  /// unknown, and `read` refuses no key. Also calls `each` with the name of each function that has
  /// no key of that name: `read` then refuses any value.
  template <class Each>
  void for_each_key(Each&& each) {
    for (const FunctionKind* const kind : known_) {
      SettingsReader* const reader = reader_of(*kind);
      for (const FunctionKey& key : kind->keys) {
        each(key.name, [kind, reader, key](const Context& context, const toml::node& node) {
          if (reader != nullptr) return reader->read(key.name, context, node);
          refuse(*kind, context, node);
        });
      }
      if (std::ranges::find(kind->keys, kind->name, &FunctionKey::name) != kind->keys.end())
        continue;
      each(kind->name, [](const Context& context, const toml::node& node) {
        context.problem(node, "this function has no section: leave it out");
      });
    }
  }

  /// Notes a problem if no chosen function serves the customers of that port, whose key `customers`
  /// is in that line.
  void check_customers(Problems& problems, std::uint32_t line, std::string_view port) const;

  /// Returns the settings of each chosen function, in the order of the choice. To be called once
  /// all keys have been read.
  std::vector<std::shared_ptr<const FunctionSettings>> finish(Problems& problems,
                                                              const Surroundings& around);

 private:
  struct Chosen {
    const FunctionKind* kind;
    std::unique_ptr<SettingsReader> reader;
  };
  const FunctionKind* named(const Context& context, const toml::node& node);
  void read_function(const Context& context, const toml::node& node);
  void read_chain(const Context& context, const toml::node& node);
  void check_order(const Context& context, const toml::node& node);
  void choose(const FunctionKind& kind) { chosen_.push_back({&kind, kind.reader()}); }
  SettingsReader* reader_of(const FunctionKind& kind) const;
  static void refuse(const FunctionKind& kind, const Context& context, const toml::node& node);

  std::span<const FunctionKind* const> known_;
  std::vector<Chosen> chosen_;
  bool is_wrong_ = false;   // true: the names are wrong, so the choice is unknown
  std::uint32_t line_ = 0;  // line of `chain`
};

}  // namespace millrace::config
