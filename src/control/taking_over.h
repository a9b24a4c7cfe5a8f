// Connections of another process become those of workers that do not run yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "line/carried.h"
#include "shard/owners.h"
#include "worker/workers.h"

namespace millrace {

/// Used by one thread, before the workers run.
class TakingOver {
 public:
  /// `workers`, which outlive it, are made with what the other process has offered; `owners` are
  /// theirs.
  TakingOver(Workers& workers, std::shared_ptr<Owners> owners);

  /// Bytes of the stream (carried.h), in pieces of any size. Error (failed): they mean nothing.
  Result<void> take(std::span<const std::byte> bytes);
  /// The stream has ended. Error (failed): in the middle.
  Result<void> end();

  /// Entries that it was told of since it was asked last.
  std::uint64_t told() { return std::exchange(told_, 0); }
  std::uint64_t connections() const { return connections_; }
  /// Connections without a place here, without a backend, or without a function that serves them.
  std::uint64_t left_behind() const {
    return std::get<0>(families_).pending.size() + std::get<1>(families_).pending.size();
  }

 private:
  struct Placed {
    std::uint32_t line = kNowhere;
    ConnId id = ConnId::none;
  };
  static constexpr std::uint32_t kNowhere = 0xffffffff;
  /// A connection as it was told, to be placed later.
  template <class K>
  struct Told {
    CarriedConnection<K> carried;
    std::vector<std::byte> images;
  };
  struct Range {
    std::size_t at;
    std::size_t bytes;
  };
  /// A family's connections.
  template <class K>
  struct Family {
    /// By the other process's worker and entry.
    std::vector<std::vector<Placed>> places;
    /// Those that have none yet.
    std::map<std::pair<std::uint32_t, std::uint32_t>, Told<K>> pending;
    /// Where in `Told::images` those of each own part begin, or `kNoImage`.
    std::vector<std::size_t> images_at;
    std::optional<std::size_t> image_bytes;  ///< in a record; none before parts were told
    /// Where in `Told::images` those of functions stand that this process does not have.
    std::vector<Range> strangers;
  };
  static constexpr std::size_t kNoImage = SIZE_MAX;
  static constexpr std::size_t kMostImageBytes = 4096;

  std::size_t take_parts(std::span<const std::byte> bytes);
  template <class K>
  void find_images();
  template <class K>
  std::size_t take_some(std::span<const std::byte> bytes);
  template <class K>
  bool apply(std::uint32_t worker, const CarriedConnection<K>& carried,
             std::span<const std::byte> images);
  template <class K>
  bool place(std::uint32_t worker, const CarriedConnection<K>& carried,
             std::span<const std::byte> images);
  /// True if a function that this process does not have serves the connection with these images.
  template <class K>
  bool needs_stranger(std::span<const std::byte> images);
  template <class K>
  void place_pending();
  template <class K>
  Family<K>& of() {
    return std::get<Family<K>>(families_);
  }

  Workers* workers_;
  std::shared_ptr<Owners> owners_;
  CarriedBlock block_;                // that has begun
  std::vector<std::byte> beginning_;  // of something that has not come whole
  bool is_whole_ = false;
  bool is_wrong_ = false;
  std::optional<Error> refused_;
  std::vector<CarriedPart> told_parts_;
  std::vector<CarriedPart> coming_parts_;     // of a block that has not come whole
  std::vector<const std::byte*> own_images_;  // of the connection that is placed
  std::tuple<Family<KeyV4>, Family<KeyV6>> families_;
  std::uint64_t connections_ = 0;
  std::uint64_t told_ = 0;
};

}  // namespace millrace
