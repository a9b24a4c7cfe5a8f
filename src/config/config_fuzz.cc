// Fuzzes the configuration reader with arbitrary text. A configuration that is accepted must
// either make a load balancer or give an error with a message.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "config/test_settings.h"

using namespace millrace;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = parse_config(text, "fuzz", {{"race", "std"}, {"sharded"}, {"wheel", "none"}});
  if (!config) {
    if (config.error().message.empty()) std::abort();
    return 0;
  }
  if (const auto spread = check_spread(*config); !spread && spread.error().message.empty())
    std::abort();
  BalanceConfig balance = balance_config(*config);
  balance.maglev_table_size = 251;  // building a large table is slow and not tested here
  const auto made = Balance::create(balance);
  if (!made && made.error().message.empty()) std::abort();
  return 0;
}
