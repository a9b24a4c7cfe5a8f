#include "port/ethtool_features.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <vector>

namespace millrace {
namespace {

/// A request of ethtool's: a structure with an array behind it.
template <class Head>
class Request {
 public:
  explicit Request(std::uint32_t command, std::size_t bytes_behind = 0)
      : words_((sizeof(Head) + bytes_behind + 7) / 8) {
    head()->cmd = command;
  }
  Head* head() { return reinterpret_cast<Head*>(words_.data()); }
  /// False, with `errno` set: the kernel refuses.
  bool make(const std::string& interface) {
    const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket < 0) return false;
    ifreq request{};
    std::memcpy(request.ifr_name, interface.c_str(),
                std::min<std::size_t>(interface.size(), IFNAMSIZ - 1));
    request.ifr_data = reinterpret_cast<char*>(head());
    const bool done = ::ioctl(socket, SIOCETHTOOL, &request) >= 0;
    const int error = errno;
    ::close(socket);
    errno = error;
    return done;
  }

 private:
  std::vector<std::uint64_t> words_;
};

struct Place {
  std::size_t number;    ///< the feature's
  std::uint32_t blocks;  ///< words of 32 features that the kernel has
  std::size_t block() const { return number / 32; }
  std::uint32_t bit() const { return std::uint32_t{1} << number % 32; }
};

/// Returns the feature's place among those of the kernel; none if the kernel does not know it.
std::optional<Place> place_of(const std::string& interface, std::string_view feature) {
  Request<ethtool_sset_info> sets(ETHTOOL_GSSET_INFO, sizeof(std::uint32_t));
  sets.head()->sset_mask = std::uint64_t{1} << ETH_SS_FEATURES;
  if (!sets.make(interface) || sets.head()->sset_mask == 0) return std::nullopt;
  const std::uint32_t count = sets.head()->data[0];
  Request<ethtool_gstrings> names(ETHTOOL_GSTRINGS, std::size_t{count} * ETH_GSTRING_LEN);
  names.head()->string_set = ETH_SS_FEATURES;
  names.head()->len = count;
  if (!names.make(interface)) return std::nullopt;
  for (std::size_t n = 0; n < count; ++n) {
    const auto* name = reinterpret_cast<const char*>(names.head()->data) + n * ETH_GSTRING_LEN;
    if (feature == std::string_view(name, ::strnlen(name, ETH_GSTRING_LEN)))
      return Place{n, (count + 31) / 32};
  }
  return std::nullopt;
}

}  // namespace

FeatureState feature_state(const std::string& interface, std::string_view feature) {
  const auto place = place_of(interface, feature);
  if (!place) return FeatureState::off;
  Request<ethtool_gfeatures> all(ETHTOOL_GFEATURES,
                                 place->blocks * sizeof(ethtool_get_features_block));
  all.head()->size = place->blocks;
  if (!all.make(interface)) return FeatureState::off;
  const ethtool_get_features_block& block = all.head()->features[place->block()];
  if ((block.active & place->bit()) == 0) return FeatureState::off;
  const bool may_change =
      (block.available & place->bit()) != 0 && (block.never_changed & place->bit()) == 0;
  return may_change ? FeatureState::on : FeatureState::fixed;
}

bool set_feature(const std::string& interface, std::string_view feature, bool on) {
  const auto place = place_of(interface, feature);
  if (!place) {
    errno = EOPNOTSUPP;
    return false;
  }
  Request<ethtool_sfeatures> change(ETHTOOL_SFEATURES,
                                    place->blocks * sizeof(ethtool_set_features_block));
  change.head()->size = place->blocks;
  change.head()->features[place->block()] = {.valid = place->bit(),
                                             .requested = on ? place->bit() : 0};
  return change.make(interface);
}

}  // namespace millrace
