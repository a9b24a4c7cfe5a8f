// Opens the connections of another process in this process's workers, before the workers run.
#pragma once

#include <array>
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
#include "line/carried_layout.h"
#include "shard/owners.h"
#include "worker/workers.h"

namespace millrace {

/// Reads streams of connections (carried.h), one after another. One thread uses the object, before
/// the workers run.
class TakingOver {
 public:
  /// `workers` must have been made from the other process's offer, and must outlive the object;
  /// `owners` must be those of these workers.
  TakingOver(Workers& workers, std::shared_ptr<Owners> owners);

  /// Reads the next bytes of the stream (carried.h), in pieces of any size. Errors: failed (the
  /// stream is malformed or cannot be read by this version, or the other process refuses).
  Result<void> take(std::span<const std::byte> bytes);
  /// Ends a stream, and opens connections that could not be opened before, if that is possible now.
  /// Errors: failed (the stream was cut off).
  Result<void> end();
  /// Ends the last stream, whether or not it has arrived whole: no other one follows.
  void end_early();

  /// Returns the number of records received since the last call.
  std::uint64_t told() { return std::exchange(told_, 0); }
  std::uint64_t connections() const { return connections_; }
  /// Returns the number of connections that could not be opened, for lack of room, of a backend, or
  /// of a function that this process does not have, or because another connection has one of their
  /// keys.
  std::uint64_t left_behind() const {
    return std::get<0>(families_).pending.size() + std::get<1>(families_).pending.size();
  }

 private:
  struct Placed {
    std::uint32_t line = kNowhere;
    ConnId id = ConnId::none;
  };
  static constexpr std::uint32_t kNowhere = 0xffffffff;
  /// A received connection that could not be opened yet.
  template <class K>
  struct Told {
    CarriedConnection<K> carried;
    std::vector<std::byte> images;
  };
  /// The connections of one family.
  template <class K>
  struct Family {
    /// The place of each opened connection in this process, indexed by the other process's worker
    /// and entry.
    std::vector<std::vector<Placed>> places;
    /// Connections that could not be opened yet, by the other process's worker and entry.
    std::map<std::pair<std::uint32_t, std::uint32_t>, Told<K>> pending;
    std::vector<const std::byte*> images;  // of the connection being opened
  };

  std::size_t take_parts(std::span<const std::byte> bytes);
  void find_layouts();
  template <class K>
  std::size_t take_some(std::span<const std::byte> bytes);
  template <class K>
  bool apply(std::uint32_t worker, const CarriedConnection<K>& carried,
             std::span<const std::byte> images);
  template <class K>
  bool place(std::uint32_t worker, const CarriedConnection<K>& carried,
             std::span<const std::byte> images);
  template <class K>
  void place_pending();
  template <class K>
  Family<K>& of() {
    return std::get<Family<K>>(families_);
  }

  Workers* workers_;
  std::shared_ptr<Owners> owners_;
  CarriedBlock block_;                // the block being read
  std::vector<std::byte> beginning_;  // bytes of an incomplete header or record
  bool is_whole_ = false;
  bool is_wrong_ = false;
  std::optional<Error> refused_;
  std::vector<CarriedPart> told_parts_;
  std::vector<CarriedPart> coming_parts_;  // parts of an incomplete block
  std::optional<CarriedLayouts> layouts_;  // none before the parts have arrived
  std::array<std::byte, Part::kMost> own_images_{};
  std::tuple<Family<KeyV4>, Family<KeyV6>> families_;
  std::uint64_t connections_ = 0;
  std::uint64_t told_ = 0;
};

}  // namespace millrace
