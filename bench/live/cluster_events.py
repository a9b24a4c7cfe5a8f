"""Events in a cluster, most of them at its server 2, and what becomes of the cluster after them."""

import os
import signal
import subprocess
import threading
import time
from typing import Callable, NamedTuple

from cluster_traffic import Flood
from namespaces import command, ip

VICTIM = 2


class Scene:
    """The cluster in which an event happens, and what it needs meanwhile. `notes` are figures of the event itself."""

    def __init__(self, cluster, hosts):
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


def fail_link(side):
    def fail(scene):
        with scene.cluster.switches[side].namespace:
            ip(f"link set s{VICTIM} down")
    return fail


def fail_direction(side, to_server):
    """One direction of a link drops all IPv4 packets, and the link stays up."""
    rules = [("forward", "forward", f"oifname s{VICTIM}"), ("output", "output", f"oifname s{VICTIM}")] if to_server else \
            [("prerouting", "prerouting", f"iifname s{VICTIM}")]

    def fail(scene):
        with scene.cluster.switches[side].namespace:
            command("nft", "add table ip cut; " + "; ".join(
                f"add chain ip cut {name} {{ type filter hook {hook} priority -300; }}; add rule ip cut {name} {what} drop"
                for name, hook, what in rules))
    return fail


def drain(scene):
    begun = time.monotonic()
    scene.cluster.operate(1, "drain", f"server{VICTIM}", seconds=120)
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


def cut_store(is_cut):
    return lambda scene: scene.cluster.cut_store(is_cut)


# On one machine senders and switches need more of the processors than servers, so each millrace gets a small part of one, in short periods.
PART, PERIOD_US = 0.1, 10_000
OLD_GROUPS = "/sys/fs/cgroup/cpu"  # control groups, version 1
ALL_GROUPS = OLD_GROUPS if os.path.exists(f"{OLD_GROUPS}/cpu.cfs_quota_us") else "/sys/fs/cgroup"


def write(path, value):
    with open(path, "w", encoding="ascii") as file:
        file.write(str(value))


def limit_processors(scene):
    for process in scene.cluster.dataplanes.values():
        group = os.path.join(ALL_GROUPS, f"millrace-{process.pid}")
        os.mkdir(group)
        scene.groups.append((group, process))
        if ALL_GROUPS == OLD_GROUPS:
            write(f"{group}/cpu.cfs_period_us", PERIOD_US)
            write(f"{group}/cpu.cfs_quota_us", round(PART * PERIOD_US))
        else:
            write(f"{group}/cpu.max", f"{round(PART * PERIOD_US)} {PERIOD_US}")
        write(f"{group}/cgroup.procs", process.pid)


def free_processors(scene):
    while scene.groups:
        group, process = scene.groups.pop()
        if process.poll() is None:
            write(f"{ALL_GROUPS}/cgroup.procs", process.pid)
        os.rmdir(group)


def prepare_overload(scene):
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


def overload(scene):
    scene.flood.begin(rate=2 * scene.notes["most_forwarded_per_s"])
    sent, got = scene.flood.measure(OVERLOAD_S - 5)
    scene.notes.update(sent_per_s=round(sent), forwarded_per_s=round(got))


OVERLOAD_S = 60


class Event(NamedTuple):
    text: str
    begin: Callable
    finish: Callable = lambda scene: None  # ends what `begin` began, `lasts_s` later
    lasts_s: float = 0
    heals: bool = True  # the server loses all its shards
    prepare: Callable = lambda scene: None
    is_slow: bool = False  # `begin` takes its time


EVENTS = {
    "none": Event("nothing happens", lambda scene: None, heals=False),
    "kill": Event("server 2's millrace is killed", signal_dataplane(signal.SIGKILL)),
    "stop": Event("server 2's millrace hangs, and goes on 10 s later", signal_dataplane(signal.SIGSTOP), signal_dataplane(signal.SIGCONT), 10),
    "agent": Event("server 2's agent is killed", kill_agent),
    "inside": Event("server 2's link to the customers' switch fails", fail_link("inside")),
    "outside": Event("server 2's link to the internet's switch fails", fail_link("outside")),
    "inside-to": Event("packets from the customers' switch to server 2 are lost", fail_direction("inside", True)),
    "inside-from": Event("packets from server 2 to the customers' switch are lost", fail_direction("inside", False)),
    "outside-to": Event("packets from the internet's switch to server 2 are lost", fail_direction("outside", True)),
    "outside-from": Event("packets from server 2 to the internet's switch are lost", fail_direction("outside", False)),
    "drain": Event("server 2 leaves (millctl cluster drain)", drain, is_slow=True),
    "move": Event("server 2's shards move to their slaves, one by one (millctl cluster move)", move, heals=False, is_slow=True),
    "store": Event("the store is gone for a minute", cut_store(True), cut_store(False), 60, heals=False),
    "overload": Event("twice the packets that servers can forward come for a minute", overload, lambda scene: scene.flood.end(), OVERLOAD_S,
                      heals=False, prepare=prepare_overload, is_slow=True),
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
            except (RuntimeError, subprocess.TimeoutExpired, OSError) as error:
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
        while time.monotonic() < self.begun + 120:
            if self.is_whole():
                self.healed_s = round(time.monotonic() - self.begun, 1)
                return
            time.sleep(0.2)

    def join(self):
        for thread in self.threads:
            thread.join(130)
        if self.error is not None:
            raise self.error
