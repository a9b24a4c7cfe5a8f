"""Linux network namespaces without names: they vanish when this process ends, however it ends."""

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import subprocess

_CLONE_NEWNET = 0x40000000  # of linux/sched.h
_SIOCETHTOOL, _OFFLOADS = 0x8946, (0x17, 0x1F, 0x24, 0x2C)  # of linux/ethtool.h: checksums, TSO, GSO, GRO


class CannotTry(Exception):
    """The error if this machine, or this user, cannot do what a test needs."""


def _call(name, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


class Namespace:
    """A network namespace. Sockets that are made and commands that are started inside `with` are in it."""

    def __init__(self):
        self._home = os.open("/proc/self/ns/net", os.O_RDONLY)
        _call("unshare", _CLONE_NEWNET)
        self.fd = os.open("/proc/self/ns/net", os.O_RDONLY)
        self.path = f"/proc/{os.getpid()}/fd/{self.fd}"
        _call("setns", self._home, _CLONE_NEWNET)

    def __enter__(self):
        _call("setns", self.fd, _CLONE_NEWNET)

    def __exit__(self, *_):
        _call("setns", self._home, _CLONE_NEWNET)

    def close(self):
        os.close(self.fd)
        os.close(self._home)


def command(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def ip(words):
    return command("ip", *words.split())


def set_sysctls(values):
    """Sets sysctls, given by their paths below /proc/sys/net/."""
    for name, value in values.items():
        with open(f"/proc/sys/net/{name}", "w", encoding="ascii") as file:
            file.write(str(value))


def without_offloads(name):
    """Makes an interface send whole packets with whole checksums: a wire passes on nothing else."""
    with socket.socket() as one:
        for setting in _OFFLOADS:
            value = ctypes.create_string_buffer(struct.pack("II", setting, 0))
            with contextlib.suppress(OSError):
                fcntl.ioctl(one, _SIOCETHTOOL, struct.pack("16sP16x", name.encode(), ctypes.addressof(value)))
