#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every option of every command with values that it was not made for: it works, or one line names the option and what it
was given, and nothing is written.

    options.py               every option
    options.py --each N      every N-th pair of an option and a value
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

import table

VALUES = ["", "-1", "0", "1e400", "nan", "9223372036854775808", "../x", "x" * 100000, "\x1b[31m\r\n\x7f", "\xff"]
failed = 0


def options(name):
    """The options that --help lists."""
    text = subprocess.run([table.ATTN] + name.split() + ["--help"], stdout=subprocess.PIPE, check=True).stdout.decode()
    for found in re.finditer(r"^  (?:-\w, |    )--([a-z0-9-]+)", text, re.M):
        if found[1] not in ("help", "version"):
            yield found[1]


def complain(what, problem):
    global failed
    failed += 1
    print(f"FAILED: {what}: {problem}", flush=True)


def without(words, option):
    """The words of a command without an option and its value."""
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word == "--" + option:
            skip = True
        else:
            kept.append(word)
    return kept


def names(line, option, value):
    shown = re.sub(r"[\x00-\x1f\x7f]", " ", value)[:20]
    return option in line.replace("_", "-") or value and shown in line


def one(command, option, value):
    table.prepare(command)
    before = table.contents("out") if command.old else {}
    quiet = [] if command.name == "help" or option == "quiet" else ["-q"]
    words = without(command.words, option) + [f"--{option}={value}"] + quiet
    there = set(os.listdir("."))
    what = f"attn {' '.join(command.words)} --{option}={value[:40]!r}"
    try:
        done = table.run(words, command.stdin, timeout=20)
    except subprocess.TimeoutExpired:
        complain(what, "no end")
        return "refused"
    lines = done.stderr.decode(errors="replace").splitlines()
    for name in set(os.listdir(".")) - there:
        shutil.rmtree(name) if os.path.isdir(name) else os.unlink(name)
    shutil.rmtree("../x", ignore_errors=True)
    if done.returncode == 0:
        return "works"
    if done.returncode != 2 or len(lines) != 1:
        complain(what, f"exit code {done.returncode}, {len(lines)} lines: {lines[:3]}")
    elif not lines[0].startswith("attn: ") or not names(lines[0], option, value):
        complain(what, f"names neither: {lines[0][:300]}")
    elif any(ord(c) < 32 or ord(c) == 127 for c in lines[0]):
        complain(what, "sends codes to the terminal")
    elif table.contents("out") != before:
        complain(what, "refused, and something was written")
    return "refused"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--each", type=int, default=1)
    each = parser.parse_args().each
    count = {"works": 0, "refused": 0}
    with tempfile.TemporaryDirectory() as above:
        folder = os.path.join(above, "in")  # ../x is a value
        table.make_fixture(folder)
        n, seen = 0, set()
        for command in table.commands() + [table.Command("diff", "diff translator translator")]:
            for option in options(command.name):
                for value in VALUES:
                    case = command.name, option, value, tuple(command.words[1:2])
                    n += case not in seen
                    if case not in seen and n % each == 0:
                        verdict = one(command, option, value)
                        count[verdict] += 1
                    seen.add(case)
        os.chdir("/")
    print(f"{sum(count.values())} options with strange values, {count['works']} work, {count['refused']} refused, "
          f"{failed} failures")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
