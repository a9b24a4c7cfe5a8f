// Settings, reader and deployment of a function without keys in the configuration, and without data
// common to all workers.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "function/kind.h"
#include "function/reader.h"

namespace millrace {

/// Settings without content. `kind_of` returns the kind.
template <const FunctionKind& (*kind_of)()>
class PlainSettings final : public FunctionSettings {
 public:
  const FunctionKind& kind() const override { return kind_of(); }

  static std::shared_ptr<const FunctionSettings> make() {
    return std::make_shared<const PlainSettings>();
  }
};

template <const FunctionKind& (*kind_of)()>
class PlainReader final : public SettingsReader {
 public:
  void read(std::string_view, const config::Context&, const toml::node&) override {}
  std::shared_ptr<const FunctionSettings> finish(config::Problems&, const Surroundings&) override {
    return PlainSettings<kind_of>::make();
  }

  static std::unique_ptr<SettingsReader> make() { return std::make_unique<PlainReader>(); }
};

/// Makes an `F` for each worker, from a `FunctionRun`.
template <class F>
class PlainDeployment final : public FunctionDeployment {
 public:
  explicit PlainDeployment(const FunctionRun& run) : run_(run), all_(run.workers) {}

  Function& make(unsigned worker) override {
    all_[worker] = std::make_unique<F>(run_);
    return *all_[worker];
  }
  Result<Review> update(std::shared_ptr<const FunctionSettings>, const FunctionRun&,
                        const OnEachWorker&) override {
    return Review::none;
  }

  /// Implements `FunctionKind::deploy`.
  static Result<std::unique_ptr<FunctionDeployment>> deploy(std::shared_ptr<const FunctionSettings>,
                                                            const FunctionRun& run) {
    return std::make_unique<PlainDeployment>(run);
  }

 private:
  FunctionRun run_;
  std::vector<std::unique_ptr<F>> all_;
};

}  // namespace millrace
