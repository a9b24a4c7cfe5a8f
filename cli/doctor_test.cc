// Findings of `millrace doctor`, on made-up machines.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "doctor_checks.h"

namespace millrace::cli {
namespace {

namespace fs = std::filesystem;

class DoctorTest : public testing::Test {
 protected:
  DoctorTest()
      : root_(fs::temp_directory_path() / ("millrace-doctor-" + std::to_string(::getpid()))) {
    write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "1024");
    write("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "1000");
    write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never");
    write("proc/self/status", "Name:\tx\nCapEff:\t000001ffffffffff");
    write("dev/net/tun", "");
    write("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc");
    write("sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet");
    write("sys/devices/system/cpu/online", "0-7");
    write("sys/devices/system/cpu/isolated", "2-7");
    write("sys/devices/system/node/node0/cpulist", "0-7");
  }
  ~DoctorTest() override { fs::remove_all(root_); }

  void write(const std::string& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text << '\n';
  }
  void remove(const std::string& file) { fs::remove_all(root_ / file); }
  Finding find(const std::string& subject, bool is_root = true) const {
    const auto all = examine({.root = root_, .is_root = is_root});
    const auto one = std::ranges::find(all, subject, &Finding::subject);
    return one == all.end() ? Finding{.subject = "none"} : *one;
  }

  fs::path root_;
};

TEST_F(DoctorTest, AGoodMachineLacksNothing) {
  for (const auto& finding : examine({.root = root_, .is_root = true})) {
    EXPECT_EQ(finding.health, Health::good) << finding.subject << ": " << finding.is;
    EXPECT_EQ(finding.command, "");
  }
}

TEST_F(DoctorTest, SaysWhatWouldBeBetterAndHow) {
  write("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "3");
  EXPECT_EQ(find("huge pages").health, Health::better);
  EXPECT_EQ(find("huge pages").is, "1024 of 2 MiB, 3 free");
  EXPECT_NE(find("huge pages").command.find("nr_hugepages"), std::string::npos);
  write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]");
  EXPECT_EQ(find("transparent pages").health, Health::better);
  write("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet");
  EXPECT_NE(find("clock source").command.find("echo tsc"), std::string::npos);
  write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave");
  EXPECT_EQ(find("frequency").is, "governor powersave");
  write("sys/devices/system/cpu/isolated", "");
  EXPECT_EQ(find("isolation").health, Health::better);
  write("sys/devices/system/node/node1/cpulist", "4-7");
  EXPECT_EQ(find("memory nodes").is, "2");
}

TEST_F(DoctorTest, SaysWhatIsMissing) {
  remove("dev/net/tun");
  EXPECT_EQ(find("tap").health, Health::missing);
  write("proc/self/status", "CapEff:\t0000000000000000");
  EXPECT_EQ(find("permissions", false).health, Health::missing);
  EXPECT_EQ(find("permissions", false).is, "without CAP_NET_RAW and CAP_NET_ADMIN");
  write("proc/self/status", "CapEff:\t0000000000002000");
  EXPECT_EQ(find("permissions", false).is, "without CAP_NET_ADMIN");
  write("proc/self/status", "CapEff:\t0000000000001000");
  EXPECT_EQ(find("permissions", false).is, "without CAP_NET_RAW");
  write("proc/self/status", "CapEff:\t0000000000003000");
  EXPECT_EQ(find("permissions", false).health, Health::good);
}

TEST_F(DoctorTest, FindsCardsThatTheKernelHas) {
  write("sys/bus/pci/devices/0000:00:03.0/class", "0x020000");
  write("sys/bus/pci/devices/0000:00:04.0/class", "0x010000");
  const Finding cards = find("network cards");
  EXPECT_EQ(cards.health, Health::better);
  EXPECT_EQ(cards.is, "0000:00:03.0 (no driver)");
}

TEST_F(DoctorTest, LeavesTheMachineItsOwnCard) {
  write("sys/bus/pci/devices/0000:00:03.0/class", "0x020000");
  write("proc/net/route", "Iface\tDestination\tGateway\neth0\t00000000\t010011AC");
  fs::create_directories(root_ / "sys/class/net");
  fs::create_symlink("../../devices/pci0000:00/0000:00:03.0/virtio1/net/eth0",
                     root_ / "sys/class/net/eth0");
  EXPECT_EQ(find("network cards").health, Health::good);
  EXPECT_EQ(find("network cards").is, "0000:00:03.0 (no driver, has the default route)");
  write("sys/bus/pci/devices/0000:00:04.0/class", "0x020000");
  EXPECT_EQ(find("network cards").health, Health::better);
}

TEST_F(DoctorTest, NothingIsKnownOfAnEmptyMachine) {
  for (const char* folder : {"sys", "proc", "dev"}) remove(folder);
  EXPECT_FALSE(examine({.root = "/nowhere", .is_root = false}).empty());
}

}  // namespace
}  // namespace millrace::cli
