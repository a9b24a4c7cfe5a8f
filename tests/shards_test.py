#!/usr/bin/env python3
"""Tests shards that move between the workers of a running `millrace run`.

    shards_test.py MILLRACE [TEST...]
"""

import os
import random
import socket
import threading
import time

from asked import GOOD, SECONDS, Asked
from live import main
from network import ADDRESSES, FAMILIES, PORT, payload

LEVEL = "[spread]\nlevel = true\nlevel_interval_ms = "
BY_HAND = GOOD + LEVEL + "60000\n"


class Shards(Asked):
    def test_connections_go_on(self):
        """Connections go on, whichever shards they are in and however often these move."""
        seed = random.randrange(1 << 32)
        print(f"seed {seed}")
        draw = random.Random(seed)
        for workers in (2, 4):
            self.serve_with(BY_HAND.replace("workers = 2", f"workers = {workers}"))
            idle = {family: self.clients(10, family) for family in FAMILIES}
            met = {family: [client.get(1) for client in each] for family, each in idle.items()}
            end = self.transferring(20)
            until = time.monotonic() + SECONDS
            moved = 0
            while time.monotonic() < until or moved < 100:
                shard, to = draw.randrange(512), draw.randrange(workers)
                answer = self.ask("POST /shards/move", shard=shard, to=to)
                self.assertEqual((answer["shard"], answer["worker"]), (shard, to))
                moved += 1
            self.assertEqual(end(), [])
            for family, each in idle.items():
                self.assertEqual([client.get(20_000) for client in each], met[family])
            shards = self.ask("GET /shards")
            self.assertEqual((shards["workers"], shards["level"], len(shards["shards"])), (workers, True, 512))
            self.assertGreater(sum(shard["moves"] for shard in shards["shards"]), moved / 4)
            stats = self.ask("GET /stats")
            self.assertEqual((stats["spread"]["moves"], stats["spread"]["workers_in_use"]),
                             (sum(shard["moves"] for shard in shards["shards"]), workers))
            connections = stats["connections"]
            self.assertEqual((connections["live"], connections["opened"]), (40, 40))
            self.assertLessEqual(connections["peak"], 40)
            self.stop()

    def test_a_process_that_takes_over(self):
        self.serve_with(BY_HAND)
        before = self.clients(20)
        met = [client.get(1) for client in before]
        for shard in range(0, 512, 2):
            self.ask("POST /shards/move", shard=shard, to=1)
        self.assertEqual({shard["worker"] for shard in self.ask("GET /shards")["shards"]}, {1})
        old, self.process = self.process, None
        self.addCleanup(old.kill)
        self.start(self.network_, BY_HAND, "--take-over")
        old.communicate(timeout=20)
        self.assertEqual([client.get(1) for client in before], met)
        self.assertEqual(self.ask("GET /stats")["connections"]["taken_over"], 20)

    def test_a_few_busy_conversations(self):
        """Half of the packets are of three conversations: still, after a while, no worker gets over 10 % more packets than the workers' mean."""
        self.serve_with(GOOD + LEVEL + "50\n")
        ended = threading.Event()

        def send():
            busy, others = self.datagram_sockets(3), self.datagram_sockets(60)
            while not ended.is_set():
                for n, other in enumerate(others):
                    other.send(payload(10))
                    busy[n % 3].send(payload(10))
                time.sleep(0.004)

        sender = threading.Thread(target=send)
        sender.start()
        self.addCleanup(sender.join)
        self.addCleanup(ended.set)

        def is_level():
            before = self.workers_packets()
            time.sleep(1)
            packets = [now - was for now, was in zip(self.workers_packets(), before)]
            return max(packets) <= 1.1 * sum(packets) / len(packets)

        self.wait_until(is_level)

    def test_as_few_workers_as_the_load_needs(self):
        """One worker serves while there is little to do; connections that were at other workers go on."""
        self.serve_with(GOOD.replace("workers = 2", 'workers = "auto"'))
        workers = self.ask("GET /shards")["workers"]
        self.assertEqual(workers, min(len(os.sched_getaffinity(0)), 128))
        before = self.clients(20)
        met = [client.get(1) for client in before]
        end = self.transferring(5)

        def is_in_use(count):
            shards = self.ask("GET /shards")
            return shards["in_use"] == count and {s["worker"] for s in shards["shards"]} == set(range(count))

        time.sleep(1)
        self.assertEqual(end(), [])
        self.wait_until(lambda: is_in_use(1))
        if workers > 1:
            self.refused(409, [f"1 of {workers} workers are in use: give worker 0"], "POST /shards/move", shard=0, to=1)
        self.assertEqual(self.ask("GET /stats")["spread"]["workers_in_use"], 1)
        self.assertEqual([client.get(1) for client in before], met)
        self.stop()

    def test_no_workers_tables_run_full(self):
        """Shards leave the worker to which all shards were moved, once connections open there, however few packets these have."""
        text = GOOD.replace("workers = 2", "workers = 8").replace("capacity = 20000", "capacity = 4000", 1)
        self.serve_with(text + LEVEL + "20\n")
        for shard in range(512):
            self.ask("POST /shards/move", shard=shard, to=0)
        for _ in range(30):
            for one in self.datagram_sockets(100):
                one.send(payload(10))
            time.sleep(0.1)
        self.wait_until(lambda: self.ask("GET /stats")["connections"]["live"] == 3000)
        connections = self.ask("GET /stats")["connections"]
        self.assertEqual(connections["opened"], 3000)
        self.assertGreater(len({shard["worker"] for shard in self.ask("GET /shards")["shards"]}), 3)
        self.stop()

    def datagram_sockets(self, count):
        with self.network_.client:
            sockets = [socket.socket(FAMILIES[4], socket.SOCK_DGRAM) for _ in range(count)]
        for one in sockets:
            self.addCleanup(one.close)
            one.connect((ADDRESSES[4]["service"], PORT))
        return sockets

    def workers_packets(self):
        return [worker["packets"] for worker in self.ask("GET /stats")["workers"]]

    def test_what_is_refused(self):
        self.serve_with(BY_HAND)
        self.refused(404, ["no shard 512: give 0 to 511"], "POST /shards/move", shard=512, to=1)
        self.refused(404, ["no worker 2: give 0 to 1"], "POST /shards/move", shard=0, to=2)
        for parameters in ({}, {"shard": 1}, {"shard": "x", "to": 1}, {"shard": -1, "to": 1}):
            self.refused(400, ["give shard and to"], "POST /shards/move", **parameters)
        self.refused(400, ['"from" is not known: give shard and to'], "POST /shards/move", shard=0, to=1, **{"from": 0})
        self.refused(400, ['"shard" is not known: leave it out'], "GET /shards", shard=0)
        self.assertEqual(self.ask("POST /shards/move", shard=0, to=0)["took_ms"], 0)
        self.stop()
        self.serve_with('sharing = "sharded"\n' + GOOD)
        self.assertEqual(len(self.ask("GET /shards")["shards"]), 512)
        self.refused(409, ["spread.level = true"], "POST /shards/move", shard=0, to=1)
        self.stop()
        self.serve_with()
        self.assertEqual(self.ask("GET /shards"), {"workers": 2, "in_use": 2, "level": False, "shards": []})
        self.refused(409, ["spread.level = true"], "POST /shards/move", shard=0, to=1)
        self.stop()
        check = self.run_it("run", "--check", self.write("f.toml", 'sharing = "lock-free-race"\n' + BY_HAND))
        self.assertEqual(check.returncode, 2)
        self.assertIn("spread.level = true moves connections between tables", check.stderr)

    def test_a_reload_begins_the_interval_anew(self):
        """The interval was a minute: after a reload with an interval of 50 ms, shards move without waiting for the minute's end."""
        self.serve_with(BY_HAND)
        end = self.transferring(10)
        self.write("f.toml", GOOD + LEVEL + "50\n")
        self.ask("POST /reload")
        for shard in range(512):
            self.ask("POST /shards/move", shard=shard, to=0)
        self.wait_until(lambda: {s["worker"] for s in self.ask("GET /shards")["shards"]} == {0, 1})
        self.assertEqual(end(), [])
        self.stop()


if __name__ == "__main__":
    main()
