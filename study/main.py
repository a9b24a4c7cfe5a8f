"""The study: experiments are run, and a page is made of what they have shown."""

import argparse
import os
import sys

import report
from experiments import Wrong, read_all
from results import Results
from running import fingerprint, run_all

_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.dirname(_HERE)
_FAILED, _USAGE, _INTERRUPTED = 1, 2, 130


def _arguments():
    parser = argparse.ArgumentParser(
        prog="study/run", description="Runs experiments, and makes a page of their results.",
        epilog="What was run before, by the same program, is not run again: an interrupted study goes on.")
    parser.add_argument("what", nargs="+", metavar="quick|full|EXPERIMENT",
                        help="all of them, in a few minutes or whole; or some by name, whole")
    parser.add_argument("--list", action="store_true", help="say what would be run, and what has been")
    parser.add_argument("--in", dest="capture", metavar="CAPTURE",
                        help="a capture, pcap or pcapng, for the experiments that take one; without it these are left out")
    parser.add_argument("--out", default=os.path.join(_ROOT, "build", "study"), metavar="FOLDER",
                        help="where results and report go; build/study")
    parser.add_argument("--program", default=os.path.join(_ROOT, "build", "release", "cli", "millrace"), metavar="FILE",
                        help="the millrace that is measured; build/release/cli/millrace")
    parser.add_argument("--experiments", default=os.path.join(_HERE, "experiments"), metavar="FOLDER",
                        help="where these are described; study/experiments")
    return parser.parse_args()


def _chosen(experiments, what):
    """The experiments, and whether in the quick way."""
    if what in (["quick"], ["full"]):
        return experiments, what == ["quick"]
    by_name = {experiment.name: experiment for experiment in experiments}
    for name in what:
        if name not in by_name:
            raise Wrong(f"{name} is no experiment: give quick, full, or some of {', '.join(by_name)}")
    return [by_name[name] for name in what], False


def main():
    options = _arguments()
    try:
        experiments, is_quick = _chosen(read_all(options.experiments), options.what)
        if not os.path.exists(options.program):
            raise Wrong(f"{options.program} is not there: ./demo builds it, or give --program")
        for experiment in experiments:
            if experiment.takes_capture and options.capture is None and experiment.name in options.what:
                raise Wrong(f"{experiment.name} takes a capture: give --in")
        capture = (options.capture, fingerprint(options.capture)) if options.capture is not None else None
    except Wrong as wrong:
        print(f"study/run: {wrong}", file=sys.stderr)
        return _USAGE
    except OSError as error:
        print(f"study/run: {error.filename}: {error.strerror}", file=sys.stderr)
        return _USAGE
    name = "quick" if is_quick else "full"
    results = Results(os.path.join(options.out, f"{name}.jsonl"))
    for line in results.damaged:
        print(f"study/run: left out: {line}", file=sys.stderr)
    planned = [(experiment, list(experiment.runs(is_quick, capture))) for experiment in experiments
               if capture is not None or not experiment.takes_capture]
    runs = [run for _, of_one in planned for run in of_one]
    program = fingerprint(options.program)
    if options.list:
        for run in runs:
            record = results.of(run, program)
            state = "to do" if record is None else "failed" if "failed" in record else f"done in {record['seconds']} s"
            print(f"{run.title}: {state}")
        return 0
    page = os.path.join(options.out, f"{name}.html")
    interrupted = False
    try:
        try:
            run_all(options.program, runs, results)
        except KeyboardInterrupt:
            interrupted = True
            print("\nstudy/run: interrupted: the same command goes on", file=sys.stderr)
        report.write(page, planned, is_quick, results, program)
    except OSError as error:
        print(f"study/run: {error.filename or options.out}: {error.strerror}: once that is mended the same command goes on", file=sys.stderr)
        return _FAILED
    print(page)
    failed = [run for run in runs if "failed" in (results.of(run, program) or {})]
    for run in failed:
        print(f"study/run: {run.title}: {results.of(run, program)['failed']}", file=sys.stderr)
    return _INTERRUPTED if interrupted else _FAILED if failed else 0


if __name__ == "__main__":
    sys.exit(main())
