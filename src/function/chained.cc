#include "function/chained.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "core/json.h"
#include "function/chain.h"
#include "function/command_done.h"
#include "function/event_log.h"
#include "function/kind.h"

namespace millrace {
namespace {

using Kinds = std::vector<const FunctionKind*>;

// --- settings

class ChainSettings final : public FunctionSettings {
 public:
  explicit ChainSettings(std::vector<std::shared_ptr<const FunctionSettings>> functions);

  const FunctionKind& kind() const override { return kind_; }

  FunctionFacts facts() const override {
    FunctionFacts all;
    for (const auto& one : functions_) {
      FunctionFacts of = one->facts();
      std::ranges::move(of.counts, std::back_inserter(all.counts));
      if (all.missing.empty()) all.missing = of.missing;
      if (all.counts_nothing.empty()) all.counts_nothing = of.counts_nothing;
      if (all.drops_unmatched.empty()) all.drops_unmatched = of.drops_unmatched;
      if (all.loses_replies.empty()) all.loses_replies = of.loses_replies;
      all.needs_grants |= of.needs_grants;
      all.has_replies |= of.has_replies;
      all.guards_host |= of.guards_host;
      std::ranges::move(of.timeouts, std::back_inserter(all.timeouts));
    }
    return all;
  }

  std::string agreement() const override {
    std::string all;
    for (const auto& one : functions_) all += one->agreement();
    return all;
  }
  std::vector<std::string> unchangeable(const FunctionSettings& is) const override {
    const auto& other = dynamic_cast<const ChainSettings&>(is);
    std::vector<std::string> all;
    for (std::size_t n = 0; n < functions_.size(); ++n)
      std::ranges::move(functions_[n]->unchangeable(*other.functions_[n]), std::back_inserter(all));
    return all;
  }

  void append_doubts(const Surroundings& around, std::vector<std::string>& all) const override {
    for (const auto& one : functions_) one->append_doubts(around, all);
  }

  void tell(HostAddresses<AddressV4>& v4, HostAddresses<AddressV6>& v6) const override {
    for (const auto& one : functions_) one->tell(v4, v6);
  }

  const std::vector<std::shared_ptr<const FunctionSettings>>& functions() const {
    return functions_;
  }

 private:
  std::vector<std::shared_ptr<const FunctionSettings>> functions_;
  const FunctionKind& kind_;
};

// --- view

class ChainView final : public FunctionView {
 public:
  /// `views`, `kinds`: of each function, in order. `chain` is any worker's chain, from which the
  /// parts are read; null if no worker has one yet.
  ChainView(std::vector<std::shared_ptr<const FunctionView>> views, Kinds kinds, const Chain* chain)
      : views_(std::move(views)), kinds_(std::move(kinds)) {
    for (const bool rewrites : {true, false}) {
      for (std::size_t n = 0; n < views_.size(); ++n) {
        if ((kinds_[n]->rewrites != Rewrites::nothing) == rewrites) order_.push_back(n);
      }
    }
    if (chain == nullptr) return;  // no worker serves, so there are no connections
    parts_v4_ = chain->family<KeyV4>().parts();
    parts_v6_ = chain->family<KeyV6>().parts();
  }

  /// Joins the explanations of the functions that handle the packet; those of functions that
  /// rewrite packets come first, as they decide for the others. An explanation which only says
  /// that the packet is forwarded unchanged is left out if another function handles the packet. The
  /// first function that drops the packet is the only one that explains it.
  Explained explain(const AnyKey& arrived, const Flow* connection, bool) const override {
    Explained all;
    AnyKey key = arrived;
    bool is_dropped = false;
    bool is_rewritten = false;
    for (const std::size_t n : order_) {
      std::optional<Flow> own;
      if (connection != nullptr) own.emplace(own_of(*connection, n));
      Explained one = views_[n]->explain(key, own ? &*own : nullptr, is_rewritten);
      std::ranges::move(one.names, std::back_inserter(all.names));
      if (is_dropped || !one.side) {
        if (all.why.empty()) all.why = std::move(one.why);
        continue;
      }
      if (all.side && one.changes_nothing) continue;
      is_dropped = is_drop(one.verdict);
      const Rewrites rewrites = kinds_[n]->rewrites;
      const bool goes_on = one.side == Side::originator && !is_dropped;
      is_rewritten |= rewrites != Rewrites::nothing && goes_on && !one.keeps_destination;
      if (connection == nullptr && goes_on && rewrites == Rewrites::destinations && one.sent_to)
        send(key, *one.sent_to);
      if (!all.side || is_dropped || all.changes_nothing) {
        all.why = std::move(one.why);
      } else {
        all.why += "; " + one.why;
      }
      all.side = one.side;
      all.verdict = one.verdict;
      all.changes_nothing = one.changes_nothing;
      if (one.sent_to) all.sent_to = one.sent_to;
    }
    return all;
  }

  void append_names(std::string& text, const Flow& connection) const override {
    for (std::size_t n = 0; n < views_.size(); ++n)
      views_[n]->append_names(text, own_of(connection, n));
  }

 private:
  /// Gives the key the destination that a function has chosen. The port may be another one.
  static void send(AnyKey& key, const AnyAddress& to) {
    std::visit([&to]<class K>(K& of) { of.destination = std::get<typename K::Address>(to); }, key);
  }

  /// Returns the connection with the image that function `n` has written.
  Flow own_of(const Flow& connection, std::size_t n) const {
    const auto& parts = std::holds_alternative<KeyV4>(connection.key) ? parts_v4_ : parts_v6_;
    const std::byte* image = connection.image;
    for (std::size_t before = 0; before < n; ++before) image += parts[before].image_bytes;
    return {connection.key, connection.translated, image};
  }

  std::vector<std::shared_ptr<const FunctionView>> views_;
  const Kinds kinds_;
  std::vector<std::size_t> order_;  // places of views in the order in which they explain
  std::vector<Part> parts_v4_;
  std::vector<Part> parts_v6_;
};

// --- deployment

class ChainDeployment final : public FunctionDeployment {
 public:
  ChainDeployment(std::vector<std::unique_ptr<FunctionDeployment>> functions, Kinds kinds,
                  std::shared_ptr<const ChainSettings> settings, unsigned workers)
      : functions_(std::move(functions)),
        kinds_(std::move(kinds)),
        settings_(std::move(settings)),
        all_(workers) {}

  static Result<std::unique_ptr<FunctionDeployment>> deploy(
      std::shared_ptr<const FunctionSettings> settings, const FunctionRun& run) {
    auto chain = std::static_pointer_cast<const ChainSettings>(std::move(settings));
    std::vector<std::unique_ptr<FunctionDeployment>> functions;
    Kinds kinds;
    for (const auto& one : chain->functions()) {
      FunctionRun own = run;
      own.others_rewrite = std::ranges::any_of(chain->functions(), [&one](const auto& other) {
        return other != one && other->kind().rewrites != Rewrites::nothing;
      });
      auto deployment = one->kind().deploy(one, own);
      if (!deployment) return deployment;
      functions.push_back(std::move(*deployment));
      kinds.push_back(&one->kind());
    }
    return std::make_unique<ChainDeployment>(std::move(functions), std::move(kinds),
                                             std::move(chain), run.workers);
  }

  Function& make(unsigned worker) override {
    std::vector<Function*> functions;
    for (const auto& one : functions_) functions.push_back(&one->make(worker));
    all_[worker] = std::make_unique<Chain>(functions);
    return *all_[worker];
  }

  /// Updates the functions. If one returns an error, those that were updated before it get their
  /// old settings back. If any function asks for a review, all connections are reviewed: a
  /// connection in which a function had no part may concern that function now.
  Result<Review> update(std::shared_ptr<const FunctionSettings> settings, const FunctionRun& run,
                        const OnEachWorker& on_each) override {
    Review review = Review::none;
    const auto chain = std::static_pointer_cast<const ChainSettings>(std::move(settings));
    std::vector<std::size_t> order;
    for (const bool can_undo : {true, false}) {
      for (std::size_t n = 0; n < functions_.size(); ++n)
        if (functions_[n]->can_undo_update() == can_undo) order.push_back(n);
    }
    for (auto at = order.begin(); at != order.end(); ++at) {
      const auto one = functions_[*at]->update(chain->functions()[*at], run, on_each);
      if (one && *one != Review::none) review = Review::all;
      if (one) continue;
      while (at != order.begin()) {
        --at;
        static_cast<void>(functions_[*at]->update(settings_->functions()[*at], run, on_each));
      }
      return one;
    }
    settings_ = chain;
    return review;
  }

  std::shared_ptr<const FunctionView> view() const override {
    std::vector<std::shared_ptr<const FunctionView>> views;
    for (const auto& one : functions_) views.push_back(one->view());
    return std::make_shared<const ChainView>(std::move(views), kinds_, all_.front().get());
  }

  Json statistics() const override {
    Json all = Json::object();
    for (const auto& one : functions_) all.update(one->statistics());
    return all;
  }
  std::string table() const override {
    std::string all;
    for (const auto& one : functions_) all += one->table();
    return all;
  }

  CommandResult<CommandDone> command(std::string_view path, Parameters given,
                                     const OnEachWorker& on_each) override {
    for (std::size_t n = 0; n < functions_.size(); ++n) {
      if (has_command(n, path)) return functions_[n]->command(path, given, on_each);
    }
    return FunctionDeployment::command(path, given, on_each);
  }
  std::unique_ptr<LogReader> log(std::string_view path, bool only_new) const override {
    for (std::size_t n = 0; n < functions_.size(); ++n) {
      if (has_command(n, path)) return functions_[n]->log(path, only_new);
    }
    return nullptr;
  }

  std::vector<std::string> alarms() const override {
    std::vector<std::string> all;
    for (const auto& one : functions_) std::ranges::move(one->alarms(), std::back_inserter(all));
    return all;
  }

  bool may_give() const override {
    return std::ranges::all_of(functions_, [](const auto& one) { return one->may_give(); });
  }
  bool tell_first(Json& to, const OnEachWorker& on_each) const override {
    return std::ranges::all_of(functions_,
                               [&](const auto& one) { return one->tell_first(to, on_each); });
  }
  void tell_last(Json& to, const OnEachWorker& on_each) const override {
    for (const auto& one : functions_) one->tell_last(to, on_each);
  }
  void take_last(const Json* said) override {
    for (const auto& one : functions_) one->take_last(said);
  }

  Result<void> check_invariants() const override {
    for (const auto& one : functions_) {
      if (auto ok = one->check_invariants(); !ok) return ok;
    }
    return {};
  }

 private:
  bool has_command(std::size_t function, std::string_view path) const {
    const auto& commands = kinds_[function]->commands;
    return std::ranges::find(commands, path, &FunctionCommand::path) != commands.end();
  }

  std::vector<std::unique_ptr<FunctionDeployment>> functions_;
  Kinds kinds_;
  std::shared_ptr<const ChainSettings> settings_;  // the settings in use
  std::vector<std::unique_ptr<Chain>> all_;
};

// --- kinds

/// The kind of a chain, which lives as long as the process.
struct ChainKind {
  explicit ChainKind(const Kinds& kinds) {
    auto rewrites = Rewrites::nothing;
    for (const FunctionKind* const kind : kinds) {
      rewrites = std::max(rewrites, kind->rewrites);
      name.append(name.empty() ? "" : ", ").append(kind->name);
      std::ranges::copy(kind->commands, std::back_inserter(commands));
      std::ranges::copy(kind->telemetry, std::back_inserter(telemetry));
    }
    is = {.name = name,
          .summary = {},
          .rewrites = rewrites,
          .keys = {},
          .commands = commands,
          .telemetry = telemetry,
          .defaults = nullptr,
          .reader = nullptr,
          .deploy = ChainDeployment::deploy};
  }

  std::string name;
  std::vector<FunctionCommand> commands;
  std::vector<FunctionTelemetry> telemetry;
  FunctionKind is;
};

const FunctionKind& kind_of(const std::vector<std::shared_ptr<const FunctionSettings>>& functions) {
  static std::mutex mutex;
  static std::map<Kinds, std::unique_ptr<const ChainKind>> known;
  Kinds kinds;
  for (const auto& one : functions) kinds.push_back(&one->kind());
  const std::lock_guard guard(mutex);
  auto& kind = known[kinds];
  if (kind == nullptr) kind = std::make_unique<const ChainKind>(kinds);
  return kind->is;
}

ChainSettings::ChainSettings(std::vector<std::shared_ptr<const FunctionSettings>> functions)
    : functions_(std::move(functions)), kind_(kind_of(functions_)) {}

}  // namespace

std::shared_ptr<const FunctionSettings> chained(
    std::vector<std::shared_ptr<const FunctionSettings>> functions) {
  if (functions.size() == 1) return std::move(functions.front());
  return std::make_shared<const ChainSettings>(std::move(functions));
}

}  // namespace millrace
