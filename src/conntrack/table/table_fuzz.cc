// Every table of the list, driven by arbitrary operations on few keys, beside a map.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <span>
#include <type_traits>

#include "conntrack/schemes.h"

using namespace millrace;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

KeyV4 key_of(std::uint8_t n) {
  KeyV4 key;
  key.source.bytes[3] = n;
  key.protocol = 17;
  return key;
}

template <class Table>
class Run {
 public:
  explicit Run(std::size_t capacity)
      : table_(*Table::create({capacity, 8, Pages::small, Secret::from_seed(1)})) {}

  void step(std::uint8_t operation, std::uint8_t n) {
    const KeyV4 key = key_of(n);
    const Hash hash = table_.hasher()(key);
    const auto known = live_.find(n);
    const ConnId expected = known == live_.end() ? ConnId::none : known->second;
    switch (operation % 4) {
      case 0: {
        const Insertion in = table_.insert(key, hash, KeepAll{});
        if (expected != ConnId::none) require(in.id == expected);
        if (in.outcome == Insertion::Outcome::inserted) live_[n] = in.id;
        break;
      }
      case 1:
        require(table_.erase(key, hash) == expected);
        live_.erase(n);
        break;
      case 2: {
        ConnId found{};
        table_.find({&key, 1}, {&hash, 1}, {&found, 1});
        require(found == expected);
        break;
      }
      default:
        table_.settle();
    }
    require(table_.size() == live_.size());
  }
  void end() const { require(table_.check_invariants().has_value()); }

 private:
  Table table_;
  std::map<std::uint8_t, ConnId> live_;
};

template <class... T>
void run_all(SchemeList<T...>, std::span<const std::uint8_t> input) {
  const auto run_one = [input]<class One>(std::type_identity<One>) {
    Run<typename One::template Of<KeyV4>> run(1 + input[0] % 64);
    for (std::size_t i = 1; i + 1 < input.size(); i += 2) run.step(input[i], input[i + 1]);
    run.end();
  };
  (run_one(std::type_identity<T>{}), ...);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 0) run_all(TableSchemes{}, {data, size});
  return 0;
}
