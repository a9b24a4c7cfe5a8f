// A chain: a function that is made of several functions. A packet is looked up once, however many
// functions there are.
//
// The functions serve originators' packets in order, replies in the reverse order. An entry of a
// connection holds the functions' parts, one behind the other. A function may have no part in a
// connection (`Decision::unconcerned`), as a load balancer in a connection to none of its services.
//
// To the line a chain is a function: the contract of function.h holds for it, and it calls its
// functions as the line would. The exception are functions that judge (`judges`): these are asked
// to open a connection after all others, with its way through the whole chain.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "function/function.h"

namespace millrace {

template <class K>
class ChainFor final : public FunctionFor<K> {
 public:
  using typename FunctionFor<K>::Target;

  explicit ChainFor(std::span<FunctionFor<K>* const> functions);

  Part part() const override { return part_; }
  std::vector<Part> parts() const override;
  bool has_idle_packets() const override {
    return std::ranges::any_of(links_,
                               [](const Link& link) { return link.function->has_idle_packets(); });
  }
  Steered steer(std::span<const K> keys, const Steered& before) const override;
  std::uint64_t screen(Burst& burst, Lane<K>& lane, std::uint64_t unknown) override;
  void open(const Burst& burst, Opening<K>& opening) override;
  Verdict event(Event event, const K& key, const std::byte* state, bool is_proved) override;
  void serve(Burst& burst, std::uint64_t places, const States<K>& states) override;
  bool receives(const K& leaving) const override {
    return std::ranges::any_of(links_,
                               [&](const Link& link) { return link.function->receives(leaving); });
  }
  Target target(const K& key, const std::byte* state) const override;
  void write(const K& key, const std::byte* state, std::byte* image) const override;
  Fate fate(const K& key, const Traversal<K>* traversal, const std::byte* state,
            bool is_answered) const override;
  Verdict recognise_reply(const Burst& burst, unsigned packet, const K& reply_key,
                          K& originator) override;
  std::optional<Target> target_without_entry(const Burst& burst, unsigned packet,
                                             const K& key) override;
  void continue_from(const FunctionFor<K>& other) override;

 private:
  struct Link {
    FunctionFor<K>* function;
    std::size_t offset;        // offset of the function's part in both entries
    std::size_t image_offset;  // offset of the function's image
    Opening<K> opening;        // arguments and result of the last `open`
  };
  using Decision = typename Opening<K>::Decision;

  bool choose_otherwise(const Burst& burst, std::size_t& next);
  bool ask(const Burst& burst, Link& link);
  bool ask_from(const Burst& burst, const Opening<K>& whole, std::size_t next, Verdict& refusal);
  void refuse(Opening<K>& opening, Verdict why);
  Traversal<K> traversal(const K& key, const std::byte* state) const;
  K met_by(std::size_t n, const Opening<K>& whole) const;
  void abandon(Link& link);
  void unprove(std::size_t count, K key, const std::byte* state);
  K left_by(const Link& link) const;
  template <class Each>
  void in_order(std::uint64_t originators, std::uint64_t replies, Each&& each);
  void serve_without_entry(Burst& burst, std::uint64_t places, const States<K>& states);

  std::vector<Link> links_;
  // Places in `links_` in the order of `open`: those of functions that judge are last.
  std::vector<std::size_t> order_;
  std::size_t not_judging_ = 0;  // functions in `order_` that do not judge
  Traversal<K> traversal_;       // of the connection being opened
  Part part_;
};

class Chain final : public Function {
 public:
  /// `functions` must outlive the chain. A line refuses a chain with parts that are too large
  /// together.
  explicit Chain(std::span<Function* const> functions);

  /// True if all functions are stateful.
  bool stateful() const override { return stateful_; }
  bool checks_packets() const override {
    return std::ranges::any_of(functions_, &Function::checks_packets);
  }
  bool needs_entries() const override {
    return std::ranges::any_of(functions_, &Function::needs_entries);
  }
  bool guards_host() const override {
    return std::ranges::any_of(functions_, &Function::guards_host);
  }
  void guard(Burst& burst) override {
    for (Function* const function : functions_) function->guard(burst);
  }
  void guard_errors(Burst& burst) override {
    for (Function* const function : functions_) function->guard_errors(burst);
  }
  void note_copies(const CopiesState& state, Tick now) override {
    for (Function* const function : functions_) function->note_copies(state, now);
  }
  void note_time(Tick now) override {
    for (Function* const function : functions_) function->note_time(now);
  }
  FunctionFor<KeyV4>& v4() override { return v4_; }
  FunctionFor<KeyV6>& v6() override { return v6_; }

 private:
  std::vector<Function*> functions_;
  bool stateful_;
  ChainFor<KeyV4> v4_;
  ChainFor<KeyV6> v6_;
};

}  // namespace millrace
