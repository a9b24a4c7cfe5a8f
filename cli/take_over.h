// Taking over from a running millrace, by its control socket: what the process says that is to go
// on in its place.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "control/offer.h"
#include "control/taking_over.h"
#include "live/live.h"

namespace millrace::cli {

/// Used by one thread. Until the other one ends, each step fails once this process is
/// `interrupted`.
class TakeOver {
 public:
  /// Asks who listens at `socket`; null where nobody does. Errors (failed): it refuses, does not
  /// answer, or may not be asked.
  static Result<std::unique_ptr<TakeOver>> begin(const std::string& socket);
  /// The other one goes on where it has not ended, at once.
  ~TakeOver();
  TakeOver(const TakeOver&) = delete;
  TakeOver& operator=(const TakeOver&) = delete;

  const Offer& offer() const { return offer_; }

  /// Has `workers`, which are made with what `offer()` says, know the running
  /// millrace's connections; it forwards meanwhile. Errors (failed): it does not tell, or it makes
  /// no sense.
  Result<void> start(Workers& workers, std::shared_ptr<Owners> owners);
  /// It forwards no more, and all its connections are known.
  Result<void> stop_the_other();
  /// It ends. Error (failed): it goes on instead.
  Result<void> let_the_other_end();
  /// Its devices are nobody's any more, unless the kernel takes its time. Error (failed): this
  /// process is interrupted.
  Result<void> wait_for_its_end() const;
  /// The other process, with all that it had. False also where it cannot be seen from here.
  bool is_gone(std::chrono::milliseconds within) const;

  /// What is known of neighbours is known here, too.
  void inherit_neighbours(Live& live) const;
  /// So are interfaces' settings, once the other one has ended.
  void inherit_settings(Live& live);

  std::uint64_t connections() const { return taking_over_->connections(); }
  std::uint64_t left_behind() const { return taking_over_->left_behind(); }

 private:
  TakeOver(std::string socket, int process) : socket_(std::move(socket)), process_(process) {}

  using Receive = std::function<bool(std::span<const std::byte>)>;
  Result<std::string> ask(const std::string& path, const Receive& receive = {});
  Result<void> take_all(bool last);

  std::string socket_;
  int process_;  // a handle, readable once it has ended; -1 where it cannot be seen
  Offer offer_;
  Workers* workers_ = nullptr;  // from `start` on
  std::unique_ptr<TakingOver> taking_over_;
  bool has_answered_ = false;  // when it was asked last
  bool has_ended_ = false;
};

}  // namespace millrace::cli
