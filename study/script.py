"""Runs scripts of bench/live, which an experiment may name in place of a bench: they start several programs, and may need root and more packages."""

import glob
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass

CANNOT_RUN = 77  # a script's exit status if it cannot run here; the last line of its error output says why
_AGENT = "millctl-cluster"
_SECONDS_TO_END = 100  # until a script that was told to end is killed
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = os.path.join(_ROOT, "bench", "live")
_BUILT = os.path.join("build", "control", _AGENT)


@dataclass(frozen=True)
class Script:
    """A script and the agent of a cluster that it gets. `fingerprint` identifies both."""

    file: str
    agent: str
    fingerprint: str

    def command(self, program, arguments):
        return [sys.executable, self.file, program, self.agent, *arguments]


def named(name, folder, program):
    """Returns the script NAME.py of the folder, for the given millrace. Raises OSError if it is not there."""
    file = os.path.join(folder, f"{name}.py")
    agent = _agent(program)
    digest = hashlib.sha256()
    for part in (file, *sorted(glob.glob(os.path.join(glob.escape(folder), f"{name}_*.py"))), *([agent] if os.path.isfile(agent) else [])):
        with open(part, "rb") as held:
            digest.update(hashlib.file_digest(held, "sha256").digest())
    return Script(file, agent, digest.hexdigest()[:16])


def _agent(program):
    """Returns the agent beside millrace, or the one that this repository has built, or the one in PATH; its bare name if there is none."""
    places = (os.path.join(os.path.dirname(program), _AGENT), os.path.join(_ROOT, _BUILT))
    return next(filter(os.path.isfile, places), None) or shutil.which(_AGENT) or _AGENT


def shown_script(name, program, arguments):
    return shlex.join(["python3", f"bench/live/{name}.py", program, _BUILT, *arguments])


def run_script(command):
    """Returns the ended process. An interrupt of the study ends the script by SIGTERM alone, and waits until it has ended all that it started."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        given, said = process.communicate()
    except KeyboardInterrupt:
        process.terminate()
        try:
            process.communicate(timeout=_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()
        raise
    return subprocess.CompletedProcess(command, process.returncode, given, said)
