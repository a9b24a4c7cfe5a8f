"""Events in a cluster, most of them at its server 2, and what becomes of the cluster after them."""

import os
import re
import signal
import subprocess
import threading
import time
from typing import Callable, NamedTuple

from cluster import wait_until
from cluster_ports import CUTS
from cluster_traffic import Flood
from namespaces import command, ip

VICTIM = 2
PATIENCE_S = 600  # NAT's ports rest for minutes


class Scene:
    """The cluster in which an event happens, and what it needs meanwhile. `notes` are figures of the event itself."""

    def __init__(self, cluster, hosts, options):
        self.options = options
        self.cluster, self.hosts, self.notes, self.flood = cluster, hosts, {}, None
        self.groups = []  # control groups, and the process in each

    def shards(self):
        return self.cluster.status()["shards"]

    def close(self):
        if self.flood is not None:
            self.flood.close()
        free_processors(self)


def signal_dataplane(what):
    return lambda scene: scene.cluster.dataplanes[VICTIM].send_signal(what)


def kill_agent(scene):
    scene.cluster.agents[VICTIM].kill()


def cut(name):
    return lambda scene: CUTS[name][1](scene.cluster)


def drain(scene):
    begun = time.monotonic()
    scene.cluster.operate(1, "drain", f"server{VICTIM}", seconds=PATIENCE_S)
    scene.notes["drained_s"] = round(time.monotonic() - begun, 1)


def move(scene):
    """Moves the shards of the server to their slaves, one by one."""
    lengths = []
    for one in scene.shards():
        if one["master"] == VICTIM and one["slave"]:
            begun = time.monotonic()
            scene.cluster.operate(1, "move", str(one["shard"]), f"server{one['slave']}")
            lengths.append(time.monotonic() - begun)
    scene.notes["moved"] = len(lengths)


def upgrade(scene):
    begun = time.monotonic()
    scene.notes["restarted"] = scene.cluster.upgrade()
    scene.notes["upgraded_s"] = round(time.monotonic() - begun, 1)


def await_status(scene, holds, seconds=300):
    """Waits until something holds of what `millctl cluster status` says; while the store does not answer, nothing does."""
    def is_so():
        try:
            return holds(scene.cluster.status())
        except RuntimeError:
            return False
    wait_until(is_so, seconds, 0.5)


def states(status):
    return [one["state"] for one in status["servers"]]


def masters(status):
    return {one["master"] for one in status["shards"]}


def rise_and_fall(scene):
    """Waits until a server is taken out of use, has the load rise, and waits until the server is in use again."""
    begun = time.monotonic()
    await_status(scene, lambda status: states(status).count("spare") == 1)
    scene.notes["spare_s"] = round(time.monotonic() - begun, 1)
    spare = 1 + states(scene.cluster.status()).index("spare")
    await_status(scene, lambda status: not any(spare in (one["master"], one["slave"]) for one in status["shards"]))
    scene.flood = Flood(scene.hosts)
    scene.flood.begin(rate=1.2 * load_of(scene.options))
    begun = time.monotonic()
    await_status(scene, lambda status: "spare" not in states(status))
    scene.notes["in_use_s"] = round(time.monotonic() - begun, 1)
    # A server that has come back gets its share two minutes later.
    await_status(scene, lambda status: spare in masters(status))
    scene.notes["has_shards_s"] = round(time.monotonic() - begun, 1)
    scene.flood.end()


def join(scene):
    """Starts the server that has been missing, and waits until it is the master of shards."""
    cluster, number = scene.cluster, max(scene.cluster.servers)
    begun = time.monotonic()
    cluster.start_server(number)
    wait_until(lambda: all(number in hops for hops in cluster.next_hops()), 60, 0.2)
    scene.notes["gets_packets_s"] = round(time.monotonic() - begun, 1)
    await_status(scene, lambda status: number in masters(status))
    scene.notes["has_shards_s"] = round(time.monotonic() - begun, 1)


def count_special(scene):
    """Counts fragments, and ICMP errors that say that a packet is too large, on their way from the switches to each server."""
    kinds = {"fragments": "ip frag-off & 0x3fff != 0", "errors": "icmp type destination-unreachable icmp code 4"}
    for switch in scene.cluster.switches.values():
        with switch.namespace:
            text = "add table ip seen; "
            for hook in ("forward", "output"):
                text += f"add chain ip seen {hook} {{ type filter hook {hook} priority 300; }}; "
                text += "; ".join(f"add rule ip seen {hook} oifname s{number} {rule} counter comment {kind}_{number}"
                                  for number in scene.cluster.servers for kind, rule in kinds.items()) + "; "
            command("nft", text)


def counted(scene):
    """Returns what count_special counts, summed up over switches: by kind, for each server."""
    found = {}
    for switch in scene.cluster.switches.values():
        with switch.namespace:
            text = command("nft", "list", "table", "ip", "seen")
        for packets, kind, number in re.findall(r'counter packets (\d+) bytes \d+ comment "(\w+)_(\d+)"', text):
            of = found.setdefault(kind, dict.fromkeys(scene.cluster.servers, 0))
            of[int(number)] += int(packets)
    return found


def narrow(scene):
    """Lets the link of the customers carry less, and then that of the internet's hosts, too."""
    for side, mtu in (("inside", 1400), ("outside", 1300)):
        for namespace, name in ((scene.cluster.switches[side].namespace, "hosts"), (scene.hosts[side], "wire")):
            with namespace:
                ip(f"link set {name} mtu {mtu}")
        time.sleep(5)
    scene.notes.update(counted(scene))


def cut_store(is_cut):
    return lambda scene: scene.cluster.cut_store(is_cut)


# On one machine senders and switches need more of the processors than servers, so each worker gets a small part of one, in short periods.
PART, PERIOD_US = 0.1, 10_000
OLD_GROUPS = "/sys/fs/cgroup/cpu"  # control groups, version 1
ALL_GROUPS = OLD_GROUPS if os.path.exists(f"{OLD_GROUPS}/cpu.cfs_quota_us") else "/sys/fs/cgroup"


def write(path, value):
    with open(path, "w", encoding="ascii") as file:
        file.write(str(value))


def worker_of(process):
    """Returns the thread that has run for the longest time: a worker sleeps little."""
    def ticks(thread):
        with open(f"/proc/{process.pid}/task/{thread}/stat", encoding="ascii") as file:
            return sum(map(int, file.read().rpartition(")")[2].split()[11:13]))
    return max(os.listdir(f"/proc/{process.pid}/task"), key=ticks)


def limit_processors(scene):
    """Limits the worker of each millrace, as if its processor was slow; its other threads, as those for the kernel's interfaces, have processors of
    their own. With control groups of version 2 the limit is that of the process."""
    for process in scene.cluster.dataplanes.values():
        group = os.path.join(ALL_GROUPS, f"millrace-{process.pid}")
        os.mkdir(group)
        scene.groups.append((group, process))
        if ALL_GROUPS == OLD_GROUPS:
            write(f"{group}/cpu.cfs_period_us", PERIOD_US)
            write(f"{group}/cpu.cfs_quota_us", round(PART * PERIOD_US))
            write(f"{group}/tasks", worker_of(process))
        else:
            write(f"{group}/cpu.max", f"{round(PART * PERIOD_US)} {PERIOD_US}")
            write(f"{group}/cgroup.procs", process.pid)


def free_processors(scene):
    while scene.groups:
        group, process = scene.groups.pop()
        if process.poll() is None:
            write(f"{ALL_GROUPS}/cgroup.procs", process.pid)
        os.rmdir(group)


def find_most(scene):
    """Finds out how many packets a second the servers forward at most: more are sent until some are lost."""
    limit_processors(scene)
    scene.flood = Flood(scene.hosts)
    rate, most, sent, got = 10_000, 0, 0, 0
    while got >= 0.95 * sent:
        scene.flood.begin(rate)
        time.sleep(0.5)
        sent, got = scene.flood.measure(2)
        scene.flood.end()
        rate, most = 1.2 * rate, max(most, got)
    scene.notes["most_forwarded_per_s"] = round(most)


def find_most_alone(scene):
    for number in list(scene.cluster.servers)[1:]:
        scene.cluster.operate(1, "drain", f"server{number}", seconds=PATIENCE_S)
    find_most(scene)


def backlog_drops():
    """Returns how many packets the kernel has dropped before any interface got them, as a processor had too many: in the switches, too."""
    with open("/proc/net/softnet_stat", encoding="ascii") as file:
        return sum(int(line.split()[1], 16) for line in file)


def overload(scene):
    before = backlog_drops()
    scene.flood.begin(rate=2 * scene.notes["most_forwarded_per_s"])
    sent, got = scene.flood.measure(OVERLOAD_S - 5)
    scene.notes.update(sent_per_s=round(sent), forwarded_per_s=round(got), dropped_by_kernel=backlog_drops() - before)


OVERLOAD_S = 60


def load_of(options):
    """Returns packets a second that servers have of conversations, about."""
    return 2.5 * (options.tcp + options.udp) / options.pace


def elastic(options):
    """Returns configurations with which one of four servers is not needed for the conversations, and is for twice as much."""
    return f'capacity = {0.8 * load_of(options)}\nelasticity = "on"\nelasticity_in_s = 20\nelasticity_out_s = 40\n'


class Event(NamedTuple):
    text: str
    begin: Callable
    finish: Callable = lambda scene: None  # ends what `begin` began, `lasts_s` later
    lasts_s: float = 0
    heals: bool = True  # the server loses all its shards
    prepare: Callable = lambda scene: None
    is_slow: bool = False  # `begin` takes its time
    absent: int = 0  # servers that are not there before
    agent: Callable = None  # returns more of the agents' configurations
    size: int = 100  # bytes of a message


EVENTS = {
    "none": Event("nothing happens", lambda scene: None, heals=False),
    "kill": Event("server 2's millrace is killed", signal_dataplane(signal.SIGKILL)),
    "stop": Event("server 2's millrace hangs, and goes on 10 s later", signal_dataplane(signal.SIGSTOP), signal_dataplane(signal.SIGCONT), 10),
    "agent": Event("server 2's agent is killed", kill_agent),
    "inside": Event("server 2's link to the customers' switch fails", cut("inside")),
    "outside": Event("server 2's link to the internet's switch fails", cut("outside")),
    "inside-to": Event("packets from the customers' switch to server 2 are lost", cut("inside-to")),
    "inside-from": Event("packets from server 2 to the customers' switch are lost", cut("inside-from")),
    "outside-to": Event("packets from the internet's switch to server 2 are lost", cut("outside-to")),
    "outside-from": Event("packets from server 2 to the internet's switch are lost", cut("outside-from")),
    "drain": Event("server 2 leaves (millctl cluster drain)", drain, is_slow=True),
    "move": Event("server 2's shards move to their slaves, one by one (millctl cluster move)", move, heals=False, is_slow=True),
    "join": Event("a further server joins, and gets its share of the shards", join, heals=False, is_slow=True, absent=1),
    "upgrade": Event("every server's millrace is restarted (millctl cluster upgrade)", upgrade, heals=False, is_slow=True),
    "elastic": Event("the load is low, so a server is taken out of use; then high, so it comes back", rise_and_fall, heals=False, is_slow=True,
                     agent=elastic),
    "mtu": Event("links carry smaller packets than before: first the customers', then the internet's", narrow, heals=False, is_slow=True,
                 prepare=count_special, size=4000),
    "store": Event("the store is gone for a minute", cut_store(True), cut_store(False), 60, heals=False),
    "overload": Event("twice the packets that servers can forward come for a minute", overload, lambda scene: scene.flood.end(), OVERLOAD_S,
                      heals=False, prepare=find_most, is_slow=True),
    "most": Event("servers forward as many packets as they can", find_most, heals=False, is_slow=True),
    "most-alone": Event("server 1 forwards as many packets as it can, after all others have left", find_most_alone, heals=False, is_slow=True),
}


class Happening:
    """An event that has begun; other threads wait for its end, and for the cluster to be whole again."""

    def __init__(self, event, scene):
        self.event, self.scene, self.begun, self.healed_s, self.error = event, scene, time.monotonic(), None, None
        self.threads = []
        if event.is_slow:
            self.start(lambda: event.begin(scene))
        else:
            event.begin(scene)
        if event.heals:
            self.start(self.heal)

    def start(self, do):
        def run():
            try:
                do()
            except (RuntimeError, subprocess.TimeoutExpired, TimeoutError, OSError) as error:
                self.error = error
        self.threads.append(threading.Thread(target=run, daemon=True))
        self.threads[-1].start()

    def is_whole(self):
        """True if every shard has two copies in sync, at servers that are there."""
        try:
            shards = self.scene.shards()
        except (RuntimeError, subprocess.TimeoutExpired):
            return False
        return all(one["in_sync"] and VICTIM not in (one["master"], one["slave"]) for one in shards)

    def heal(self):
        while time.monotonic() < self.begun + PATIENCE_S:
            if self.is_whole():
                self.healed_s = round(time.monotonic() - self.begun, 1)
                return
            time.sleep(0.2)

    def goes_on(self):
        """Returns True while an event that takes its time has not ended."""
        return self.event.is_slow and self.threads[0].is_alive()

    def join(self):
        for thread in self.threads:
            thread.join(PATIENCE_S + 10)
        if self.error is not None:
            raise self.error
