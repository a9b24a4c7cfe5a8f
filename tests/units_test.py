#!/usr/bin/env python3
"""Tests the systemd units of examples/: they are hardened enough, and work in a systemd of the test's own, also when
`millctl upgrade` goes from one unit to the other.

    units_test.py MILLRACE MILLCTL [TEST...]
"""

import glob
import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

MILLCTL = os.path.abspath(sys.argv.pop(2)) if len(sys.argv) > 2 else "millctl"

from asked import FIRST, GOOD, SECOND, Asked  # noqa: E402
from cli_case import MILLRACE, ROOT  # noqa: E402
from live import NO_XDP, has_xdp, main  # noqa: E402
from namespaces import ip  # noqa: E402
from network import Servers, configuration  # noqa: E402

EXAMPLES = os.path.join(ROOT, "examples")
MOST_EXPOSED = 5.0
SECONDS = 30  # the longest that systemd may take to start
# Units that would change the machine, or look for its devices.
MASKED = ("systemd-sysctl", "systemd-udevd", "systemd-udev-trigger", "systemd-modules-load", "systemd-networkd",
          "systemd-resolved", "systemd-timesyncd", "systemd-random-seed", "systemd-remount-fs", "systemd-logind")

# Starts a command in a new control group and new namespaces, in which that group is the root.
GROUP = """set -e
mount --make-rprivate /
mount -t cgroup2 cgroup2 "$1"
[ -d "$1/$2" ] || mkdir "$1/$2"
echo $$ >"$1/$2"/cgroup.procs
umount "$1"
shift 2
exec unshare --pid --mount --ipc --uts --cgroup --fork --kill-child "$@"
"""
UNGROUP = """mount --make-rprivate / && mount -t cgroup2 cgroup2 "$1" && find "$1/$2" -depth -type d -exec rmdir {} +"""

# Starts systemd on an overlay over this machine's root. What systemd writes and mounts vanishes with the namespace.
BOOT = """set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
mkdir "$1"/upper "$1"/work "$1"/root
mount -t overlay overlay -o lowerdir=/,upperdir="$1"/upper,workdir="$1"/work "$1"/root
cd "$1"/root
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
# Only XDP needs this file system, and a kernel without XDP may not have it.
mount -t bpf bpf sys/fs/bpf || true
for folder in run tmp dev; do mount -t tmpfs tmpfs $folder; done
mkdir dev/net dev/pts dev/shm
for device in null zero full random urandom tty net/tun; do
  [ ! -e /dev/$device ] || { : >dev/$device; mount --bind /dev/$device dev/$device; }
done
mount -t devpts -o newinstance devpts dev/pts
ln -s pts/ptmx dev/ptmx
mkdir -p run/systemd/system
for unit in $2; do ln -s /dev/null run/systemd/system/$unit.service; done
exec chroot . env -i container=other PATH="$PATH" /lib/systemd/systemd --system --unit=basic.target \
  --log-target=journal --show-status=false
"""


ONE_CARD = """[[port]]
name = "card"
device = "af_packet:outside"
kernel = "mr0"
addresses = ["198.51.100.2/24"]
[[route]]
prefix = "0.0.0.0/0"
via = "198.51.100.1"
[[service]]
address = "203.0.113.10"
backends = [{ address = "198.51.100.1" }]
"""


def one_card_steps():
    """Returns the commands of steps 2 to 4 of docs/one-card.md, with the addresses of this test's network."""
    with open(os.path.join(ROOT, "docs", "one-card.md"), encoding="utf-8") as file:
        page = file.read()
    for theirs, ours in (("192.0.2.", "198.51.100."), ("eth0", "outside")):
        page = page.replace(theirs, ours)
    blocks = [re.sub("^       ", "", block, flags=re.M) for block in re.findall(r"(?:^       .*\n)+", page, re.M)]
    [back] = [block for block in blocks if "<<'BACK'" in block]
    [forth] = [block for block in blocks if "<<'FORTH'" in block]
    [called_off] = [block for block in blocks if block == "systemctl stop millrace-back.timer\n"]
    return {"back": back, "forth": forth, "called off": called_off}


class Exposure(unittest.TestCase):
    @unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze here (package systemd)")
    def test_no_unit_is_too_exposed(self):
        with tempfile.TemporaryDirectory() as folder:
            for with_xdp in (False, True):
                if with_xdp:
                    os.mkdir(f"{folder}/millrace@.service.d")
                    shutil.copy(f"{EXAMPLES}/millrace-af_xdp.conf", f"{folder}/millrace@.service.d/af_xdp.conf")
                for unit in glob.glob(f"{EXAMPLES}/*.service"):
                    self.assess(shutil.copy(unit, folder))

    def assess(self, unit):
        done = subprocess.run(["systemd-analyze", "security", "--offline=true", unit], capture_output=True, text=True)
        found = re.search(r"level for (\S+): ([\d.]+)", done.stdout)
        if found is None and "offline" in done.stderr:
            self.skipTest("this systemd-analyze has no --offline")
        self.assertIsNotNone(found, done.stdout + done.stderr)
        self.assertLess(float(found.group(2)), MOST_EXPOSED, done.stdout)


class Configuration(unittest.TestCase):
    def test_the_file_that_the_units_page_copies(self):
        with open(os.path.join(ROOT, "docs", "run.md"), encoding="utf-8") as file:
            [name] = re.findall(r"sudo cp (examples/\S+\.toml) /etc/millrace\.toml", file.read())
        done = subprocess.run([MILLRACE, "run", "--check", os.path.join(ROOT, name)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


class Systemd:
    """A systemd in namespaces of its own, in the network namespace in which the object is made."""

    def __init__(self, folder):
        self._folder, self._group = folder, f"millrace-test-{os.getpid()}"
        self._boot = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", GROUP, "group", folder, self._group,
             "sh", "-c", BOOT, "boot", folder, " ".join(MASKED)], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True)
        self._pid = None
        deadline = time.monotonic() + SECONDS
        while not self._is_up():
            if self._boot.poll() is not None or time.monotonic() > deadline:
                if self._boot.poll() is None:
                    os.killpg(self._boot.pid, signal.SIGKILL)
                why = self._boot.stderr.read().strip()
                self.close()
                # Containers may forbid the mounts or control groups that are needed; standard error says which.
                raise unittest.SkipTest("no systemd starts in namespaces here: " + why)
            time.sleep(0.1)

    def _is_up(self):
        with open(f"/proc/{self._boot.pid}/task/{self._boot.pid}/children", encoding="ascii") as file:
            children = file.read().split()
        if not children:
            return False
        self._pid = children[0]
        try:
            return self.run("systemctl", "is-active", "basic.target").returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def run(self, *words):
        # The command sees the files of that systemd's root.
        return subprocess.run(["nsenter", "--target", self._pid, "--all", "--root", "--wd=/", *words],
                              capture_output=True, text=True, timeout=120)

    def path(self, path):
        """Returns the path, outside of the namespaces, of the file `path` in this systemd's root."""
        return f"/proc/{self._pid}/root{path}"

    def close(self):
        if self._boot.poll() is None:
            os.killpg(self._boot.pid, signal.SIGKILL)
        self._boot.wait()
        self._boot.stderr.close()
        for _ in range(50):  # the group can be removed once the kernel has ended its processes
            if subprocess.run(["unshare", "--mount", "sh", "-c", UNGROUP, "ungroup", self._folder, self._group],
                              capture_output=True).returncode == 0:
                return
            time.sleep(0.1)


@unittest.skipUnless(os.path.exists("/lib/systemd/systemd"), "no systemd here")
class Units(Asked):
    def boot(self, text, with_xdp=False, **options):
        self.network_ = self.network(**options)
        self.servers = Servers(self.network_)
        self.addCleanup(self.servers.close)
        with self.network_.middle:
            self.systemd = Systemd(self.path("."))
        self.addCleanup(self.systemd.close)
        for program in (MILLRACE, MILLCTL):
            shutil.copy(program, self.systemd.path("/usr/local/bin/" + os.path.basename(program)))
        for unit in glob.glob(f"{EXAMPLES}/*.service"):
            shutil.copy(unit, self.systemd.path("/etc/systemd/system/"))
        if with_xdp:
            os.mkdir(self.systemd.path("/etc/systemd/system/millrace@.service.d"))
            shutil.copy(f"{EXAMPLES}/millrace-af_xdp.conf",
                        self.systemd.path("/etc/systemd/system/millrace@.service.d/af_xdp.conf"))
        self.configure(text)
        self.control = self.systemd.path("/run/millrace.sock")
        self.do("systemctl", "daemon-reload")

    def configure(self, text):
        with open(self.systemd.path("/etc/millrace.toml"), "w", encoding="utf-8") as file:
            file.write(text)

    def do(self, *words, status=0):
        done = self.systemd.run(*words)
        said = done.stdout + done.stderr
        if done.returncode != status:
            said += self.systemd.run("journalctl", "--no-pager", "--lines=30", "--output=short").stdout
        self.assertEqual(done.returncode, status, said)
        return done.stdout + done.stderr

    def state(self, unit):
        return self.systemd.run("systemctl", "is-active", unit).stdout.strip()

    def shown(self, what, unit="millrace@a"):
        return self.do("systemctl", "show", "--value", "--property", what, unit).strip()

    def log(self, unit):
        return self.do("journalctl", "--unit", unit, "--no-pager", "--output=cat")

    def up_and_down(self, text, **options):
        """Checks that millrace starts with the unit's rights, serves, and restores the settings it has changed."""
        self.boot(text, **options)
        self.do("systemctl", "start", "millrace@a")
        if options.get("to_client") == "tap":
            with self.network_.middle:
                ip(f"link set mr0 name wire netns {self.network_.client.path}")
            self.network_.connect_client()
        self.exercise(self.network_)
        log = self.log("millrace@a")
        self.assertNotIn("may not", log)
        self.assertNotIn("warning: inside", log)
        self.assertNotIn("warning: outside", log)
        self.do("systemctl", "stop", "millrace@a")
        with self.network_.middle, open("/proc/sys/net/ipv6/conf/inside/disable_ipv6", encoding="ascii") as file:
            self.assertEqual(file.read(), "0\n")

    def test_af_packet(self):
        self.up_and_down(GOOD)

    @unittest.skipUnless(has_xdp(), NO_XDP)
    def test_af_xdp(self):
        self.up_and_down(configuration("af_xdp:outside", "af_xdp:inside"), with_xdp=True)

    @unittest.skipUnless(os.path.exists("/dev/net/tun"), "no /dev/net/tun here")
    def test_tap(self):
        self.up_and_down(configuration("tap:mr0", "af_packet:inside"), to_client="tap")

    def test_a_link_that_comes_late(self):
        """The unit is restarted until the link is up; by default systemd gives up after five tries in ten seconds."""
        self.boot(GOOD)
        with self.network_.middle:
            ip("link set outside down")
        self.do("systemctl", "start", "millrace@a", status=1)
        self.wait_until(lambda: int(self.shown("NRestarts")) > 5, seconds=90)
        self.assertIn("outside is down: ip link set outside up", self.log("millrace@a"))
        with self.network_.middle:
            ip("link set outside up")
        self.wait_until(lambda: self.state("millrace@a") == "active")
        self.exercise(self.network_)

    def test_a_wrong_file(self):
        """With a wrong file the unit is not restarted by itself; a start after the edit succeeds."""
        self.boot("workers = 0\n" + GOOD)
        self.do("systemctl", "start", "millrace@a", status=1)
        self.assertEqual((self.state("millrace@a"), self.shown("NRestarts")), ("failed", "0"))
        self.configure(GOOD)
        self.do("systemctl", "start", "millrace@a")
        self.assertEqual(self.state("millrace@a"), "active")

    @unittest.skipUnless(os.path.exists("/dev/net/tun"), "no /dev/net/tun here")
    def test_one_card(self):
        """The commands of docs/one-card.md work, also when repeated, and after an upgrade."""
        self.boot(ONE_CARD)
        steps = one_card_steps()
        with self.network_.middle:
            ip("address add 198.51.100.2/24 dev outside")

        def run(step):
            with open(self.systemd.path("/run/step"), "w", encoding="utf-8") as file:
                file.write(steps[step])
            return self.systemd.run("sh", "/run/step")

        def is_reached():
            with self.network_.middle:
                routes = ip("route show default")
            return "dev mr0" in routes and self.ping(self.network_, 4, "198.51.100.2") > 0

        self.do("millrace", "run", "--check", "/etc/millrace.toml")
        for _ in range(2):
            self.assertEqual(run("back").returncode, 0)
            self.assertEqual(run("back").returncode, 0)
            self.assertEqual(run("forth").returncode, 0)
            self.wait_until(is_reached)
            self.assertEqual(run("called off").returncode, 0)
            self.do("millctl", "upgrade")
            self.do("systemctl", "is-active", "--quiet", "millrace@a", "millrace@b")
            self.systemd.run("sh", "/usr/local/sbin/millrace-back")
            self.assertEqual([self.state(f"millrace@{one}") for one in "ab"], ["inactive", "inactive"])
            with self.network_.middle:
                self.assertIn("198.51.100.2/24", ip("address show dev outside"))
                self.assertIn("via 198.51.100.1 dev outside", ip("route show default"))
                self.assertNotIn("mr0", ip("link show"))

    def test_from_one_unit_to_the_other(self):
        self.boot(GOOD.replace('protocol = "tcp"', 'protocol = "tcp"\nhealth = { check = "tcp" }'))
        self.do("systemctl", "enable", "--now", "millrace@a")
        self.do("systemctl", "start", "millctl-health", "millctl-exporter")
        end = self.transferring(10)
        self.do("systemctl", "reload", "millrace@a")
        for old, new in (("a", "b"), ("b", "a")):
            said = self.do("millctl", "upgrade")
            self.assertRegex(said, f"millrace@{new} has taken over [1-9][0-9]* connections")
            self.assertEqual([self.state(f"millrace@{one}") for one in (old, new)], ["inactive", "active"])
            self.assertEqual(self.systemd.run("systemctl", "is-enabled", f"millrace@{new}").stdout, "enabled\n")
            self.assertEqual(self.systemd.run("systemctl", "is-enabled", f"millrace@{old}").stdout, "disabled\n")
        self.configure("workers = 0\n" + GOOD)
        said = self.do("millctl", "upgrade", status=1)
        self.assertRegex(said, r"millrace@b did not take over: /etc/millrace.toml:2: ")
        self.assertIn("millrace@a goes on", said)
        self.assertEqual([self.state(f"millrace@{one}") for one in "ab"], ["active", "failed"])
        self.assertEqual(end(), [])
        self.assertEqual(set(self.servers_of(20)), {FIRST, SECOND})
        self.assertEqual({unit: self.state(unit) for unit in ("millctl-health", "millctl-exporter")},
                         {"millctl-health": "active", "millctl-exporter": "active"})
        with self.network_.middle:
            connection = http.client.HTTPConnection("127.0.0.1", 9645, timeout=20)
            connection.connect()
        connection.request("GET", "/metrics")
        self.assertIn("\nmillrace_up 1\n", connection.getresponse().read().decode())
        connection.close()


if __name__ == "__main__":
    main()
