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
      Error{"the running millrace sent a connection record that this version cannot read"});
}

}  // namespace

TakingOver::TakingOver(Workers& workers, std::shared_ptr<Owners> owners)
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
      const std::size_t used = block_.family == kCarriedParts ? take_parts(bytes)
                               : block_.family == 4           ? take_some<KeyV4>(bytes)
                                                              : take_some<KeyV6>(bytes);
      if (refused_) return std::unexpected(*refused_);
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
    constexpr std::uint64_t kMostParts = 64;
    if (block_.family == kCarriedRefusal && block_.count <= kMostText) continue;
    if (block_.family == kCarriedParts && block_.count > 0 && block_.count <= kMostParts) continue;
    if ((block_.family != 4 && block_.family != 6) || block_.worker >= Workers::kMost ||
        block_.count == 0)
      return means_nothing();
  }
  beginning_.assign(bytes.begin(), bytes.end());
  return {};
}

/// Reads the parts that have arrived whole, and returns their size in bytes. Once all parts have
/// arrived, finds where the images of this process's functions lie in a record.
std::size_t TakingOver::take_parts(std::span<const std::byte> bytes) {
  const std::size_t count =
      std::min<std::uint64_t>(bytes.size() / sizeof(CarriedPart), block_.count);
  for (std::size_t i = 0; i < count; ++i)
    std::memcpy(&coming_parts_.emplace_back(), &bytes[i * sizeof(CarriedPart)],
                sizeof(CarriedPart));
  block_.count -= count;
  if (block_.count > 0) return count * sizeof(CarriedPart);
  // Connections in `pending` have images in the order of the first stream's parts, so later streams
  // must have the same parts.
  is_wrong_ |= !told_parts_.empty() && told_parts_ != coming_parts_;
  told_parts_ = std::exchange(coming_parts_, {});
  find_layouts();
  return count * sizeof(CarriedPart);
}

/// Finds where the images of this process's functions lie among a record's images.
void TakingOver::find_layouts() {
  const auto own = workers_->line(0).carried_parts();
  auto found = CarriedLayouts::of(told_parts_, own);
  if (found) {
    layouts_ = std::move(*found);
    of<KeyV4>().images.resize(layouts_->v4.parts());
    of<KeyV6>().images.resize(layouts_->v6.parts());
    return;
  }
  const Unreadable& why = found.error();
  is_wrong_ |= why.function.empty();
  if (!is_wrong_)
    refused_ = Error{"the running millrace sends the state of its function " + why.function +
                     " in version " + std::to_string(why.theirs) + ", and this one reads version " +
                     std::to_string(why.ours) +
                     ": end the running one, and start this one without --take-over"};
}

/// Applies the records that have arrived whole, and returns their size in bytes.
template <class K>
std::size_t TakingOver::take_some(std::span<const std::byte> bytes) {
  is_wrong_ |= !layouts_;  // no parts were received
  if (is_wrong_) return 0;
  const CarriedLayout& layout = of_family<K>(layouts_->v4, layouts_->v6);
  const std::size_t each = layout.record_bytes();
  const std::size_t count = std::min<std::uint64_t>(bytes.size() / each, block_.count);
  for (std::size_t i = 0; i < count && !is_wrong_; ++i) {
    const auto record = bytes.subspan(i * each, each);
    CarriedConnection<K> carried;
    std::memcpy(&carried, record.data(), std::min(sizeof(carried), layout.head_bytes()));
    is_wrong_ = !apply(block_.worker, carried, record.subspan(layout.head_bytes()));
  }
  block_.count -= count;
  told_ += count;
  return count * each;
}

/// Applies a record. False: the record is invalid.
template <class K>
bool TakingOver::apply(std::uint32_t worker, const CarriedConnection<K>& carried,
                       std::span<const std::byte> images) {
  const Standing standing = carried.life.standing;
  if (!is_of(standing.state(), carried.key.protocol) || standing.has_ended() ||
      std::cmp_greater(carried.life.idle_ms, std::numeric_limits<std::int32_t>::max()))
    return false;
  auto& all = of<K>().places;
  auto& pending = of<K>().pending;
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
  // `place` also fails while another connection has one of the keys; a later record may end that
  // connection.
  if (carried.is_there != 0 && !place(worker, carried, images))
    pending.insert({{worker, carried.entry}, {carried, {images.begin(), images.end()}}});
  return true;
}

template <class K>
bool TakingOver::place(std::uint32_t worker, const CarriedConnection<K>& carried,
                       std::span<const std::byte> images) {
  auto& own_images = of<K>().images;
  if (!of_family<K>(layouts_->v4, layouts_->v6).map(images, own_images_, own_images)) return false;
  const auto shard =
      owners_->shard_of(workers_->steering().steer(std::span(&carried.key, 1)), carried.key);
  const unsigned line = shard ? owners_->worker_of(*shard) : worker % workers_->count();
  const ConnId id = workers_->line(line).resume(carried, own_images, shard.value_or(0));
  if (id == ConnId::none) return false;
  of<K>().places[worker][carried.entry] = {line, id};
  ++connections_;
  return true;
}

template <class K>
void TakingOver::place_pending() {
  std::erase_if(of<K>().pending, [this](const auto& one) {
    const auto& [where, told] = one;
    return this->place(where.first, told.carried, told.images);
  });
}

Result<void> TakingOver::end() {
  if (!is_whole_)
    return std::unexpected(
        Error{"the running millrace sent only a part of its connections: try again"});
  end_early();
  return {};
}

void TakingOver::end_early() {
  is_whole_ = false;
  place_pending<KeyV4>();
  place_pending<KeyV6>();
}

}  // namespace millrace
