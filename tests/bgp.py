"""A BGP daemon (FRR's) for tests in which a session of the machine itself must live on."""

import contextlib
import os
import subprocess

BGPD = "/usr/lib/frr/bgpd"
HOLD_SECONDS = 3  # after which a silent session ends
MISSING = None if os.path.exists(BGPD) else "no bgpd here (Debian's package frr)"


class Session:
    """Two daemons with a session between two namespaces, opened by the second one. `folder`: for their files; `ends`: a
    namespace and an address each."""

    def __init__(self, folder, ends):
        self._logs, self._daemons = [], []
        (_, first), (_, second) = ends
        for number, (namespace, own) in enumerate(ends, 1):
            self._start(f"{folder}/bgp{number}", namespace, own, second if own == first else first, number)

    def _start(self, folder, namespace, own, other, number):
        os.mkdir(folder)
        with open(f"{folder}/bgpd.conf", "w", encoding="ascii") as file:
            file.write(f"""log file {folder}/log
router bgp {number}
 bgp router-id {own}
 bgp log-neighbor-changes
 no bgp ebgp-requires-policy
 no bgp network import-check
 timers bgp 1 {HOLD_SECONDS}
 neighbor {other} remote-as {3 - number}
 neighbor {other} timers connect 1
{f" neighbor {other} passive" if number == 1 else ""}
""")  # two daemons that both connect close one of the sessions that come up (RFC 4271, section 6.8)
        with namespace:
            self._daemons.append(subprocess.Popen(
                [BGPD, "-Z", "-S", "-u", "root", "-g", "root", "-f", f"{folder}/bgpd.conf", "-i", f"{folder}/pid",
                 "--vty_socket", folder, "-P", "0", "-l", own],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        self._logs.append(f"{folder}/log")

    def _changes(self, how):
        said = 0
        for log in self._logs:
            with contextlib.suppress(FileNotFoundError), open(log, encoding="utf-8") as file:
                said += sum("%ADJCHANGE" in line and how in line for line in file)
        return said

    def is_up(self):
        """True if both daemons have seen the session come up once, and never down."""
        return (self._changes(" Up"), self._changes(" Down")) == (2, 0)

    def close(self):
        for daemon in self._daemons:
            daemon.kill()
            daemon.wait()
