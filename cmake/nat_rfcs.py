#!/usr/bin/env python3
"""Makes docs/nat-rfcs.md: the requirements of the RFCs about NAT, and the tests named after them.

    nat_rfcs.py             writes the page
    nat_rfcs.py --check     exit status 1 if the page is out of date

A test's name has its requirements: `Rfc4787Req4ParityIsKept`, `test_rfc4787_req9a_and_rfc5382_req8_...`, `test_rfc7857_sec2_1_...`. A test
of an RFC without numbered requirements names the RFC alone. A test of a requirement that is not listed is an error, and so is a requirement with neither a test nor a reason.
"""

import collections
import glob
import os
import re
import sys

from nat_requirements import REQUIREMENTS

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs", "nat-rfcs.md")
HEAD = """# NAT and the RFCs

`cmake/nat_rfcs.py` makes this page from the names of the tests; `./check checkers` fails if the page is out of date. For each requirement it names the
tests, and says where millrace does something else. What users need to know is in [nat.md](nat.md).
"""
CPP = re.compile(r"^TEST(?:_F|_P)?\(\w+,\s*(Rfc\w+)\)", re.MULTILINE)
PYTHON = re.compile(r"^    def (test_rfc\w+)\(", re.MULTILINE)


def requirements_of(name):
    """Returns the (RFC, requirement) pairs that a test's name has: ("4787", "9a"), or ("7857", "2.1") for a section."""
    if name.startswith("Rfc"):
        return [(rfc, number) for rfc, number in re.findall(r"Rfc(\d+)(?:Req|Sec)(\d+(?:[a-z](?=[A-Z]))?)", name)]
    found, rfc = [], None
    if not re.search(r"_(req|sec)\d", name):
        return [(number, "all") for number in re.findall(r"rfc(\d+)", name)]
    for word, kind, number, part in re.findall(r"rfc(\d+)|(req|sec)(\d+[a-z]?)(?:_(\d+)(?=_|$))?", name):
        if word:
            rfc = word
        else:
            found.append((rfc, f"{number}.{part}" if part and kind == "sec" else number))
    return found


def tests():
    """Returns the tests of each requirement, as (name, file)."""
    found = collections.defaultdict(list)
    for pattern, folder, expression in (("**/*_test.cc", "src", CPP), ("*.py", "tests", PYTHON)):
        for path in sorted(glob.glob(os.path.join(ROOT, folder, pattern), recursive=True)):
            with open(path, encoding="utf-8") as file:
                for name in expression.findall(file.read()):
                    for requirement in requirements_of(name):
                        found[requirement].append((name, os.path.relpath(path, ROOT)))
    return found


def page(found):
    """Returns the page's text, and what is wrong with the names."""
    text, wrong, listed = HEAD, [], set()
    for rfc, title, requirements in REQUIREMENTS:
        text += f"\n## RFC {rfc}: {title}\n\n| | asks | tests, and what millrace does otherwise |\n|---|---|---|\n"
        for number, asks, note in requirements:
            listed.add((rfc, number))
            own = found.get((rfc, number), [])
            if not own and not note:
                wrong.append(f"RFC {rfc}, {number} has neither a test nor a reason in cmake/nat_requirements.py")
            cells = [f"[`{name}`](../{path})" for name, path in own] + ([note] if note else [])
            text += f"| {number} | {asks} | {'; '.join(cells)} |\n"
    for requirement in sorted(found.keys() - listed):
        wrong.append(f"{found[requirement][0][0]} names RFC {requirement[0]}, {requirement[1]}, which cmake/nat_requirements.py does not list")
    return text, wrong


def main():
    text, wrong = page(tests())
    if sys.argv[1:] == ["--check"]:
        with open(PAGE, encoding="utf-8") as file:
            if file.read() != text:
                wrong.append("docs/nat-rfcs.md is out of date: run cmake/nat_rfcs.py")
    elif not wrong:
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(text)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
