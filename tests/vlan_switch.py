"""A switch with VLANs, for tests: one trunk, on which frames have tags, and ports in one VLAN each. BPF programs at the
kernel's interfaces put tags on and take them off, as the kernel's VLAN devices do, which not every kernel has. The
kernel keeps such a tag beside the frame until an interface without tx-vlan-offload sends the frame.

Needs root, and a kernel that lets programs attach to an interface by themselves (TCX: Linux 6.6).
"""

import ctypes
import os
import platform
import socket
import struct

from namespaces import CannotTry

_SYS_BPF = {"x86_64": 321, "aarch64": 280}
_PROG_LOAD, _LINK_CREATE = 5, 28  # commands: <linux/bpf.h>
_SCHED_CLS, _TCX_INGRESS = 3, 46
_VLAN_PRESENT, _VLAN_TCI = 20, 24  # places in struct __sk_buff
_VLAN_PUSH, _VLAN_POP, _REDIRECT = 18, 19, 23  # functions
_DROP = 2

# Instructions, with their classes: code, destination and source register, offset, constant.
_MOVE, _SET, _LOAD, _AND, _CALL, _EXIT, _UNLESS = 0xBF, 0xB7, 0x61, 0x57, 0x85, 0x95, 0x55


def _instruction(code, to=0, source=0, offset=0, constant=0):
    return struct.pack("<BBhi", code, to | source << 4, offset, constant)


def _call(function, *constants):
    """Calls a function of the kernel with these constants, each given with the number of its register."""
    return [_instruction(_SET, n, constant=value) for n, value in constants] + [_instruction(_CALL, constant=function)]


_THE_PACKET = _instruction(_MOVE, 1, 6)  # as the first argument; register 6 keeps it


def _redirect(interface):
    return [*_call(_REDIRECT, (1, interface), (2, 0)), _instruction(_EXIT)]


def _to_trunk(vlan, trunk):
    """Returns a program that sends frames to the trunk with a tag, or without one if `vlan` is 0."""
    tag = [_THE_PACKET, *_call(_VLAN_PUSH, (2, socket.htons(0x8100)), (3, vlan))] if vlan else []
    return [_instruction(_MOVE, 6, 1), *tag, *_redirect(trunk)]


def _from_trunk(ports):
    """Returns a program that sends each frame to the port of its VLAN. `ports`: numbers of interfaces by VLAN."""
    program = [_instruction(_MOVE, 6, 1), _instruction(_LOAD, 7, 6, _VLAN_TCI), _instruction(_AND, 7, constant=0xFFF)]
    for vlan, interface in ports.items():
        its = ([_THE_PACKET, *_call(_VLAN_POP)] if vlan else []) + _redirect(interface)
        program += [_instruction(_UNLESS, 7, offset=len(its), constant=vlan), *its]
    return [*program, _instruction(_SET, 0, constant=_DROP), _instruction(_EXIT)]


def _bpf(command, attributes):
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(attributes)
    number = _SYS_BPF.get(platform.machine())
    if number is None:
        raise CannotTry(f"the number of bpf() on {platform.machine()} is not known here")
    result = libc.syscall(number, command, buffer, len(attributes))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"bpf: {os.strerror(ctypes.get_errno())}")
    return result


def _attach(interface, program):
    """Makes the program handle the frames that the interface receives, until the returned descriptor is closed."""
    code = ctypes.create_string_buffer(b"".join(program))
    license_ = ctypes.create_string_buffer(b"Dual BSD/GPL")
    loaded = _bpf(_PROG_LOAD, struct.pack("<IIQQIIQII16s", _SCHED_CLS, len(program), ctypes.addressof(code),
                                          ctypes.addressof(license_), 0, 0, 0, 0, 0, b"vlan_switch"))
    try:
        return _bpf(_LINK_CREATE, struct.pack("<IIIIIIQ", loaded, interface, _TCX_INGRESS, 0, 0, 0, 0))
    finally:
        os.close(loaded)


class Switch:
    """Connects interfaces of the current namespace. `ports`: names of interfaces by VLAN; 0: frames without a tag."""

    def __init__(self, trunk, ports):
        numbers = {vlan: socket.if_nametoindex(name) for vlan, name in ports.items()}
        self._trunk = socket.if_nametoindex(trunk)
        self._links = [_attach(number, _to_trunk(vlan, self._trunk)) for vlan, number in numbers.items()]
        self._links.append(_attach(self._trunk, _from_trunk(numbers)))

    def close(self):
        for link in self._links:
            os.close(link)
        self._links = []
