"""Traffic through a cluster: customers and an internet at its switches, TCP connections and UDP conversations between them, and floods."""

import heapq
import multiprocessing
import os
import selectors
import socket
import threading
import time

from cluster_hosts import answer
from gre import Home, Tunnels

SERVICE, PORT = "203.0.113.10", 80
SINK = 9  # port of a host where datagrams of floods end
HOSTS = [f"203.0.113.{n}" for n in (101, 102, 103)]
CUSTOMERS = [f"198.51.100.{n}" for n in range(1, 21)]
# The network of hosts at each switch, the address that its switch has there, and the hosts' addresses.
NETWORKS = {"inside": ("198.51.100.254", CUSTOMERS), "outside": ("203.0.113.254", HOSTS)}


def routes(number):
    return f"""[spread]
entries = 128
[[route]]
prefix = "198.51.100.0/24"
via = "10.1.{number}.1"
[[route]]
prefix = "203.0.113.0/24"
via = "10.2.{number}.1"
"""


class Balance:
    """Customers call a service (TCP), and hosts (UDP) through the firewall."""

    ports = {}

    @staticmethod
    def configuration(number):
        backends = ", ".join(f'{{ address = "{host}", port = {PORT} }}' for host in HOSTS)
        return f"""chain = ["firewall", "balance"]
{routes(number)}
[[firewall.rule]]
name = "customers"
source = ["198.51.100.0/24"]
action = "accept"
[[firewall.rule]]
name = "routing"
source = ["10.0.0.0/8"]
action = "accept"
[[service]]
address = "{SERVICE}"
port = {PORT}
protocol = "tcp"
backends = [{backends}]
"""

    def __init__(self, hosts):
        self.inside = hosts["inside"]

    def call(self, number, is_tcp):
        """Returns the socket of a customer that calls a service or a host."""
        return connected(self.inside, is_tcp, (SERVICE, PORT) if is_tcp else host_of(number), CUSTOMERS[number % len(CUSTOMERS)])

    def close(self):
        pass


class Nat:
    """Customers, all with one private address, behind GRE tunnels of their own. Their near end is an address of all servers."""

    NEAR, HOME, POOL = "203.0.113.200", "192.168.1.2", "198.51.100.128/25"
    ports = {"inside": (f'"{NEAR}/32", ', f'tunnel = "gre"\ncustomers = [{", ".join(map(repr, CUSTOMERS))}]\n')}

    @classmethod
    def configuration(cls, number):
        return f"""function = "nat"
{routes(number)}
[[nat.pool]]
name = "homes"
addresses = ["{cls.POOL}"]
block_size = 256
[[nat.rule]]
source = ["192.168.0.0/16"]
customers = "any"
pool = "homes"
"""

    def __init__(self, hosts):
        self.homes = {(far, None): Home(self.HOME) for far in CUSTOMERS}
        self.process = multiprocessing.Process(target=self.carry, args=(hosts["inside"],), daemon=True)
        self.process.start()

    def carry(self, inside):
        Tunnels(inside, self.NEAR, self.homes)
        threading.Event().wait()

    def call(self, number, is_tcp):
        home = self.homes[CUSTOMERS[number % len(CUSTOMERS)], None]
        return connected(home.namespace, is_tcp, host_of(number))

    def close(self):
        self.process.kill()
        self.process.join()
        for home in self.homes.values():
            os.close(home.tun)
            home.namespace.close()


FUNCTIONS = {"balance": Balance, "nat": Nat}


def host_of(number):
    return HOSTS[number % len(HOSTS)], PORT


def connected(namespace, is_tcp, to, address=None):
    with namespace:
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM if is_tcp else socket.SOCK_DGRAM)
    made.settimeout(10)
    if address:
        made.bind((address, 0))
    made.connect(to)
    made.setblocking(False)
    return made


class Conversation:
    """A customer's: sends the next message `pace_s` after the answer (TCP), or after the last one (UDP). Messages are `size` bytes long."""

    def __init__(self, number, made, is_tcp, pace_s, size):
        self.number, self.socket, self.is_tcp, self.pace_s, self.size = number, made, is_tcp, pace_s, size
        self.sent, self.got, self.is_broken = 0, b"", ""
        self.answered = []  # times of answers

    def text(self, sent):
        words = f"{self.number} {sent} ".encode()
        return (words * (self.size // len(words) + 1))[:self.size - 1] + b"\n"

    def takes(self, data):
        """Returns True if a datagram is the answer to one that was sent."""
        words = data.split(b" ", 2)
        return len(words) == 3 and words[1].isdigit() and int(words[1]) <= self.sent and data == self.text(int(words[1]))


class Traffic:
    """`tcp` connections, `udp` conversations with a message every `pace_s` each, and `slow` ones: less than the 2 minutes apart for which RFC 4787 lets
    a NAT remember them."""

    SLOW_S = 110

    def __init__(self, hosts, function, tcp, udp, slow=0, pace_s=0.05, size=100):
        self.hosts, self.function, self.pace_s, self.size = hosts, function(hosts), pace_s, size
        self.listening, self.datagrams = [], []
        for host in HOSTS:
            for kind, made in ((socket.SOCK_STREAM, self.listening), (socket.SOCK_DGRAM, self.datagrams)):
                with hosts["outside"]:
                    made.append(socket.socket(socket.AF_INET, kind))
                made[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                made[-1].bind((host, PORT))
        for one in self.listening:
            one.listen(1000)
        self.process = multiprocessing.Process(target=answer, args=(self.listening, self.datagrams), daemon=True)
        self.process.start()
        self.selector = selectors.DefaultSelector()
        self.due = []
        self.all = [self.begin(number, number < tcp, self.SLOW_S if number >= tcp + udp else pace_s) for number in range(tcp + udp + slow)]

    def begin(self, number, is_tcp, pace_s):
        made = self.function.call(number, is_tcp)
        one = Conversation(number, made, is_tcp, pace_s, self.size)
        self.selector.register(made, selectors.EVENT_READ, one)
        heapq.heappush(self.due, (time.monotonic() + number % 50 / 50 * self.pace_s, number))
        return one

    def send(self, one):
        one.sent += 1
        try:
            one.socket.send(one.text(one.sent))
        except OSError as error:
            if one.is_tcp:
                one.is_broken = str(error)
        if not one.is_tcp:
            heapq.heappush(self.due, (time.monotonic() + one.pace_s, one.number))

    def receive(self, one):
        try:
            data = one.socket.recv(65536)
        except OSError as error:
            if one.is_tcp:
                one.is_broken = str(error)
                self.selector.unregister(one.socket)
            return
        if one.is_tcp:
            one.got += data
            if not data or not one.text(one.sent).startswith(one.got):
                one.is_broken = "ended" if not data else "damaged"
                self.selector.unregister(one.socket)
                return
            if len(one.got) < one.size:
                return
            one.got = b""
            heapq.heappush(self.due, (time.monotonic() + one.pace_s, one.number))
        elif not one.takes(data):
            one.is_broken = "damaged"
            self.selector.unregister(one.socket)
            return
        one.answered.append(time.monotonic())

    def await_answers(self, seconds=0.5):
        """Takes answers that are still on their way, without sending."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            for key, _ in self.selector.select(left):
                self.receive(key.data)

    def run(self, until):
        while (now := time.monotonic()) < until:
            while self.due and self.due[0][0] <= now:
                one = self.all[heapq.heappop(self.due)[1]]
                if not one.is_broken:
                    self.send(one)
            wait = min(self.due[0][0] if self.due else until, until) - time.monotonic()
            for key, _ in self.selector.select(max(wait, 0)):
                self.receive(key.data)

    def close(self):
        self.function.close()
        self.process.kill()
        self.process.join()
        for one in (*self.listening, *self.datagrams, *(one.socket for one in self.all)):
            one.close()

    def gaps(self, since, until, kinds=(True, False)):
        """Returns the longest time without an answer of each conversation that has not been reset or damaged, in ms. `kinds`: TCP, or not."""
        found = []
        for one in self.all:
            if one.is_broken or one.is_tcp not in kinds or one.pace_s == self.SLOW_S:
                continue
            times = [at for at in one.answered if since <= at < until]
            times = [max((at for at in one.answered if at < since), default=since), *times, until]
            found.append(1000 * (max(b - a for a, b in zip(times, times[1:])) - one.pace_s))
        return found


def send_for_ever(sockets, rate):
    """Sends datagrams of the sockets in turn, `rate` a second; 0: as fast as possible."""
    os.nice(19)  # senders must not keep what routes from running
    burst, next_at = 32, time.monotonic()
    while True:
        for at in range(0, len(sockets), burst):
            for one in sockets[at:at + burst]:
                try:
                    one.send(bytes(32))
                except OSError:
                    pass
            if rate:
                next_at = max(next_at + burst / rate, time.monotonic() - 0.1)
                time.sleep(max(next_at - time.monotonic(), 0))


class Flood:
    """Datagrams of many conversations from customers to hosts, which do not answer."""

    PROCESSES, CONVERSATIONS = 2, 512  # of each process

    def __init__(self, hosts):
        self.hosts, self.processes, self.sinks, self.senders = hosts, [], [], []
        with hosts["outside"]:
            for host in HOSTS:
                self.sinks.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                self.sinks[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                self.sinks[-1].bind((host, SINK))
        with hosts["inside"]:
            for number in range(self.PROCESSES * self.CONVERSATIONS):
                one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                one.bind((CUSTOMERS[number % len(CUSTOMERS)], 0))
                one.connect((HOSTS[number % len(HOSTS)], SINK))
                self.senders.append(one)

    def begin(self, rate=0):
        for number in range(self.PROCESSES):
            own = self.senders[number::self.PROCESSES]
            self.processes.append(multiprocessing.Process(target=send_for_ever, args=(own, rate / self.PROCESSES), daemon=True))
            self.processes[-1].start()

    def end(self):
        for process in self.processes:
            process.kill()
            process.join()
        self.processes = []

    def counts(self):
        """Returns how many packets customers have sent, and hosts have got, so far: of everyone."""
        found = []
        for side, direction in (("inside", "tx"), ("outside", "rx")):
            with self.hosts[side]:
                fields = [line.split() for line in open("/proc/thread-self/net/dev", encoding="ascii") if "wire:" in line][0]
            found.append(int(fields[2 if direction == "rx" else 10]))
        return found

    def measure(self, seconds):
        """Returns packets a second that customers send, and hosts get, within that time."""
        before, since = self.counts(), time.monotonic()
        time.sleep(seconds)
        passed = time.monotonic() - since
        return [(after - was) / passed for was, after in zip(before, self.counts())]

    def close(self):
        self.end()
        for one in (*self.sinks, *self.senders):
            one.close()
