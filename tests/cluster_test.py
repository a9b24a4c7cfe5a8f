#!/usr/bin/env python3
"""A cluster of real parts: millrace, agents with embedded etcd, and FRR as the switches.

    cluster_test.py MILLRACE MILLCTL_CLUSTER [TEST...]

Ends with status 77 if that cannot be tried here.
"""

import errno
import socket
import sys
import time
import unittest

from cluster import Cluster, missing, wait_until
from cluster_ports import CUTS, HOSTS, Scene, configuration
from lines import Lines
from namespaces import ip

PROGRAMS = []


def forward(_):
    return 'function = "forward"\nworkers = 1\n[spread]\nentries = 128\n'


class ThreeServers(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster(*PROGRAMS, forward)
        self.addCleanup(self.cluster.close)
        self.cluster.start()
        wait_until(lambda: self.cluster.is_well("up", "up", "up"), 90)
        self.await_next_hops(1, 2, 3)

    def await_next_hops(self, *servers):
        wait_until(lambda: self.cluster.next_hops() == [list(servers)] * 2, 60)

    def test_shards_are_spread(self):
        for one in self.cluster.status()["servers"]:
            self.assertGreater(one["masters"], 20)

    def test_a_dataplane_is_killed_and_comes_back(self):
        self.cluster.dataplanes[2].kill()
        self.cluster.dataplanes[2].wait()
        self.await_next_hops(1, 3)
        wait_until(lambda: all(one["master"] != 2 for one in self.cluster.status()["shards"]), 30)
        self.cluster.start_dataplane(2)
        self.await_next_hops(1, 2, 3)
        wait_until(lambda: self.cluster.is_well("up", "up", "up"), 60)

    def test_a_server_drains_and_another_leaves(self):
        self.cluster.operate(1, "drain", "server2")
        self.await_next_hops(1, 3)
        wait_until(lambda: self.cluster.is_well("up", "drains", "up"), 60)
        self.cluster.operate(1, "return", "server2")
        self.await_next_hops(1, 2, 3)
        self.cluster.agents[3].terminate()
        self.assertEqual(self.cluster.agents[3].wait(30), 0)
        self.await_next_hops(1, 2)
        wait_until(lambda: self.cluster.is_well("up", "up", "gone"), 60)

    def test_a_side_is_cut_off(self):
        """A server without a switch on one side is the master of nothing, and gets no packets on the other side."""
        switch = self.cluster.switches["inside"]
        with switch.namespace:
            ip("link set s3 down")
        self.await_next_hops(1, 2)
        wait_until(lambda: all(one["master"] != 3 for one in self.cluster.status()["shards"]), 30)
        self.assertEqual(self.cluster.status()["servers"][2]["state"], "unwell")


def connected(namespace, number, patience_s=150):
    """Returns a customer's connection to a host. Ports that a server has just got rest for two minutes, and meanwhile it may refuse new sessions."""
    end = time.monotonic() + patience_s
    while True:
        with namespace:
            made = socket.socket()
        made.settimeout(30)
        made.bind((f"100.64.8.{1 + number}", 0))
        try:
            made.connect(HOSTS[number % len(HOSTS)])
            return made
        except OSError as error:
            made.close()
            if error.errno != errno.EHOSTUNREACH or time.monotonic() > end:
                raise
        time.sleep(1)


def lines(namespace, count):
    return Lines([connected(namespace, number) for number in range(count)])


class Nat(unittest.TestCase):
    """Many customers open sessions all the time, and captures of both switches are judged."""

    def setUp(self):
        self.cluster = Cluster(*PROGRAMS, configuration, bfd_ms=300)
        self.addCleanup(self.cluster.close)
        self.cluster.start()
        wait_until(lambda: self.cluster.is_well("up", "up", "up") and self.cluster.next_hops() == [[1, 2, 3]] * 2, 90)
        self.scene = Scene(self.cluster, count=600, active_s=10)
        self.addCleanup(self.scene.close)
        time.sleep(5)

    def judge(self):
        judge, lost = self.scene.judge()
        print(dict(judge.counts), dict(self.scene.customers.counts), f"captures lack {lost} packets")
        self.assertEqual((judge.errors, judge.counts["wrong"], self.scene.customers.counts["stranger"], lost), ([], 0, 0, 0))
        self.assertGreater(judge.counts["to inside"], 200)

    def test_no_port_has_two_customers_while_a_server_is_cut_off(self):
        """Server 2 goes on, cut off from the store and from all others, which take its shards over."""
        _, cut, heal = CUTS["alone"]
        cut(self.cluster)
        wait_until(lambda: all(one["master"] != 2 for one in self.cluster.status()["shards"]), 30)
        time.sleep(10)
        heal(self.cluster)
        wait_until(lambda: self.cluster.is_well("up", "up", "up"), 90)
        time.sleep(5)
        self.judge()

    def test_a_server_is_upgraded(self):
        """Connections go on, and new sessions get ports meanwhile and afterwards."""
        transfers = lines(self.scene.inside, 30)
        self.addCleanup(transfers.close)
        begun = time.monotonic()
        self.assertEqual(self.cluster.upgrade("server2"), [2])
        wait_until(lambda: self.cluster.is_well("up", "up", "up"), 60)
        wait_until(transfers.go_on(), 30)
        self.assertEqual(transfers.errors, [])
        time.sleep(15)
        end = time.monotonic() - 5
        self.judge()
        answers = [answered is not None for opened, answered in self.scene.customers.log if begun <= opened < end]
        print(f"{sum(answers)} of {len(answers)} sessions got an answer")
        self.assertGreater(len(answers), 200)
        self.assertGreater(sum(answers), 0.95 * len(answers))


if __name__ == "__main__":
    PROGRAMS[:] = sys.argv[1:3]
    del sys.argv[1:3]
    if why := missing(PROGRAMS[1]):
        print(why)
        sys.exit(77)
    unittest.main(verbosity=2)
