#include "port/control_gate.h"

#include <gtest/gtest.h>
#include <rte_config.h>  // first of DPDK's

#include <rte_alarm.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "core/dpdk_eal.h"

namespace millrace {
namespace {

struct Heard {
  Passage passage;
  std::atomic<bool> done = false;
  bool could_enter = false;
};

/// Tries to enter while an event is handled. DPDK's interrupt thread calls this function.
void change(void* at) {
  auto& heard = *static_cast<Heard*>(at);
  heard.could_enter = heard.passage.enter();
  heard.done = true;
}

TEST(ControlGate, WhatChangesDevicesWaitsForWhoIsInside) {
  ASSERT_TRUE(start_dpdk_eal({}).has_value());
  Heard heard;
  ASSERT_TRUE(heard.passage.enter());
  ASSERT_EQ(rte_eal_alarm_set(1000, change, &heard), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(heard.done);
  heard.passage.leave();
  while (!heard.done) std::this_thread::yield();
  EXPECT_FALSE(heard.could_enter) << "a worker entered while an event was handled";
  while (!heard.passage.enter()) std::this_thread::yield();
  heard.passage.leave();
}

}  // namespace
}  // namespace millrace
