#include "control/taking_over.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

namespace millrace {
namespace {

std::unexpected<Error> means_nothing() {
  return std::unexpected(
      Error{"the running millrace tells of its connections what makes no sense here"});
}

}  // namespace

TakingOver::TakingOver(Workers& workers, std::shared_ptr<const Owners> owners)
    : workers_(&workers), owners_(std::move(owners)) {}

Result<void> TakingOver::take(std::span<const std::byte> bytes) {
  std::vector<std::byte> joined;
  if (!beginning_.empty()) {
    joined = std::move(beginning_);
    joined.insert(joined.end(), bytes.begin(), bytes.end());
    bytes = joined;
  }
  is_whole_ = false;
  for (;;) {
    if (block_.family == kCarriedRefusal) {
      if (bytes.size() < block_.count) break;
      return std::unexpected(
          Error{"the running millrace goes on: " +
                std::string(reinterpret_cast<const char*>(bytes.data()), block_.count)});
    }
    if (block_.count > 0) {
      const std::size_t used =
          block_.family == 4 ? take_some<KeyV4>(bytes) : take_some<KeyV6>(bytes);
      if (is_wrong_) return means_nothing();
      bytes = bytes.subspan(used);
      if (block_.count > 0) break;
    }
    if (bytes.size() < sizeof(block_)) break;
    std::memcpy(&block_, bytes.data(), sizeof(block_));
    bytes = bytes.subspan(sizeof(block_));
    if (block_.family == 0) {
      is_whole_ = bytes.empty();
      if (!is_whole_) return means_nothing();
      break;
    }
    constexpr std::uint64_t kMostText = 4096;
    if (block_.family == kCarriedRefusal && block_.count <= kMostText) continue;
    if ((block_.family != 4 && block_.family != 6) || block_.worker >= Workers::kMost ||
        block_.count == 0)
      return means_nothing();
  }
  beginning_.assign(bytes.begin(), bytes.end());
  return {};
}

/// Those that have come whole; how many bytes that are.
template <class K>
std::size_t TakingOver::take_some(std::span<const std::byte> bytes) {
  using Carried = CarriedConnection<K>;
  const std::size_t count = std::min<std::uint64_t>(bytes.size() / sizeof(Carried), block_.count);
  for (std::size_t i = 0; i < count && !is_wrong_; ++i) {
    Carried carried;
    std::memcpy(&carried, bytes.data() + i * sizeof(Carried), sizeof(Carried));
    is_wrong_ = !apply(block_.worker, carried);
  }
  block_.count -= count;
  told_ += count;
  return count * sizeof(Carried);
}

/// False: it makes no sense.
template <class K>
bool TakingOver::apply(std::uint32_t worker, const CarriedConnection<K>& carried) {
  const Standing standing = carried.life.standing;
  if (!is_of(standing.state(), carried.key.protocol) || standing.has_ended() ||
      std::cmp_greater(carried.life.idle_ms, std::numeric_limits<std::int32_t>::max()))
    return false;
  auto& [all, pending] = of<K>();
  if (worker >= all.size()) all.resize(worker + 1);
  if (carried.entry >= all[worker].size()) all[worker].resize(carried.entry + std::size_t{1});
  Placed& old = all[worker][carried.entry];
  if (old.line != kNowhere) {
    Line& line = workers_->line(old.line);
    line.forget(std::type_identity<K>(), old.id);
    old = {};
    --connections_;
  }
  if (!pending.empty()) pending.erase({worker, carried.entry});
  // Another entry may still have its keys, which goes later.
  if (carried.is_there != 0 && !place(worker, carried))
    pending.insert({{worker, carried.entry}, carried});
  return true;
}

template <class K>
bool TakingOver::place(std::uint32_t worker, const CarriedConnection<K>& carried) {
  const unsigned line =
      owners_->of(Side::originator, carried.key).value_or(worker % workers_->count());
  const ConnId id = workers_->line(line).resume(carried);
  if (id == ConnId::none) return false;
  of<K>().places[worker][carried.entry] = {line, id};
  ++connections_;
  return true;
}

template <class K>
void TakingOver::place_pending() {
  std::erase_if(of<K>().pending,
                [this](const auto& one) { return this->place(one.first.first, one.second); });
}

Result<void> TakingOver::end() {
  if (!is_whole_)
    return std::unexpected(
        Error{"the running millrace broke off in the middle of its connections"});
  is_whole_ = false;
  place_pending<KeyV4>();
  place_pending<KeyV6>();
  return {};
}

}  // namespace millrace
