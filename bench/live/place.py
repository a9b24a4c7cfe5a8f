"""A network in which millrace, testpmd or the kernel forwards, so that these forwarders can be measured in turn.

    client ─ veth ─ forwarder ─ veth ─ servers

Offloads are off at both ends and neighbours are static, so that every forwarder gets the same frames.
"""

import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))

from namespaces import command, ip, set_sysctls  # noqa: E402
from network import ADDRESSES, Network  # noqa: E402

SERVICE, SERVER = ADDRESSES[4]["service"], ADDRESSES[4]["servers"][0]
OUTSIDE, INSIDE = ADDRESSES[4]["outside"], ADDRESSES[4]["inside"]
NOBODY = "02:00:00:00:00:99"


def mac(interface):
    return json.loads(command("ip", "-j", "link", "show", interface))[0]["address"]


def packets_of(interface):
    """Returns how many packets the interface of that name in this namespace has received."""
    with open("/proc/thread-self/net/dev", encoding="ascii") as file:
        [line] = [line for line in file if line.strip().startswith(interface + ":")]
    return int(line.split(":")[1].split()[1])


def in_words(values):
    return f"{statistics.median(values):.4g} ({min(values):.4g}-{max(values):.4g})"


class Place:
    def __init__(self, millrace, device, folder, ports=(80,), backend_mac=None, extra=""):
        self.network = Network()
        self._millrace, self._device, self._folder = millrace, device, folder
        self._ports, self._backend_mac, self._extra = ports, backend_mac, extra
        self._macs = {}
        for name in "client", "servers", "middle":
            with getattr(self.network, name):
                for interface in ("outside", "inside") if name == "middle" else ("wire",):
                    command("ethtool", "-K", interface, *"rx off tx off tso off gso off gro off".split())
                    self._macs[name, interface] = mac(interface)

    def close(self):
        self.network.close()

    def configuration(self, workers=2):
        known = f'neighbours = [{{ address = "{SERVER}", mac = "{self._backend_mac}" }}]\n' if self._backend_mac else ""
        text = f"""workers = {workers}
{self._extra}
[[port]]
name = "outside"
device = "{self._device}:outside"
addresses = ["{OUTSIDE}/24"]
[[port]]
name = "inside"
device = "{self._device}:inside"
addresses = ["{INSIDE}/24"]
{known}"""
        for port in self._ports:
            for protocol in "udp", "tcp":
                text += f"""[[service]]
address = "{SERVICE}"
port = {port}
protocol = "{protocol}"
backends = [{{ address = "{SERVER}", port = {port}, weight = 1 }}]
"""
        return text

    def know_middle(self):
        """Sets the MACs of the forwarder's interfaces as static neighbours at both ends."""
        self._know(self._macs["middle", "outside"], self._macs["middle", "inside"])

    def _know(self, of_client, of_servers):
        with self.network.client:
            ip(f"neighbour replace {OUTSIDE} lladdr {of_client} dev wire nud permanent")
        with self.network.servers:
            ip(f"neighbour replace {INSIDE} lladdr {of_servers} dev wire nud permanent")

    @contextlib.contextmanager
    def millrace(self):
        """Runs millrace as the forwarder, and yields the address to send to."""
        self.know_middle()
        path = os.path.join(self._folder, "f.toml")
        with open(path, "w", encoding="ascii") as file:
            file.write(self.configuration())
        control = os.path.join(self._folder, "control")
        with self.network.middle, started([self._millrace, "run", "-c", path, "--control", control], "running with"):
            yield SERVICE

    @contextlib.contextmanager
    def testpmd(self):
        """Runs DPDK's testpmd in io mode, which does not change frames, and yields the address to send to."""
        self._know(self._macs["servers", "wire"], self._macs["client", "wire"])
        # A veth has one queue; packet sockets may have any number.
        queues, arguments = {
            "af_packet": (2, "qpairs=2,qdisc_bypass=1,framesz=2048,blocksz=65536,framecnt=4096"),
            "af_xdp": (1, "start_queue=0,queue_count=1,busy_budget=0"),
        }[self._device]
        devices = [f"--vdev=net_{self._device}{n},iface={name},{arguments}" for n, name in enumerate(("outside", "inside"))]
        words = testpmd_words(["--lcores=0@(0,1),1@0,2@1", *devices], ["--nb-cores=2", f"--rxq={queues}", f"--txq={queues}"])
        with self.network.middle, started(words, "Press enter"):
            yield SERVER

    @contextlib.contextmanager
    def kernel(self):
        """Makes the kernel forward, and yields the address to send to."""
        self.know_middle()
        with self.network.middle:
            ip(f"address add {OUTSIDE}/24 dev outside")
            ip(f"address add {INSIDE}/24 dev inside")
            set_sysctls({"ipv4/ip_forward": 1})
        try:
            yield SERVER
        finally:
            with self.network.middle:
                for interface in "outside", "inside":
                    ip(f"address flush dev {interface}")


def memif_configuration(folder):
    """Returns the paths of two sockets and of a configuration with which millrace listens on these sockets."""
    sockets = [os.path.join(folder, name) for name in ("out", "back")]
    path = os.path.join(folder, "f.toml")
    with open(path, "w", encoding="ascii") as file:
        file.write(f"""[host]
idle = "spin"
[table]
capacity = 1300000
[[port]]
name = "outside"
device = "memif:{sockets[0]},mac=02:00:00:00:00:02,rsize=13"
addresses = ["{OUTSIDE}/24"]
[[port]]
name = "inside"
device = "memif:{sockets[1]},rsize=13"
addresses = ["{INSIDE}/24"]
neighbours = [{{ address = "{SERVER}", mac = "{NOBODY}" }}]
[[service]]
address = "{SERVICE}"
port = 80
protocol = "udp"
backends = [{{ address = "{SERVER}", weight = 1 }}]
""")
    return sockets, path


def memif_devices(sockets, role):
    return [f"--vdev=net_memif{n},role={role},socket={path},socket-abstract=no,id=0,rsize=13"
            for n, path in enumerate(sockets)]


def testpmd_words(eal, more=(), huge=False):
    memory = ["--in-memory"] if huge else ["--no-huge", "-m", "1024"]
    return ["stdbuf", "-oL", "dpdk-testpmd", "--no-pci", "--no-telemetry", *memory, *eal,
            "--", "--forward-mode=io", "--auto-start", "--no-mlockall", *more]


@contextlib.contextmanager
def started(words, once_it_says):
    """Runs a process until the context ends, then sends SIGTERM. Waits until the process's output contains `once_it_says`.
    Yields the process, whose `said()` returns the output so far. Its standard input stays open."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, text=True)

        def said():
            with open(f"/proc/self/fd/{log.fileno()}", encoding="utf-8", errors="replace") as file:
                return file.read()

        try:
            until = time.monotonic() + 60
            while once_it_says not in said():
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"{' '.join(words)}: {said()}")
                time.sleep(0.05)
            process.said = said
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def number_in(text, pattern):
    return int(re.findall(pattern, text)[-1])
