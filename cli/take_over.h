// Taking over from a running millrace, by its control socket: what the process says that is to go
// on in its place.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "worker/live.h"
#include "worker/offer.h"
#include "worker/taking_over.h"

namespace millrace::cli {

/// Used by one thread.
class TakeOver {
 public:
  /// Asks who listens at `socket`; null where nobody does. Error (failed): it refuses, or does not
  /// answer.
  static Result<std::unique_ptr<TakeOver>> begin(const std::string& socket);

  const Offer& offer() const { return offer_; }

  /// Has `workers`, which are made for services `with_those_of(offer())`, know the running
  /// millrace's connections; it forwards meanwhile. Errors (failed): it does not tell, or it makes
  /// no sense.
  Result<void> start(Workers& workers, std::shared_ptr<const Owners> owners);
  /// It forwards no more, and all its connections are known.
  Result<void> stop_the_other();
  /// It ends. Error (failed): it goes on instead.
  Result<void> let_the_other_end();

  /// What is known of neighbours and of interfaces' settings is known here, too.
  void inherit(Live& live) const;

  std::uint64_t connections() const { return taking_over_->connections(); }
  std::uint64_t left_behind() const { return taking_over_->left_behind(); }

 private:
  explicit TakeOver(std::string socket) : socket_(std::move(socket)) {}

  using Receive = std::function<bool(std::span<const std::byte>)>;
  Result<std::string> ask(const std::string& path, const Receive& receive = {});
  Result<void> take_all(bool last);

  std::string socket_;
  Offer offer_;
  std::unique_ptr<TakingOver> taking_over_;
  enum class Met : std::uint8_t { nobody, silence, somebody };
  Met met_ = Met::nobody;  // when it was asked last
};

}  // namespace millrace::cli
