// The shares from which rule_mix.cc draws rules: those of ClassBench's parameter files acl1, fw1
// and ipc1, rounded to thousandths, with rare pairs of prefix lengths merged. A share counts
// relative to the other ones drawn with it. Constants; any thread may read them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "bench/rule_mix.h"

namespace millrace::rule_mix {

inline constexpr std::uint8_t kAny = 0, kIcmp = 1, kTcp = 6, kUdp = 17, kGre = 47, kEsp = 50;

/// A protocol and a pair of port classes.
struct Service {
  std::uint8_t protocol;
  PortClass source, destination;
  unsigned share;
};

/// A pair of IPv4 prefix lengths of rules that have a pair of port classes.
struct Lengths {
  std::uint8_t source, destination;
  unsigned share;
};
struct LengthsOfPorts {
  PortClass source, destination;
  std::span<const Lengths> lengths;
};

struct Shares {
  std::span<const Service> services;
  std::span<const LengthsOfPorts> lengths;
  unsigned one_site_percent;  ///< rules whose source and destination lie in one site
  unsigned ranges;            ///< different port ranges of class `range`
};

inline constexpr auto kWc = PortClass::any, kHi = PortClass::high, kLo = PortClass::low,
                      kAr = PortClass::range, kEm = PortClass::exact;

inline constexpr Service kAclServices[] = {
    {kAny, kWc, kWc, 85},  {kIcmp, kWc, kWc, 31}, {kTcp, kWc, kWc, 188}, {kTcp, kWc, kAr, 115},
    {kTcp, kWc, kEm, 570}, {kUdp, kWc, kAr, 1},   {kUdp, kWc, kEm, 10},
};
inline constexpr Lengths kAclWcWc[] = {
    {0, 0, 4},    {0, 8, 8},     {8, 0, 5},    {23, 0, 4},   {23, 4, 20},   {23, 8, 20},
    {23, 16, 54}, {23, 25, 13},  {30, 22, 18}, {31, 24, 13}, {23, 31, 9},   {32, 22, 81},
    {32, 23, 99}, {32, 24, 112}, {30, 32, 18}, {31, 32, 27}, {32, 32, 495},
};
inline constexpr Lengths kAclWcAr[] = {{23, 32, 12}, {31, 32, 35}, {32, 32, 953}};
inline constexpr Lengths kAclWcEm[] = {
    {30, 22, 14}, {31, 22, 7},  {32, 22, 42}, {23, 30, 7},
    {23, 32, 28}, {31, 32, 26}, {32, 31, 28}, {32, 32, 848},
};
inline constexpr LengthsOfPorts kAclLengths[] = {
    {kWc, kWc, kAclWcWc}, {kWc, kAr, kAclWcAr}, {kWc, kEm, kAclWcEm}};

inline constexpr Service kFirewallServices[] = {
    {kAny, kWc, kWc, 10}, {kIcmp, kWc, kWc, 39}, {kGre, kWc, kWc, 57},  {kTcp, kWc, kWc, 106},
    {kTcp, kHi, kHi, 39}, {kTcp, kWc, kEm, 416}, {kTcp, kLo, kEm, 10},  {kUdp, kHi, kHi, 21},
    {kUdp, kHi, kAr, 4},  {kUdp, kAr, kHi, 4},   {kUdp, kWc, kEm, 138}, {kUdp, kEm, kWc, 99},
    {kUdp, kHi, kEm, 18}, {kUdp, kEm, kHi, 18},  {kUdp, kEm, kEm, 21},
};
inline constexpr Lengths kFirewallWcWc[] = {
    {0, 0, 114},  {8, 0, 17},   {12, 0, 17},  {16, 0, 17},  {21, 0, 67}, {23, 0, 67},
    {27, 0, 84},  {28, 0, 33},  {29, 0, 33},  {30, 0, 83},  {0, 32, 17}, {32, 0, 183},
    {28, 32, 67}, {32, 28, 67}, {30, 32, 67}, {32, 30, 67},
};
inline constexpr Lengths kFirewallHiHi[] = {{0, 32, 353}, {32, 21, 294}, {32, 32, 353}};
inline constexpr Lengths kFirewallRange[] = {{0, 0, 1}};
inline constexpr Lengths kFirewallWcEm[] = {
    {0, 0, 63}, {0, 32, 881}, {26, 21, 12}, {32, 0, 19}, {32, 32, 25}};
inline constexpr Lengths kFirewallEmWc[] = {{0, 0, 71}, {0, 32, 107}, {32, 0, 822}};
inline constexpr Lengths kFirewallHiEm[] = {{0, 32, 400}, {32, 32, 600}};
inline constexpr Lengths kFirewallEmHi[] = {{32, 0, 400}, {32, 32, 600}};
inline constexpr Lengths kFirewallEmEm[] = {{0, 32, 333}, {32, 0, 333}, {28, 28, 334}};
inline constexpr LengthsOfPorts kFirewallLengths[] = {
    {kWc, kWc, kFirewallWcWc},  {kHi, kHi, kFirewallHiHi}, {kHi, kAr, kFirewallRange},
    {kAr, kHi, kFirewallRange}, {kWc, kEm, kFirewallWcEm}, {kLo, kEm, kFirewallWcEm},
    {kEm, kWc, kFirewallEmWc},  {kHi, kEm, kFirewallHiEm}, {kEm, kHi, kFirewallEmHi},
    {kEm, kEm, kFirewallEmEm},
};

inline constexpr Service kIpcServices[] = {
    {kAny, kWc, kWc, 345}, {kIcmp, kWc, kWc, 11}, {kGre, kWc, kWc, 3},  {kEsp, kWc, kWc, 2},
    {kTcp, kWc, kWc, 22},  {kTcp, kWc, kAr, 18},  {kTcp, kAr, kWc, 17}, {kTcp, kWc, kEm, 132},
    {kTcp, kEm, kWc, 72},  {kTcp, kEm, kAr, 1},   {kUdp, kWc, kWc, 3},  {kUdp, kWc, kHi, 65},
    {kUdp, kHi, kWc, 4},   {kUdp, kWc, kAr, 6},   {kUdp, kAr, kWc, 3},  {kUdp, kWc, kEm, 220},
    {kUdp, kEm, kWc, 73},  {kUdp, kEm, kEm, 3},
};
inline constexpr Lengths kIpcWcWc[] = {
    {0, 0, 12},   {0, 16, 8},    {16, 0, 5},   {0, 23, 6},   {23, 0, 11},  {0, 24, 30},
    {24, 0, 32},  {0, 26, 10},   {26, 0, 8},   {16, 16, 5},  {32, 0, 6},   {17, 16, 6},
    {22, 16, 15}, {23, 16, 18},  {16, 24, 50}, {24, 16, 77}, {17, 24, 23}, {24, 17, 8},
    {16, 26, 10}, {26, 16, 12},  {28, 16, 9},  {22, 24, 27}, {23, 22, 8},  {23, 24, 80},
    {24, 23, 18}, {24, 24, 230}, {22, 26, 8},  {26, 22, 7},  {24, 25, 17}, {25, 24, 19},
    {23, 26, 15}, {24, 26, 48},  {26, 24, 54}, {24, 28, 31}, {28, 24, 14}, {23, 28, 8},
    {26, 26, 9},  {26, 28, 12},  {28, 26, 12}, {24, 32, 12}, {32, 32, 11},
};
inline constexpr Lengths kIpcWcEm[] = {
    {0, 0, 5},    {0, 24, 22},  {24, 0, 41},  {0, 26, 7},   {0, 32, 65},   {32, 0, 10},
    {16, 16, 9},  {24, 16, 4},  {16, 29, 9},  {23, 24, 23}, {24, 24, 24},  {16, 32, 20},
    {32, 16, 13}, {24, 26, 10}, {26, 28, 13}, {23, 32, 52}, {24, 32, 165}, {32, 24, 14},
    {25, 32, 7},  {26, 32, 17}, {30, 32, 8},  {31, 32, 8},  {32, 32, 454},
};
inline constexpr Lengths kIpcEmWc[] = {
    {0, 24, 12},  {0, 31, 8},   {0, 32, 73},   {32, 0, 49},  {28, 16, 24},  {23, 24, 12},
    {16, 32, 25}, {24, 24, 16}, {32, 16, 16},  {28, 26, 32}, {24, 30, 12},  {23, 32, 45},
    {32, 23, 16}, {24, 32, 77}, {32, 24, 264}, {32, 25, 45}, {32, 26, 146}, {32, 32, 118},
};
inline constexpr Lengths kIpcWcHi[] = {{0, 32, 27}, {16, 32, 27}, {24, 32, 90},
                                       {32, 24, 9}, {30, 32, 36}, {32, 32, 811}};
inline constexpr Lengths kIpcHiWc[] = {{32, 0, 167}, {32, 16, 500}, {32, 24, 333}};
inline constexpr Lengths kIpcWcAr[] = {{0, 32, 71},   {32, 0, 24},  {16, 32, 95}, {23, 32, 143},
                                       {24, 32, 548}, {26, 32, 95}, {32, 32, 24}};
inline constexpr Lengths kIpcArWc[] = {{0, 32, 29},   {32, 0, 59},   {32, 16, 118}, {32, 23, 88},
                                       {32, 24, 529}, {32, 26, 118}, {32, 32, 59}};
inline constexpr Lengths kIpcHosts[] = {{32, 32, 1}};
inline constexpr LengthsOfPorts kIpcLengths[] = {
    {kWc, kWc, kIpcWcWc}, {kWc, kAr, kIpcWcAr}, {kAr, kWc, kIpcArWc},
    {kWc, kEm, kIpcWcEm}, {kEm, kWc, kIpcEmWc}, {kEm, kAr, kIpcHosts},
    {kWc, kHi, kIpcWcHi}, {kHi, kWc, kIpcHiWc}, {kEm, kEm, kIpcHosts},
};

/// Indexed by RuleMix.
inline constexpr std::array<Shares, 3> kShares{{
    {kAclServices, kAclLengths, 6, 34},
    {kFirewallServices, kFirewallLengths, 37, 1},
    {kIpcServices, kIpcLengths, 4, 8},
}};

/// Returns the lengths of the rules that have these port classes, a pair that some service has.
constexpr std::span<const Lengths> lengths_of(const Shares& shares, PortClass source,
                                              PortClass destination) {
  for (const LengthsOfPorts& one : shares.lengths) {
    if (one.source == source && one.destination == destination) return one.lengths;
  }
  return {};
}

static_assert(std::ranges::all_of(kShares, [](const Shares& shares) {
  return std::ranges::all_of(shares.services, [&shares](const Service& one) {
    return !lengths_of(shares, one.source, one.destination).empty();
  });
}));

}  // namespace millrace::rule_mix
