// Requests about the other server of a pair.
#include "control/control.h"
#include "function/deployment.h"
#include "worker/copies.h"

namespace millrace {
namespace {

std::unexpected<Refusal> no_pair() {
  return std::unexpected(
      Refusal{Refusal::Kind::absent, "this millrace is alone: the configuration has no [pair]"});
}

}  // namespace

CommandResult<Json> Control::pair_status() {
  const Copies* const copies = live_->copies();
  if (copies == nullptr || copies->is_cluster()) return no_pair();
  const bool gives = workers_->function().may_give();
  const Copies::Status is = copies->status();
  const bool is_whole = is.is_in_sync || is.assignment.role == CopyRole::master;
  Json json{{"number", copies->number()},
            {"active", is.is_active},
            {"role", to_string(is.assignment.role)},
            {"epoch", is.assignment.epoch},
            {"shards", copies->shards()},
            {"shards_in_sync", copies->shards_in_sync()},
            {"in_sync", is.is_in_sync},
            {"settled", is.assignment.is_settled},
            {"gives", gives},
            // With a server of which nothing is copied, packets stay where they are.
            {"ready",
             is.is_active || (is.disagreement.empty() && (!is.hears_other || (is_whole && gives)))},
            {"disagreement", is.disagreement}};
  json["other"] = nullptr;
  if (is.other) {
    json["other"] = {{"heard", is.hears_other},
                     {"number", is.other->number},
                     {"active", is.other->is_active != 0},
                     {"role", to_string(is.other->role)},
                     {"in_sync", is.other->is_in_sync != 0},
                     {"same_layout", is.has_same_layout}};
  }
  Json& counters = json["counters"] = Json::object();
  for (const CopiesCounterKind& kind : kCopiesCounterKinds)
    counters[kind.name] = copies->count(kind.counter);
  return json;
}

CommandResult<Json> Control::set_active(bool is_active) {
  Copies* const copies = live_->copies();
  if (copies == nullptr || copies->is_cluster()) return no_pair();
  copies->set_active(is_active);
  return pair_status();
}

CommandResult<Json> Control::set_gone() {
  Copies* const copies = live_->copies();
  if (copies == nullptr || copies->is_cluster()) return no_pair();
  if (!copies->set_gone())
    return std::unexpected(
        Refusal{Refusal::Kind::not_now,
                "the other server is not gone: it was heard within the last second"});
  return pair_status();
}

}  // namespace millrace
