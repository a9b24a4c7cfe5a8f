// Tests which functions a configuration chooses, and that others' keys are refused.
#include "config/chain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace millrace {
namespace {

// --- a function that has two keys, and does nothing

extern const FunctionKind kToy;

struct ToySettings final : FunctionSettings {
  int size = 1;

  const FunctionKind& kind() const override { return kToy; }
  FunctionFacts facts() const override { return {.counts = {{"toy", 1}}}; }
  std::vector<std::string> unchangeable(const FunctionSettings&) const override { return {}; }
  void append_doubts(const Surroundings&, std::vector<std::string>& all) const override {
    if (size > 8) all.emplace_back("toy.size is large");
  }
  void tell(HostAddresses<AddressV4>&, HostAddresses<AddressV6>&) const override {}
};

class ToyReader final : public SettingsReader {
 public:
  void read(std::string_view key, const config::Context& context, const toml::node& node) override {
    if (key == "toy")
      config::table(&ToyReader::settings_, {{"size", config::integer(&ToySettings::size, 1, 9)}})(
          context, node, *this);
  }
  std::shared_ptr<const FunctionSettings> finish(config::Problems&, const Surroundings&) override {
    return std::make_shared<const ToySettings>(settings_);
  }

 private:
  ToySettings settings_;
};

constexpr std::array<FunctionKey, 2> kToyKeys{{{"toy"}, {"part", true}}};
const FunctionKind kToy{
    .name = "toy",
    .summary = "nothing",
    .keys = kToyKeys,
    .names = nullptr,
    .defaults = [] -> std::shared_ptr<const FunctionSettings> {
      return std::make_shared<const ToySettings>();
    },
    .reader = [] -> std::unique_ptr<SettingsReader> { return std::make_unique<ToyReader>(); },
    .deploy = nullptr};

// ---

Result<Config> parse_chain(std::string_view text,
                           std::span<const FunctionKind* const> known = kinds()) {
  return parse_config(text, "f.toml", {{"race"}, {"sharded"}, {"wheel"}, known});
}

/// Parses with the toy function known, too.
Result<Config> parse_with_toy(std::string_view text) {
  static const std::array<const FunctionKind*, 2> kBoth{kinds().front(), &kToy};
  return parse_chain(text, kBoth);
}

std::string message(const Result<Config>& config) {
  return config ? "(nothing is wrong)" : config.error().message;
}

TEST(Chain, OneFunctionMayBeGivenEitherWay) {
  for (const char* text :
       {"", "function = \"balance\"", "function = \"Balance\"", "chain = [\"balance\"]"}) {
    const auto config = parse_chain(text);
    ASSERT_TRUE(config.has_value()) << config.error().message;
    EXPECT_EQ(config->function->kind().name, "balance");
  }
}

TEST(Chain, SeveralFunctionsAreOneOfAKindOfTheirOwn) {
  const auto one =
      parse_chain("chain = [\"forward\", \"balance\"]\n[balance]\nunmatched = \"drop\"");
  ASSERT_TRUE(one.has_value()) << one.error().message;
  EXPECT_EQ(one->function->kind().name, "forward, balance");
  EXPECT_EQ(one->function->kind().commands.size(), kinds().front()->commands.size());
  EXPECT_EQ(one->function->facts().drops_unmatched, "balance.unmatched");
  EXPECT_EQ(one->function->facts().counts.front().what, "service");
  const auto same = parse_chain("chain = [\"forward\", \"balance\"]");
  const auto other = parse_chain("chain = [\"balance\", \"forward\"]");
  EXPECT_EQ(&one->function->kind(), &same->function->kind());
  EXPECT_NE(&one->function->kind(), &other->function->kind());
}

struct WrongNames {
  const char* text;
  const char* message;  ///< KINDS stands for the list of all functions
};
void PrintTo(const WrongNames& wrong, std::ostream* out) { *out << wrong.text; }

class ChainErrors : public testing::TestWithParam<WrongNames> {};
TEST_P(ChainErrors, SayWhatIsWrongAndWhatWouldBeRight) {
  std::vector<std::string> names;
  for (const FunctionKind* const kind : kinds()) names.emplace_back(kind->name);
  std::string wanted = GetParam().message;
  if (const auto at = wanted.find("KINDS"); at != wanted.npos)
    wanted.replace(at, 5, config::joined(names, " or "));
  EXPECT_EQ(message(parse_chain(GetParam().text)), wanted);
}
INSTANTIATE_TEST_SUITE_P(
    Names, ChainErrors,
    testing::Values(
        WrongNames{"function = \"nat64\"",
                   "f.toml:1: function: \"nat64\" is not known: give KINDS"},
        WrongNames{"function = [\"nat64\", \"balance\"]",
                   "f.toml:1: function: is an array: give one function, or a list of them as "
                   "chain"},
        WrongNames{"function = \"blance\"",
                   "f.toml:1: function: \"blance\" is not known: give KINDS"},
        WrongNames{"chain = \"balance\"",
                   "f.toml:1: chain: is a string: give a list of functions, as [\"balance\"]"},
        WrongNames{"chain = []",
                   "f.toml:1: chain: is empty: give a list of functions, as [\"balance\"]"},
        WrongNames{"chain = [\"balance\", \"blance\"]",
                   "f.toml:1: chain: \"blance\" is not known: give KINDS"},
        WrongNames{"chain = [\"nat64\", \"balance\"]",
                   "f.toml:1: chain: \"nat64\" is not known: give KINDS"},
        WrongNames{"chain = [\"balance\", 1]", "f.toml:1: chain: is an integer: give KINDS"},
        WrongNames{"chain = [\"balance\", \"balance\"]",
                   "f.toml:1: chain: \"balance\" is there more than once: name it once"},
        WrongNames{"chain = [\"balance\", \"balance\", \"balance\"]",
                   "f.toml:1: chain: \"balance\" is there more than once: name it once"},
        WrongNames{"function = \"forward\"\n[forward]\nlimit = 1",
                   "f.toml:2: forward: this function has no section: leave it out"},
        WrongNames{"chain = [\"forward\", \"balance\"]\nbalance.stateful = false",
                   "f.toml:1: chain: \"balance\" needs balance.stateful = true: otherwise "
                   "balance keeps no connections"},
        WrongNames{"function = \"balance\"\nchain = [\"balance\"]",
                   "f.toml:2: chain: function is given, too: leave function out"}));

TEST(Chain, EachFunctionReadsItsOwnKeys) {
  const auto config = parse_with_toy("function = \"toy\"\ntoy.size = 9\n[[part]]");
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->function->kind().name, "toy");
  EXPECT_EQ(doubts(*config), (std::vector<std::string>{"toy.size is large"}));
  EXPECT_EQ(message(parse_with_toy("function = \"toy\"\ntoy.size = 10")),
            "f.toml:2: toy.size: 10 is out of range: give 1 to 9");
  EXPECT_EQ(message(parse_with_toy("function = \"to\"")),
            "f.toml:1: function: \"to\" is not known: give \"balance\" or \"toy\"");
  EXPECT_EQ(message(parse_with_toy("[part]\n[[part]]")),
            "f.toml:2: Error while parsing table header: cannot redefine existing table 'part' as "
            "array-of-tables: write [[part]] each time, in double brackets");
}

// A misspelt name may be that of the function to which a key belongs. So no key is refused then,
// but wrong values still are.
TEST(Chain, WhereNamesAreWrongAllKeysAreReadAndNoneIsRefused) {
  for (const std::string names :
       {"chain = [\"balance\", \"to\"]", "chain = [\"balance\", 3]", "chain = \"toy\"",
        "chain = []", "function = \"balanc\"", "function = [\"toy\"]",
        "function = \"balance\";chain = [\"toy\"]"}) {
    std::string text = names;
    std::ranges::replace(text, ';', '\n');
    const auto said = message(parse_with_toy(text + "\ntoy.size = 10\n[[part]]\n"));
    EXPECT_TRUE(said.contains("toy.size: 10 is out of range: give 1 to 9")) << said;
    EXPECT_FALSE(said.contains("not chosen")) << said;
  }
  EXPECT_EQ(message(parse_with_toy("chain = [\"balance\", \"to\"]\nbalance.stateful = false")),
            "f.toml:1: chain: \"to\" is not known: give \"balance\" or \"toy\"");
}

std::string with_service(const std::string& chain, const std::string& keys = "") {
  return "chain = [" + chain + "]\n[[service]]\naddress = \"192.0.2.1\"\nport = 80\n" + keys +
         "backends = [{ address = \"10.0.0.1\" }]\n";
}

TEST(Chain, DestinationsAreChosenBeforeSources) {
  EXPECT_EQ(message(parse_chain(with_service(R"("nat", "firewall", "balance")"))),
            "f.toml:1: chain: \"balance\" chooses destinations, on which sources depend: name it "
            "before \"nat\"");
  EXPECT_TRUE(parse_chain(with_service(R"("balance", "firewall", "nat")")).has_value());
}

TEST(Chain, FunctionsHaveAddressesOfTheirOwn) {
  EXPECT_EQ(message(parse_chain(with_service(R"("balance", "nat")") +
                                "[[nat.pool]]\nname = \"p\"\naddresses = \"192.0.2.0/30\"\n"
                                "[[nat.rule]]\nsource = \"10.0.0.0/8\"\npool = \"p\"\n")),
            "f.toml:1: chain: \"nat\" has the address 192.0.2.1, and so has \"balance\": give each "
            "function its own");
}

TEST(Chain, FunctionsThatRewriteSourcesNeedReplies) {
  const std::string dsr = "forward = \"dsr\"\n";
  EXPECT_EQ(message(parse_chain(with_service(R"("balance", "nat")", dsr))),
            "f.toml:1: chain: \"balance\" has services whose replies do not come back (dsr, or a "
            "prefix): a function that rewrites sources needs them, so take those out");
  EXPECT_TRUE(parse_chain(with_service(R"("balance", "firewall")", dsr)).has_value());
  EXPECT_EQ(
      message(parse_chain("chain = [\"balance\", \"nat\"]\n")),
      "f.toml:1: chain: \"balance\" has no service: give [[service]] with address and backends");
}

TEST(Chain, KeysOfTheFileBelowATableAreNotTheTables) {
  EXPECT_EQ(
      message(parse_chain("[table]\nfunction = \"forward\"")),
      "f.toml:2: table.function: unknown key: \"function\" belongs to no table: move it above "
      "the first [table]");
  EXPECT_EQ(message(parse_chain("[table]\nchian = 1")),
            "f.toml:2: table.chian: unknown key: known are \"scheme\", \"capacity\", "
            "\"capacity_v6\", \"when_full\", \"half_open_percent\"");
}

TEST(Chain, KeysOfAFunctionThatIsNotChosenAreRefused) {
  EXPECT_EQ(message(parse_with_toy("\n[toy]\nsize = 10\nfoo = 1")),
            "f.toml:2: toy: belongs to the function \"toy\", which is not chosen: name that in "
            "function or chain, or leave this out");
  EXPECT_EQ(
      message(parse_with_toy("chain = [\"toy\"]\n[[service]]\n[balance]\nkey = 1")),
      "f.toml:2: service: belongs to the function \"balance\", which is not chosen: name that in "
      "function or chain, or leave this out\n"
      "f.toml:3: balance: belongs to the function \"balance\", which is not chosen: name that in "
      "function or chain, or leave this out");
}

}  // namespace
}  // namespace millrace
