"""A cluster in network namespaces: servers, each with millrace and an agent, between two switches, which are FRR, and a network for management:

    customers ─ FRR ─┬─ 1 ─┬─ FRR ─ internet
                     ├─ 2 ─┤
                     └─ 3 ─┘

The store is etcd within the agents, or ZooKeeper. Needs root, millctl-cluster, and Debian's package frr (its programs: the service need not run).
"""

import contextlib
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

from namespaces import Namespace, command, ip, set_sysctls

FRR = "/usr/lib/frr"
NICE = ("nice", "-n", "-5")  # of FRR and of agents, as in their units
SIDES = ("inside", "outside")
SERVED = {"inside": "203.0.113.0/24", "outside": "198.51.100.0/24"}  # announced to the switch of that side
# The jars of Debian's package zookeeper. The first one names most of the others that it needs.
ZOOKEEPER = "/usr/share/java/zookeeper.jar"
ZOOKEEPER_JARS = f"{ZOOKEEPER}:/usr/share/java/netty-codec.jar:/usr/share/java/slf4j-nop.jar"
ZOOKEEPER_ENDS = ("192.168.0.254", 2181)
ZEBRA = "no zebra nexthop kernel enable\n"  # FRR 8.4: otherwise a link that was down stays out of routes


def missing(program, store="etcd"):
    """Returns why a cluster cannot be tried here; empty if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not os.path.exists(f"{FRR}/bgpd"):
        return "FRR's programs are not there (package frr)"
    if store == "zookeeper" and not (os.path.exists(ZOOKEEPER) and shutil.which("java")):
        return "ZooKeeper or a Java is not there (packages zookeeper, default-jre-headless)"
    return "" if os.path.exists(program) else f"{program} is not built (./check cluster)"


class Switch:
    """FRR in a namespace. A link to each server: 10.SIDE.SERVER.1/24, the server has .2."""

    def __init__(self, side, count, bfd_ms):
        self.side, self.namespace = side, Namespace()
        self.number = 1 + SIDES.index(side)
        self.directory = tempfile.mkdtemp(prefix="millrace-frr")
        owner = pwd.getpwnam("frr")
        os.chown(self.directory, owner.pw_uid, owner.pw_gid)
        os.chmod(self.directory, 0o755)
        self.processes = []
        bgp = "router bgp 65000\n bgp router-id 10.0.0.1\n no bgp ebgp-requires-policy\n timers bgp 1 3\n"
        for server in range(1, count + 1):
            for line in ("remote-as 65001", "bfd profile fast", "advertisement-interval 0", "password cluster"):
                bgp += f" neighbor 10.{self.number}.{server}.2 {line}\n"
        self.files = {"zebra": ZEBRA, "bfdd": f"bfd\n profile fast\n  detect-multiplier 3\n  receive-interval {bfd_ms}\n  transmit-interval {bfd_ms}\n",
                      "bgpd": bgp}

    def link(self, server, namespace):
        with self.namespace:
            ip(f"link add s{server} type veth peer name {self.side} netns {namespace.path}")
            ip(f"link set s{server} up")
            ip(f"address add 10.{self.number}.{server}.1/24 dev s{server}")

    def start(self):
        with self.namespace:
            ip("link set lo up")
            set_sysctls({"ipv4/ip_forward": 1, "ipv4/fib_multipath_hash_policy": 1})
            for daemon, text in self.files.items():
                path = os.path.join(self.directory, daemon)
                with open(path + ".conf", "w", encoding="ascii") as file:
                    file.write(text)
                words = [*NICE, f"{FRR}/{daemon}", "-f", path + ".conf", "-i", path + ".pid", "-z", os.path.join(self.directory, "zserv"),
                         "--vty_socket", self.directory, "-A", "127.0.0.1", "-P", "0", "--log", f"file:{path}.log"]
                if daemon == "bfdd":
                    words += ["--bfdctl", os.path.join(self.directory, "bfdd.sock")]
                self.processes.append(subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
                if daemon == "zebra":
                    wait_until(lambda: os.path.exists(os.path.join(self.directory, "zserv")), 10)

    def next_hops(self):
        """Returns the numbers of the servers to which packets for the served prefix go."""
        with self.namespace:
            text = command("ip", "route", "show", SERVED[self.side])
        words = text.split()
        return sorted(int(words[at + 1].split(".")[2]) for at, word in enumerate(words) if word == "via")

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()
        self.namespace.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def wait_until(holds, seconds, pause_s=0.02):
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds} s")
        time.sleep(pause_s)


class Cluster:
    """`text(number)` returns the configuration of a server's functions, without ports and [cluster]. `store`: "etcd" or "zookeeper". `more`: by
    side, addresses of that port before its own, and further keys. `agent`: more of the agents' configurations. `bfd_ms`: 50 is too
    short for a machine whose processors have other work, too."""

    def __init__(self, millrace, millctl_cluster, text, count=3, store="etcd", more=None, agent="", bfd_ms=50):
        self.more, self.agent, self.bfd_ms = more or {}, agent or "", bfd_ms
        self.millrace, self.program, self.text, self.store = millrace, millctl_cluster, text, store
        self.directory = tempfile.mkdtemp(prefix="millrace-cluster")
        self.management, self.hosts = Namespace(), []
        self.servers = {number: Namespace() for number in range(1, count + 1)}
        self.switches = {side: Switch(side, count, bfd_ms) for side in SIDES}
        self.dataplanes, self.agents, self.logs, self.zookeeper = {}, {}, [], None
        with self.management:
            ip("link set lo up")
            for bridge in ("management", "sync"):
                ip(f"link add {bridge} type bridge forward_delay 0")
                ip(f"link set {bridge} up")
            ip(f"address add {ZOOKEEPER_ENDS[0]}/24 dev management")
        for number, namespace in self.servers.items():
            with self.management:
                for bridge, short in (("management", "m"), ("sync", "y")):
                    ip(f"link add {short}{number} type veth peer name {bridge} netns {namespace.path}")
                    ip(f"link set {short}{number} mtu 1700 master {bridge} up")
            for switch in self.switches.values():
                switch.link(number, namespace)
            with namespace:
                ip("link set sync mtu 1700")
                for name in ("lo", "management", "sync", *SIDES):
                    ip(f"link set {name} up")
                ip(f"address add 192.168.0.{number}/24 dev management")
        self.make()

    def add_namespace(self):
        """Returns a namespace for hosts, which ends with the cluster."""
        self.hosts.append(Namespace())
        return self.hosts[-1]

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def make(self):
        names = [f"server{number}=192.168.0.{number}" for number in self.servers]
        zookeeper = ["--zookeeper", "{}:{}".format(*ZOOKEEPER_ENDS)] if self.store == "zookeeper" else []
        command(self.program, "init", self.path("cluster"), *names, *zookeeper)
        for number in self.servers:
            with open(self.path("cluster", f"server{number}", "agent.toml"), encoding="ascii") as file:
                text = file.read()
            text = text.replace("# socket = \"/run/millrace.sock\"", f'socket = "{self.path(f"c{number}")}"\n{self.agent}')
            text = text.replace("/var/lib/millrace/etcd", self.path(f"etcd{number}"))
            if zookeeper:  # without TLS
                text = "".join(line for line in text.splitlines(True) if not line.startswith(("cert =", "key =", "ca =")))
            text += f"[routes]\nasn = 65001\nbfd_interval_ms = {self.bfd_ms}\n"
            for side, switch in self.switches.items():
                text += (f'[[routes.neighbor]]\ndevice = "k-{side}"\nside = "{side}"\nlocal = "10.{switch.number}.{number}.2"\n'
                         f'address = "10.{switch.number}.{number}.1"\nasn = 65000\npassword = "cluster"\nprefixes = ["{SERVED[side]}"]\n')
            with open(self.path("cluster", f"server{number}", "agent.toml"), "w", encoding="ascii") as file:
                file.write(text)
            with open(self.path(f"{number}.toml"), "w", encoding="ascii") as file:
                file.write(self.text(number) + self.ports(number))

    def ports(self, number):
        text = ""
        for side, switch in self.switches.items():
            addresses, keys = self.more.get(side, ("", ""))
            text += (f'[[port]]\nname = "{side}"\ndevice = "af_packet:{side}"\nkernel = "k-{side}"\n'
                     f'addresses = [{addresses}"10.{switch.number}.{number}.2/24"]\n{keys}')
        return text + (f'[[port]]\nname = "sync"\ndevice = "af_packet:sync"\naddresses = ["10.9.0.{number}/24"]\n'
                       f'[cluster]\nserver = {number}\naddress = "10.9.0.{number}"\nkey_file = "{self.path("cluster", "cluster.key")}"\n')

    def start(self, absent=0):
        """Starts all, but so many of the last servers."""
        for switch in self.switches.values():
            switch.start()
        if self.store == "zookeeper":
            self.start_zookeeper()
        for number in list(self.servers)[:len(self.servers) - absent]:
            self.start_server(number)

    def start_server(self, number):
        self.start_dataplane(number)
        self.start_agent(number)

    def start_zookeeper(self):
        address, port = ZOOKEEPER_ENDS
        with open(self.path("zoo.cfg"), "w", encoding="ascii") as file:
            file.write(f"tickTime=500\ndataDir={self.path('zookeeper')}\nclientPortAddress={address}\nclientPort={port}\n"
                       "admin.enableServer=false\n")
        with self.management:
            self.zookeeper = subprocess.Popen(["java", "-Xmx256m", "-Dzookeeper.jmx.log4j.disable=true", "-cp", ZOOKEEPER_JARS,
                                               "org.apache.zookeeper.server.ZooKeeperServerMain", self.path("zoo.cfg")],
                                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def serves():
            with self.management, contextlib.suppress(OSError):
                socket.create_connection(ZOOKEEPER_ENDS, 1).close()
                return True

        wait_until(serves, 60, 0.2)

    def cut_store(self, is_cut):
        """Cuts the store off: most of etcd's servers from each other, or ZooKeeper from all."""
        with self.management:
            for number in self.servers:
                ip(f"link set m{number} {'down' if is_cut else 'up'}")

    def run(self, number, name, *words):
        log = open(self.path(f"{name}{number}.log"), "ab")  # pylint: disable=consider-using-with
        self.logs.append(log)
        with self.servers[number]:
            return subprocess.Popen(words, stdout=log, stderr=log)

    def start_dataplane(self, number):
        self.dataplanes[number] = self.run(number, "millrace", self.millrace, "run", "--config", self.path(f"{number}.toml"),
                                           "--control", self.path(f"c{number}"))

    def restart_dataplane(self, number):
        self.dataplanes[number].terminate()
        self.dataplanes[number].wait(30)
        self.start_dataplane(number)

    def start_agent(self, number):
        self.agents[number] = self.run(number, "agent", *NICE, self.program, "agent", "--config",
                                       self.path("cluster", f"server{number}", "agent.toml"))

    def operate(self, number, *words, seconds=60):
        """Runs a command on a server, and returns what it prints."""
        with self.servers[number]:
            done = subprocess.run([self.program, *words, "--config", self.path("cluster", f"server{number}", "agent.toml")],
                                  capture_output=True, text=True, timeout=seconds)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}: {done.returncode}, {done.stderr}")
        return done.stdout

    def upgrade(self, *words, seconds=900):
        """Has `millctl cluster upgrade` with these words restart servers one by one, and returns their numbers. Its command asks this process, which has started
        them."""
        asked, done, restarted = self.path("restart-asked"), self.path("restart-done"), []
        for path in (asked, done):
            os.mkfifo(path)

        def restart():
            for _ in self.servers:
                with open(asked, encoding="ascii") as file:
                    restarted.append(int(file.read()))
                self.restart_dataplane(restarted[-1])
                with open(done, "w", encoding="ascii") as file:
                    file.write("done\n")

        threading.Thread(target=restart, daemon=True).start()
        self.operate(1, "upgrade", "--restart", f"echo $MILLRACE_SERVER > {asked}; read done < {done}", *words, seconds=seconds)
        return restarted

    def status(self, number=1):
        return json.loads(self.operate(number, "status", "--json"))

    def is_well(self, *states):
        """True if servers are in these states, and all shards have two copies in sync."""
        try:
            is_now = self.status()
        except RuntimeError:
            return False
        return (tuple(one["state"] for one in is_now["servers"]) == states and
                all(one["in_sync"] and one["settled"] and not one["troubles"] for one in is_now["shards"]))

    def next_hops(self):
        return [switch.next_hops() for switch in self.switches.values()]

    def keep(self, path):
        """Copies configurations, logs and captures."""
        shutil.copytree(self.directory, path, ignore=lambda folder, names: [
            name for name in names if name.startswith("etcd") or not (os.path.isdir(os.path.join(folder, name)) or os.path.isfile(os.path.join(folder, name)))])

    def close(self):
        for process in self.agents.values():
            process.kill()
        for process in self.dataplanes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        if self.zookeeper is not None:
            self.zookeeper.kill()
            self.zookeeper.wait()
        for process in (*self.agents.values(), *self.dataplanes.values()):
            process.wait(30)
        for log in self.logs:
            log.close()
        for namespace in (self.management, *self.servers.values(), *self.hosts):
            namespace.close()
        for switch in self.switches.values():
            switch.close()
        shutil.rmtree(self.directory, ignore_errors=True)
