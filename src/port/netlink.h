// Routing netlink (rtnetlink(7)): reads and changes the kernel's interfaces and addresses, by
// libmnl. Linux only.
#pragma once

#include <libmnl/libmnl.h>
#include <linux/rtnetlink.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace millrace {

/// A socket of routing netlink, used by one thread.
class Netlink {
 public:
  Netlink() : socket_(mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC)) {
    if (socket_ != nullptr) mnl_socket_bind(socket_, 0, MNL_SOCKET_AUTOPID);
  }
  ~Netlink() {
    if (socket_ != nullptr) mnl_socket_close(socket_);
  }
  Netlink(const Netlink&) = delete;
  Netlink& operator=(const Netlink&) = delete;

  /// Begins a message in the only send buffer.
  nlmsghdr* begin(std::uint16_t type, std::uint16_t flags) {
    nlmsghdr* const message = mnl_nlmsg_put_header(out_.data());
    message->nlmsg_type = type;
    message->nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
    return message;
  }
  /// Sends the message, and calls `each` for each message of the kernel's reply. Returns 0 or an
  /// errno.
  int ask(nlmsghdr* message, std::function<void(const nlmsghdr*)> each = {}) {
    if (socket_ == nullptr) return errno;
    message->nlmsg_seq = ++sequence_;
    if (mnl_socket_sendto(socket_, message, message->nlmsg_len) < 0) return errno;
    const auto hear = [](const nlmsghdr* one, void* to) {
      const auto& hears = *static_cast<std::function<void(const nlmsghdr*)>*>(to);
      if (hears) hears(one);
      return MNL_CB_OK;
    };
    int more = MNL_CB_OK;
    while (more > MNL_CB_STOP) {
      const auto got = mnl_socket_recvfrom(socket_, in_.data(), in_.size());
      if (got < 0) return errno;
      more = mnl_cb_run(in_.data(), static_cast<std::size_t>(got), sequence_,
                        mnl_socket_get_portid(socket_), hear, &each);
    }
    return more < 0 ? errno : 0;
  }

 private:
  mnl_socket* socket_;
  unsigned sequence_ = 0;
  alignas(nlmsghdr) std::array<char, 1024> out_{};
  alignas(nlmsghdr) std::array<char, 32768> in_{};
};

/// Appends the header that a message's type requires, such as `ifinfomsg`, and returns it.
template <class Family>
Family* put(nlmsghdr* message) {
  return static_cast<Family*>(mnl_nlmsg_put_extra_header(message, sizeof(Family)));
}

}  // namespace millrace
