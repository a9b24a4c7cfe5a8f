// An interface of the kernel's that packets come through: what it is like, and keeping the kernel's
// own stack from it meanwhile. Linux only.
//
// Made, asked and destroyed by one thread, in the network namespace of the interface.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/mac.h"
#include "millrace/types.h"

namespace millrace {

class KernelInterface {
 public:
  /// Takes the interface for this process until it is destroyed. Errors say what is wrong with it
  /// and what to do: it is not there (unreadable), this process may not use it (unreadable), it is
  /// down, carries addresses that the kernel would answer for, or another millrace has it (failed).
  static Result<KernelInterface> take(const std::string& name);

  KernelInterface(KernelInterface&& other) noexcept;
  KernelInterface& operator=(KernelInterface&&) = delete;
  /// Gives it back as it was.
  ~KernelInterface();

  const std::string& name() const { return name_; }
  const Mac& mac() const { return mac_; }
  unsigned mtu() const { return mtu_; }
  /// Receive queues that it has.
  unsigned queues() const { return queues_; }
  /// It is there, up, and has a carrier: now. Any thread.
  bool is_running() const;

  /// Has the kernel neither join nor split packets on their way to us, nor leave their checksums to
  /// hardware, as far as it lets us; and keeps its own stack from forwarding what we forward.
  void fence();
  /// Has the other end of a pair of virtual interfaces (veth), which may be in another namespace,
  /// send no packets larger than its MTU: it must not, once a program for XDP is attached at this
  /// end. Ours lets everything pass.
  void refuse_large_packets();

 private:
  /// A setting to be restored: an offload by its ethtool command, or a file of sysctl's.
  struct Was {
    std::uint32_t command = 0;
    std::string file;
    std::string value;
  };

  explicit KernelInterface(std::string name) : name_(std::move(name)) {}
  void turn_off(std::uint32_t get, std::uint32_t set);
  void write_setting(const std::string& file, const std::string& value);

  std::string name_;
  Mac mac_;
  unsigned mtu_ = 0;
  unsigned queues_ = 1;
  int lock_ = -1;
  int program_ = -1;  // its attachment
  std::vector<Was> was_;
};

}  // namespace millrace
