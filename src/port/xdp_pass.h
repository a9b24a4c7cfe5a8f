// An XDP program that passes every packet. While one is attached to an end of a veth pair, the
// kernel sends no packets larger than the MTU to this end. Linux only; any thread, in the
// interface's network namespace.
//
// A process that takes over an interface also opens the BPF link of the running process, so that
// the program stays attached when that process ends.
#pragma once

namespace millrace {

/// Returns a descriptor of the BPF link by which a millrace has attached its program to the
/// interface of that index: the program stays attached while the descriptor is open. -1: there is
/// none, or this process lacks CAP_SYS_ADMIN.
int attached_xdp_pass(unsigned interface);

/// Attaches the program in the interface's driver, or finds one that a millrace has attached.
/// Returns a descriptor as `attached_xdp_pass` does; -1 if the kernel refuses the program.
int attach_xdp_pass(unsigned interface);

}  // namespace millrace
