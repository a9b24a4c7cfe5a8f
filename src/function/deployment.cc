#include "function/deployment.h"

#include "core/json.h"
#include "function/command_done.h"
#include "function/event_log.h"

namespace millrace {

Explained FunctionView::explain(const AnyKey& key, const Flow* connection, bool) const {
  Explained out{.side = Side::originator, .verdict = Verdict::tracked, .changes_nothing = true};
  if (connection == nullptr) {
    out.why = "it has no connection yet, and is forwarded unchanged";
    return out;
  }
  if (key != connection->key) out.side = Side::reply;
  out.why = "it belongs to a connection whose packets are forwarded unchanged";
  return out;
}

std::shared_ptr<const FunctionView> FunctionDeployment::view() const {
  static const auto plain = std::make_shared<const FunctionView>();
  return plain;
}

Json FunctionDeployment::statistics() const { return Json::object(); }

CommandResult<CommandDone> FunctionDeployment::command(std::string_view path, Parameters,
                                                       const OnEachWorker&) {
  return std::unexpected(
      Refusal{Refusal::Kind::absent, "there is no command " + std::string(path)});
}

std::unique_ptr<LogReader> FunctionDeployment::log(std::string_view, bool) const { return nullptr; }

}  // namespace millrace
