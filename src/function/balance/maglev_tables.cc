#include "function/balance/maglev_tables.h"

#include <algorithm>
#include <utility>

namespace millrace {

std::size_t MaglevTables::HashOf::operator()(const MaglevTable::Members& members) const {
  std::size_t hash = members.size();
  for (const Maglev::Member& member : members)
    hash = (hash ^ member.offset ^ member.weight) * 0x9e3779b97f4a7c15;
  return hash;
}

MaglevTables::MaglevTables(std::uint32_t size, unsigned threads) : size_(size) {
  for (unsigned n = 0; n < threads; ++n) threads_.emplace_back([this] { make_wanted(); });
}

MaglevTables::~MaglevTables() {
  is_ending_ = true;
  ++wanted_times_;
  wanted_times_.notify_all();
  threads_.clear();
  while (take_wanted() != nullptr) {
  }
}

std::shared_ptr<MaglevTable> MaglevTables::of(MaglevTable::Members members) {
  if (all_.size() >= swept_at_) {
    std::erase_if(all_, [](const auto& one) { return one.second.expired(); });
    swept_at_ = std::max<std::size_t>(64, 2 * all_.size());
  }
  auto& known = all_[members];
  auto table = known.lock();
  if (table != nullptr) return table;
  table = std::make_shared<MaglevTable>(std::move(members));
  known = table;
  if (all_.size() * size_ <= kAtOnceEntries) make(*table);
  return table;
}

const Maglev* MaglevTables::want(const std::shared_ptr<MaglevTable>& table) {
  if (const Maglev* const made = table->made()) return made;
  if (threads_.empty()) return make(*table);
  if (table->is_wanted_.exchange(true)) return nullptr;
  table->self_ = table;
  table->next_ = wanted_.load();
  while (!wanted_.compare_exchange_weak(table->next_, table.get())) {
  }
  ++wanted_times_;
  wanted_times_.notify_one();
  return nullptr;
}

const Maglev* MaglevTables::make(MaglevTable& table) const {
  std::call_once(table.once_, [&] {
    table.table_ = Maglev::build(table.members_, size_);
    table.made_.store(&table.table_, std::memory_order_release);
  });
  return table.made();
}

std::shared_ptr<MaglevTable> MaglevTables::take_wanted() {
  const std::lock_guard guard(taking_);
  MaglevTable* table = wanted_.load();
  while (table != nullptr && !wanted_.compare_exchange_weak(table, table->next_)) {
  }
  return table == nullptr ? nullptr : std::exchange(table->self_, nullptr);
}

void MaglevTables::make_wanted() {
  while (!is_ending_) {
    const std::uint32_t times = wanted_times_;
    if (const auto table = take_wanted()) {
      make(*table);
    } else if (!is_ending_) {
      wanted_times_.wait(times);
    }
  }
}

auto MaglevTables::statistics() const -> Statistics {
  Statistics is;
  for (const auto& [members, weak] : all_) {
    const auto table = weak.lock();
    if (table == nullptr) continue;
    ++is.tables;
    if (table->made() == nullptr) continue;
    ++is.made;
    is.memory_bytes += table->made()->entries().size_bytes();
  }
  return is;
}

}  // namespace millrace
