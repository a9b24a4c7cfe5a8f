"""Common parts of tests that send requests to a running `millrace run` through its control socket."""

import collections
import http.client
import json
import os
import socket
import threading
import urllib.parse

from live import Live
from network import ADDRESSES, SERVER_PORT, Client, Servers, configuration

SECONDS = float(os.environ.get("MILLRACE_TEST_SECONDS", "3"))
IPV4 = ADDRESSES[4]
FIRST, SECOND = IPV4["servers"]
TAKEN_OVER = "millrace: another process has taken over\n"
GOOD = configuration("af_packet:outside", "af_packet:inside")


def without(address):
    """Returns GOOD without the backend at `address`."""
    one = f'{{ address = "{address}", port = {SERVER_PORT} }}'
    return GOOD.replace(one + ", ", "").replace(", " + one, "")


def without_services():
    """Returns GOOD without the first two services, which are those of IPv4."""
    head, _, _, *rest = GOOD.split("[[service]]")
    return "[[service]]".join([head, *rest])


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("millrace", timeout=20)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Asked(Live):
    def serve_with(self, text=GOOD, network=None, **options):
        self.network_ = network or self.network(**options)
        self.servers = Servers(self.network_)
        self.addCleanup(self.servers.close)
        self.start(self.network_, text)

    def server(self, kind=socket.SOCK_STREAM, port=5353, address=FIRST):
        """Returns a socket at a server's address."""
        made = self.socket_in(self.network_.servers, socket.AF_INET, kind)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
        if kind == socket.SOCK_STREAM:
            made.listen(100)
        return made

    def answer(self, method, path, body=None, **parameters):
        connection = Connection(self.control)
        self.addCleanup(connection.close)
        # If the connection stayed open, a thread of millrace would wait for the next request.
        connection.request(method, path + "?" + urllib.parse.urlencode(parameters, quote_via=urllib.parse.quote),
                           body=body, headers={"Connection": "close"})
        return connection.getresponse()

    def bytes_of(self, path, **parameters):
        answer = self.answer("POST", path, **parameters)
        self.assertEqual(answer.status, 200)
        return answer.read()

    def ask(self, what, status=200, **parameters):
        """Sends the request `what`, such as "GET /stats"; checks the status, and returns the decoded answer."""
        answer = self.answer(*what.split(), **parameters)
        body = answer.read().decode()
        self.assertEqual(answer.status, status, body)
        if answer.getheader("Content-Type") == "application/x-ndjson":
            return [json.loads(line) for line in body.splitlines()]
        return json.loads(body)

    def refused(self, status, words, what, **parameters):
        error = self.ask(what, status, **parameters)["error"]
        for word in words:
            self.assertIn(word, error)

    def clients(self, count, family=4):
        all_of_them = [Client(self.network_, family) for _ in range(count)]
        for client in all_of_them:
            self.addCleanup(client.close)
        return all_of_them

    def servers_of(self, count):
        """Opens `count` connections, and returns how many went to each server."""
        return collections.Counter(client.get(1) for client in self.clients(count))

    def reload(self, text):
        self.write("f.toml", text)
        return self.ask("POST /reload")

    def take_over(self, text=GOOD, left_behind=0):
        """Starts a process that takes over from the running one. Returns the number of connections taken over."""
        old, stats = self.process, self.stats
        try:
            said = self.said = self.start(self.network_, text, "--take-over")
            self.ended(old)
        except BaseException:
            old.kill()
            old.communicate()
            raise
        new, self.stats = self.stats, stats
        self.counted()
        self.stats = new
        [words] = [line.split() for line in said if "took over" in line]
        self.assertEqual(words[5:], [str(left_behind), "were", "left", "behind"])
        return int(words[3])

    def ended(self, process):
        """Checks that `process` ends because another process has taken over from it."""
        # The kernel closes packet sockets slowly while all processors are busy.
        _, error = process.communicate(timeout=100)
        self.assertEqual((process.returncode, error), (0, TAKEN_OVER))

    def transferring(self, count):
        """Starts `count` connections that transfer data. Returns a function that ends them and returns an error for
        each connection that was reset or changed its server."""
        ended = threading.Event()
        wrong = []

        def transfer(client):
            try:
                first = client.get(1)
                while not ended.is_set():
                    if client.get(2000) != first:
                        raise AssertionError("a connection changed its server")
            except (OSError, AssertionError) as error:
                wrong.append(error)

        threads = [threading.Thread(target=transfer, args=(client,)) for client in self.clients(count)]
        for thread in threads:
            thread.start()

        def end():
            ended.set()
            for thread in threads:
                thread.join()
            return wrong

        return end
