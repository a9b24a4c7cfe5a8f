#include "limit.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <utility>

namespace millrace::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::size_t kFetches = std::size_t{1} << 20;
constexpr std::size_t kLine = 64;

/// Kinds of prefetch, by the locality argument of __builtin_prefetch: into all cache levels (3),
/// into the second and third (2), past them (0), and into all levels for writing (`kToWrite`).
constexpr int kToWrite = 4;
constexpr std::array kKinds{3, 2, 0, kToWrite};
constexpr std::array<std::size_t, 4> kDistances{12, 24, 48, 96};

/// The cache lines of a block of memory; a random number picks one.
class Lines {
 public:
  Lines(const Memory& memory, std::size_t bytes)
      : data_(memory.data()), count_(std::max<std::size_t>(bytes / kLine, 1)) {}

  std::byte* at(std::uint64_t random) const {
    return data_ + (random >> 32) * count_ / (std::uint64_t{1} << 32) * kLine;
  }

 private:
  std::byte* data_;
  std::size_t count_;
};

/// Returns the i-th member of a pseudo-random sequence, computed from i alone.
std::uint64_t scattered(std::uint64_t i) {
  i *= 0x9e3779b97f4a7c15;
  return (i ^ i >> 29) * 0xbf58476d1ce4e5b9;
}

template <Access kAccess, int kKind>
void begin(const Lines& lines, std::uint64_t random) {
  if constexpr (kAccess != Access::none) {
    constexpr bool kWrites = kKind == kToWrite && kAccess == Access::update;
    __builtin_prefetch(lines.at(random), kWrites, kKind == kToWrite ? 3 : kKind);
    asm volatile("");
  }
}

template <Access kAccess>
std::uint64_t use(const Lines& lines, std::uint64_t random) {
  if constexpr (kAccess == Access::none) return 0;
  auto& word = *reinterpret_cast<std::uint64_t*>(lines.at(random));
  if constexpr (kAccess == Access::update) ++word;
  return word;
}

template <Access kIndex, Access kRecords, int kKind>
double run(const Lines& index, const Lines& records, std::size_t distance) {
  // Each run draws new lines, so that no cache has its lines from the previous run.
  static std::uint64_t base = 0;
  const std::uint64_t first = base += 2 * kFetches;
  std::uint64_t sum = 0;
  const auto start = SteadyClock::now();
  for (std::uint64_t i = first; i < first + kFetches; ++i) {
    const std::uint64_t ahead = scattered(i + distance);
    begin<kIndex, kKind>(index, ahead);
    begin<kRecords, kKind>(records, ahead << 20 | ahead >> 44);
    const std::uint64_t now = scattered(i);
    sum += use<kIndex>(index, now) + use<kRecords>(records, now << 20 | now >> 44);
  }
  const auto end = SteadyClock::now();
  asm volatile("" : : "r"(sum));
  return std::chrono::duration<double, std::nano>(end - start).count() / kFetches;
}

template <Access kIndex, Access kRecords>
double best(const Lines& index, const Lines& records) {
  double least = std::numeric_limits<double>::max();
  const auto with = [&]<int kKind>(std::integral_constant<int, kKind>) {
    for (const std::size_t distance : kDistances) {
      least = std::min(least, run<kIndex, kRecords, kKind>(index, records, distance));
    }
  };
  [&]<std::size_t... i>(std::index_sequence<i...>) {
    (with(std::integral_constant<int, kKinds[i]>{}), ...);
  }(std::make_index_sequence<kKinds.size()>{});
  return least;
}

template <Access kIndex>
double best_with(Access access, const Lines& index, const Lines& records) {
  switch (access) {
    case Access::none:
      return best<kIndex, Access::none>(index, records);
    case Access::read:
      return best<kIndex, Access::read>(index, records);
    case Access::update:
      return best<kIndex, Access::update>(index, records);
  }
  return 0;
}

}  // namespace

Result<Limit> Limit::create(std::size_t index_bytes, std::size_t record_bytes, Pages pages) {
  auto index = Memory::map(std::max(index_bytes, kLine), pages);
  if (!index) return std::unexpected(index.error());
  auto records = Memory::map(std::max(record_bytes, kLine), pages);
  if (!records) return std::unexpected(records.error());
  return Limit(std::move(*index), std::move(*records));
}

Pages pages_under(std::size_t largest_bytes, Pages obtained) {
  constexpr std::size_t kHugeBytes = std::size_t{2} << 20;
  return largest_bytes < kHugeBytes ? Pages::small : obtained;
}

Pages Limit::pages() const {
  return pages_under(std::max(index_.bytes(), records_.bytes()),
                     std::max(index_.pages(), records_.pages()));
}

double Limit::independent_ns(const Fetches& fetches) const {
  const Lines index(index_, std::min(fetches.index_bytes, index_.bytes()));
  const Lines records(records_, std::min(fetches.record_bytes, records_.bytes()));
  switch (fetches.index) {
    case Access::none:
      return best_with<Access::none>(fetches.records, index, records);
    case Access::read:
      return best_with<Access::read>(fetches.records, index, records);
    case Access::update:
      return best_with<Access::update>(fetches.records, index, records);
  }
  return 0;
}

double Limit::dependent_ns(std::size_t record_bytes) const {
  constexpr std::size_t kSteps = kFetches / 16;
  const Lines lines(records_, std::min(record_bytes, records_.bytes()));
  std::uint64_t at = 1;
  const auto start = SteadyClock::now();
  for (std::size_t i = 0; i < kSteps; ++i) {
    // Makes the next address depend on the word that is read.
    at = scattered(i + (use<Access::read>(lines, at) & 1));
  }
  const auto end = SteadyClock::now();
  asm volatile("" : : "r"(at));
  return std::chrono::duration<double, std::nano>(end - start).count() / kSteps;
}

}  // namespace millrace::bench
