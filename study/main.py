"""The study: runs experiments, and makes a page of their results."""

from interrupts import INTERRUPTED  # must be first

import argparse
import fcntl
import os
import sys
from dataclasses import replace

import report
import script
from experiments import Capture, UsageError, read_all
from results import Results, check_regular
from running import ProgramChanged, fingerprint, generated, program_fingerprint, run_all

_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.dirname(_HERE)
_FAILED, _USAGE, _UNREADABLE = 1, 2, 3
_MOST_ROUNDS = 1000


def _arguments():
    parser = argparse.ArgumentParser(
        prog="study/run", description="Runs experiments, and makes a page of their results.",
        epilog="Runs that the same build of the program has done without failure are not repeated: an interrupted study goes on. Exit status: 0; 1 if a run "
               "failed (a picture or finding that fails is reported only on the page) or cannot run here although it was asked for by name, results or page cannot be written, another study is at "
               "work in the same folder, or the program was built anew meanwhile; 2 for wrong options or experiments; 3 if a file cannot be "
               "read; 130 after an interrupt.")
    parser.add_argument("what", nargs="*", metavar="quick|full|EXPERIMENT",
                        help="quick: all experiments, shortened to a few minutes; full: all, complete; a name: that experiment, complete")
    parser.add_argument("--list", action="store_true", help="list the runs, and which of them have been done")
    parser.add_argument("--in", dest="captures", action="append", default=[], metavar="CAPTURE",
                        help="a capture, pcap or pcapng, for the experiments that take one; may be given several times")
    parser.add_argument("--rounds", type=int, metavar="N",
                        help="run each experiment N times, in rounds, or as often as its file allows; default 3, with quick 1")
    parser.add_argument("--again", action="store_true",
                        help="measure a second time, in as many rounds, and show on the page how far the results differ from the first")
    parser.add_argument("--out", default=os.path.join(_ROOT, "build", "study"), metavar="FOLDER",
                        help="folder for results and page; build/study")
    parser.add_argument("--program", default=os.path.join(_ROOT, "build", "release", "cli", "millrace"), metavar="FILE",
                        help="the millrace that is measured, with the millrace-bench beside it; build/release/cli/millrace")
    parser.add_argument("--experiments", default=os.path.join(_HERE, "experiments"), metavar="FOLDER",
                        help="folder of the experiments' files; study/experiments")
    parser.add_argument("--live", default=script.FOLDER, metavar="FOLDER", help="folder of the scripts that experiments name; bench/live")
    parser.add_argument("--results", metavar="FILE",
                        help="run nothing: make the page of these results (.jsonl, .jsonl.xz), whichever program and machine they are of")
    options = parser.parse_args()
    if not options.what and not options.list:
        parser.error("give quick, full, or experiments by name: --list names them")
    if options.results and (options.list or options.captures or options.rounds or options.again):
        parser.error("--results: it runs nothing: leave out --list, --in, --rounds and --again")
    options.what = list(dict.fromkeys(options.what)) or ["full"]
    options.program = os.path.abspath(options.program)  # a bare name would be searched in PATH
    return options


def _chosen(experiments, what):
    """Returns the chosen experiments, and True for the quick report."""
    if what in (["quick"], ["full"]):
        return experiments, what == ["quick"]
    by_name = {experiment.name: experiment for experiment in experiments}
    for name in what:
        if name in ("quick", "full"):
            raise UsageError(f"{' '.join(what)}: {name} stands alone: it means all experiments")
        if name not in by_name:
            raise UsageError(f"{name} is no experiment: give quick, full, or some of {', '.join(by_name)}")
    return [by_name[name] for name in what], False


def _check_names(captures):
    names = set()
    for capture in captures:
        if capture.name in names:
            raise UsageError(f"--in {capture.file}: another capture is named {capture.name}, too: rename this one")
        names.add(capture.name)


class Study:
    """The experiments and captures that the options choose. `program` is the fingerprint of the program that measures;
    `captures_of(experiment, generated)` returns the captures that are used in addition to the generated ones, `script_of(experiment)` the
    script."""

    def __init__(self, options, program, captures_of, script_of):
        self.all = read_all(options.experiments)
        self.chosen, self.is_quick = _chosen(self.all, options.what)
        if options.rounds is not None and not 1 <= options.rounds <= _MOST_ROUNDS:
            raise UsageError(f"--rounds {options.rounds}: give 1 to {_MOST_ROUNDS}")
        self.rounds = options.rounds or (1 if self.is_quick else 3)
        self.program = program
        self.captures = {}
        self.scripts = {experiment.name: script_of(experiment) for experiment in self.all if experiment.live}
        for experiment in self.all:
            if experiment.takes_captures:
                made = [generated(name, arguments, os.path.join(options.out, "captures"), self.program)
                        for name, arguments in experiment.generated(self.is_quick).items()]
                self.captures[experiment.name] = made + captures_of(experiment, made)
                _check_names(self.captures[experiment.name])
        for experiment in self.chosen:
            if experiment.takes_captures and not self.captures[experiment.name] and experiment.name in options.what:
                raise UsageError(f"{experiment.name} takes a capture: give --in, or results with one")
        if options.captures and not any(experiment.takes_captures for experiment in self.chosen):
            print("study/run: warning: --in: no experiment that is asked for takes a capture", file=sys.stderr)

    def runs(self, experiment):
        return list(experiment.runs(self.is_quick, self.captures.get(experiment.name, []), self.scripts.get(experiment.name)))

    def planned(self, again):
        """Returns the runs round by round, so that the spread of each run includes changes of the machine from hour to hour."""
        return [replace(run, round=number, again=again) for number in range(1, self.rounds + 1) for experiment in self.chosen
                if number <= (experiment.rounds or self.rounds) for run in self.runs(experiment)]

    def shown(self, results):
        """Returns the experiments on the page, with their runs: the chosen ones, and those with earlier results."""
        runs = {experiment.name: self.runs(experiment) for experiment in self.all}
        return [(experiment, runs[experiment.name]) for experiment in self.all if runs[experiment.name] and (
            experiment in self.chosen or any(results.rounds_of(run, self.program) for run in runs[experiment.name]))]


def _to_measure(options):
    """Returns the study of the given program and captures."""
    if not os.path.exists(options.program):
        raise UsageError(f"{options.program} is not there: ./demo builds it, or give --program")
    captures = [Capture(os.path.splitext(os.path.basename(file))[0], file, fingerprint(file)) for file in options.captures]
    return Study(options, program_fingerprint(options.program), lambda experiment, made: captures,
                 lambda experiment: _script(experiment, options))


def _script(experiment, options):
    try:
        return script.named(experiment.live, options.live, options.program)
    except OSError as error:
        raise UsageError(f"{experiment.name}.toml: live: {experiment.live}: {error.filename}: {error.strerror}") from error


def _to_show(options, results):
    """Returns the study of those results in the file that are of the same program as the last record, on whichever machines."""
    if not results.records:
        why = f" ({results.damaged[0]})" if results.damaged else ""
        raise UsageError(f"--results {options.results}: no results in it{why}: give what study/run has written")
    program = results.records[-1]["program"]
    return Study(options, program, lambda experiment, made: results.captures_of(experiment, program, {capture.name for capture in made}),
                 lambda experiment: results.script_of(experiment, program))


def _list(study, runs, results):
    for run in runs:
        record = results.of(run, study.program)
        state = "to do" if record is None else "failed" if "failed" in record else "left out" if "left_out" in record else f"done in {record['seconds']} s"
        print(f"{run.title}{f', round {run.round}' if study.rounds > 1 else ''}: {state}")


def _prepare(folder, *files):
    """Returns the lock of the folder, held until this program ends. Raises OSError, before hours are spent, if another study has the lock
    or a file cannot be written."""
    os.makedirs(folder, exist_ok=True)
    lock = open(os.path.join(folder, "lock"), "w", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise OSError(error.errno, "another study is at work there", folder) from error
    for file in files:
        check_regular(file)
        if os.path.exists(file):
            open(file, "r+b").close()
    return lock


def _study():
    options = _arguments()
    try:
        given = Results(options.results, must_exist=True) if options.results else None
        study = _to_show(options, given) if given else _to_measure(options)
    except UsageError as wrong:
        print(f"study/run: {wrong}", file=sys.stderr)
        return _USAGE
    except OSError as error:
        print(f"study/run: {error.filename}: {error.strerror}", file=sys.stderr)
        return _UNREADABLE
    name = os.path.join(options.out, "quick" if study.is_quick else "full")
    file, page = f"{name}.jsonl", f"{name}.html"
    try:
        if not options.list:
            _lock = _prepare(options.out, file, page, f"{page}.partial")  # held until the program ends
        results = given or Results(file)
    except OSError as error:
        print(f"study/run: {error.filename}: {error.strerror}", file=sys.stderr)
        return _FAILED
    for line in results.damaged:
        print(f"study/run: left out: {line}", file=sys.stderr)
    runs = [] if given else study.planned(options.again)
    if options.list:
        _list(study, runs, results)
        return 0
    interrupted = False
    try:
        try:
            if runs:
                run_all(options.program, runs, results)
        except KeyboardInterrupt:
            interrupted = True
            print("\nstudy/run: interrupted: run the same command to go on", file=sys.stderr)
        except ProgramChanged:
            print(f"\nstudy/run: {options.program} was built anew meanwhile: the same command begins anew with it", file=sys.stderr)
            return _FAILED
        report.write(page, study.shown(results), study.is_quick, results, study.program)
    except OSError as error:
        print(f"study/run: {error.filename or options.out}: {error.strerror}: once that is repaired, run the same command to go on", file=sys.stderr)
        return _FAILED
    print(page)
    failed = [run for run in runs if "failed" in (results.of(run, study.program) or {})]
    for run in failed:
        print(f"study/run: {run.title}: {results.of(run, study.program)['failed']}", file=sys.stderr)
    left_out = {(run.experiment, why): True for run in runs if (why := (results.of(run, study.program) or {}).get("left_out"))}
    for experiment, why in left_out:
        print(f"study/run: {experiment} is left out, since it cannot run here: {why}", file=sys.stderr)
    asked_for = any(experiment in options.what for experiment, _ in left_out)
    return INTERRUPTED if interrupted else _FAILED if failed or asked_for else 0


def main():
    """Runs the study. If standard output cannot be written, prints why to standard error, except after its reader has closed it."""
    try:
        try:
            return _study()
        finally:
            print(end="", flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(error, BrokenPipeError):
            print(f"study/run: standard output: {error.strerror}", file=sys.stderr)
        return _FAILED


if __name__ == "__main__":
    sys.exit(main())
