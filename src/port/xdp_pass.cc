#include "port/xdp_pass.h"

#include <linux/bpf.h>
#include <linux/if_link.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "port/netlink.h"

namespace millrace {
namespace {

constexpr std::string_view kName = "millrace_pass";

int bpf(bpf_cmd command, bpf_attr& attributes) {
  return static_cast<int>(::syscall(SYS_bpf, command, &attributes, sizeof(attributes)));
}

/// Opens a BPF program or link by its number; -1 if it is gone, or if this process may not open it.
int open_object(bpf_cmd command, std::uint32_t number) {
  bpf_attr get{};
  get.prog_id = number;
  return bpf(command, get);
}

template <class Info>
Info info_of(int object) {
  Info info{};
  bpf_attr get{};
  get.info.bpf_fd = static_cast<std::uint32_t>(object);
  get.info.info_len = sizeof(info);
  get.info.info = reinterpret_cast<std::uintptr_t>(&info);
  if (bpf(BPF_OBJ_GET_INFO_BY_FD, get) != 0) return {};
  return info;
}

/// Reads the number of the driver's program from an attribute of an interface.
int read_program(const nlattr* attribute, void* program) {
  if (mnl_attr_get_type(attribute) != IFLA_XDP) return MNL_CB_OK;
  const auto read = [](const nlattr* one, void* to) {
    if (mnl_attr_get_type(one) == IFLA_XDP_DRV_PROG_ID)
      *static_cast<std::uint32_t*>(to) = mnl_attr_get_u32(one);
    return MNL_CB_OK;
  };
  return mnl_attr_parse_nested(attribute, read, program);
}

/// Returns the number of the XDP program in the interface's driver; 0: there is none.
std::uint32_t program_at(unsigned interface) {
  Netlink netlink;
  nlmsghdr* const message = netlink.begin(RTM_GETLINK, NLM_F_ACK);
  put<ifinfomsg>(message)->ifi_index = static_cast<int>(interface);
  std::uint32_t program = 0;
  netlink.ask(message, [&program](const nlmsghdr* reply) {
    mnl_attr_parse(reply, sizeof(ifinfomsg), read_program, &program);
  });
  return program;
}

bool is_ours(std::uint32_t program) {
  const int opened = open_object(BPF_PROG_GET_FD_BY_ID, program);
  if (opened < 0) return false;
  const auto info = info_of<bpf_prog_info>(opened);
  ::close(opened);
  return std::string_view(info.name, ::strnlen(info.name, sizeof(info.name))) == kName;
}

}  // namespace

int attached_xdp_pass(unsigned interface) {
  const std::uint32_t program = program_at(interface);
  if (program == 0 || !is_ours(program)) return -1;
  bpf_attr next{};
  while (bpf(BPF_LINK_GET_NEXT_ID, next) == 0) {
    next.start_id = next.next_id;
    const int link = open_object(BPF_LINK_GET_FD_BY_ID, next.start_id);
    if (link < 0) continue;
    const auto info = info_of<bpf_link_info>(link);
    if (info.type == BPF_LINK_TYPE_XDP && info.prog_id == program) return link;
    ::close(link);
  }
  return -1;
}

int attach_xdp_pass(unsigned interface) {
  std::array<bpf_insn, 2> program{};
  program[0].code = BPF_ALU64 | BPF_MOV | BPF_K;
  program[0].imm = XDP_PASS;
  program[1].code = BPF_JMP | BPF_EXIT;
  bpf_attr load{};
  load.prog_type = BPF_PROG_TYPE_XDP;
  load.insns = reinterpret_cast<std::uintptr_t>(program.data());
  load.insn_cnt = program.size();
  load.license = reinterpret_cast<std::uintptr_t>("Dual BSD/GPL");
  load.prog_flags = BPF_F_XDP_HAS_FRAGS;  // without this flag the driver allows only small MTUs
  kName.copy(load.prog_name, sizeof(load.prog_name) - 1);
  const int loaded = bpf(BPF_PROG_LOAD, load);
  if (loaded < 0) return -1;
  bpf_attr link{};
  link.link_create.prog_fd = static_cast<std::uint32_t>(loaded);
  link.link_create.target_ifindex = interface;
  link.link_create.attach_type = BPF_XDP;
  link.link_create.flags = XDP_FLAGS_DRV_MODE;
  const int attached = bpf(BPF_LINK_CREATE, link);
  ::close(loaded);
  return attached >= 0 ? attached : attached_xdp_pass(interface);
}

}  // namespace millrace
