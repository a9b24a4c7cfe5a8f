#include "conntrack/sharing/grace.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <optional>
#include <random>
#include <thread>
#include <vector>

namespace millrace {
namespace {

/// A table that records the released ids.
struct Noting {
  std::vector<ConnId>* released;
  void release(ConnId id) { released->push_back(id); }
};

class GraceTest : public testing::Test {
 protected:
  GraceTest() : pair_{{&released_}, Noting{&released_}} {
    auto made = ReclaimAfterGrace::create(2);
    EXPECT_TRUE(made.has_value());
    workers_ = std::move(*made);
  }
  void end_burst(unsigned worker) {
    workers_[worker].end_burst(pair_, [] { return 0; });
  }

  std::vector<ConnId> released_;
  TablePair<Noting> pair_;
  std::vector<ReclaimAfterGrace> workers_;
};

TEST_F(GraceTest, WaitsUntilEveryWorkerHasEndedABurst) {
  workers_[0].begin();
  workers_[1].begin();
  workers_[0].add(Side::originator, ConnId{7});
  workers_[0].add(Side::reply, ConnId{8});
  for (int burst = 0; burst < 10; ++burst) end_burst(0);
  EXPECT_TRUE(released_.empty());
  EXPECT_FALSE(workers_[0].is_empty());
  end_burst(1);
  end_burst(0);
  EXPECT_EQ(released_, (std::vector{ConnId{7}, ConnId{8}}));
  EXPECT_TRUE(workers_[0].is_empty());
}

TEST_F(GraceTest, WhoRestsHoldsUpNobody) {
  workers_[0].begin();
  workers_[1].begin();
  workers_[1].end();
  workers_[0].add(Side::originator, ConnId{7});
  end_burst(0);
  end_burst(0);
  EXPECT_EQ(released_.size(), 1U);
}

TEST_F(GraceTest, TooMuchThatDrainsHoldsUpSweeps) {
  workers_[0].begin();
  workers_[1].begin();
  workers_[0].add(Side::originator, ConnId{0});
  end_burst(0);  // starts the grace period of id 0
  for (std::uint32_t id = 1; workers_[0].has_room(); ++id) {
    ASSERT_LT(id, 10'000U);
    workers_[0].add(Side::originator, ConnId{id});
  }
  for (int burst = 0; burst < 3; ++burst) {
    end_burst(1);
    end_burst(0);
  }
  EXPECT_TRUE(workers_[0].has_room());
  EXPECT_TRUE(workers_[0].is_empty());
}

/// A counter for each id, raised at each step of its life: even while lookups may find the id, odd
/// while it drains.
struct Lives {
  static constexpr std::uint32_t kIds = 256;
  std::array<std::atomic<std::uint32_t>, kIds> of{};
  std::atomic<unsigned> ended = 0;
};

struct Counting {
  Lives* lives;
  void release(ConnId id) {
    const std::uint32_t before = lives->of[index(id)].fetch_add(1);
    EXPECT_EQ(before % 2, 1U);
    ++lives->ended;
  }
};

// Three workers find ids, keep them for a burst, and erase some of them: no id that a worker keeps
// is released before the worker's burst ends.
TEST(Grace, NobodyLosesWhatItFoundInThisBurst) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  constexpr unsigned kWorkers = 3;
  constexpr unsigned kLeast = 1000;  // ids to release; a busy machine makes grace periods long
  constexpr int kMost = 200'000'000;
  Lives lives;
  auto workers = ReclaimAfterGrace::create(kWorkers);
  ASSERT_TRUE(workers.has_value());
  std::atomic<std::uint64_t> lost = 0;
  {
    std::vector<std::jthread> threads;
    for (unsigned worker = 0; worker < kWorkers; ++worker) {
      threads.emplace_back([&, worker] {
        ReclaimAfterGrace& reclaiming = (*workers)[worker];
        TablePair<Counting> pair{{&lives}, std::nullopt};
        std::mt19937 random(seed + worker);
        reclaiming.begin();
        for (int burst = 0; burst < 20'000 || (lives.ended < kLeast && burst < kMost); ++burst) {
          std::array<std::pair<std::uint32_t, std::uint32_t>, 8> kept;
          for (auto& [id, life] : kept) {
            id = random() % Lives::kIds;
            life = lives.of[id];
          }
          for (auto& [id, life] : kept) {
            std::uint32_t alive = life;
            if (life % 2 == 0 && random() % 4 == 0 && reclaiming.has_room() &&
                lives.of[id].compare_exchange_strong(alive, life + 1)) {
              reclaiming.add(Side::originator, ConnId{id});
            }
          }
          for (const auto& [id, life] : kept) {
            if (life % 2 == 0 && lives.of[id] > life + 1) ++lost;
          }
          reclaiming.end_burst(pair, [] { return 0; });
        }
        while (!reclaiming.is_empty()) {
          reclaiming.end_burst(pair, [] { return 0; });
          std::this_thread::yield();
        }
        reclaiming.end();
      });
    }
  }
  EXPECT_EQ(lost, 0U);
  for (const auto& life : lives.of) EXPECT_EQ(life % 2, 0U);
  EXPECT_GE(lives.ended, kLeast);
}

}  // namespace
}  // namespace millrace
