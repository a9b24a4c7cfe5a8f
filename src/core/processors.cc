#include "core/processors.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace millrace {

std::vector<unsigned> allowed_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<unsigned> numbers;
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return numbers;
  for (unsigned n = 0; n < CPU_SETSIZE; ++n) {
    if (CPU_ISSET(n, &set)) numbers.push_back(n);
  }
  return numbers;
}

unsigned processors() {
  const auto numbers = allowed_processors();
  return numbers.empty() ? std::max(std::thread::hardware_concurrency(), 1U)
                         : static_cast<unsigned>(numbers.size());
}

}  // namespace millrace
