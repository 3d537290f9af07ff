#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The environment of a command is limited or changes while it runs: limits of the system, closed descriptors, a
directory that is removed or swapped, two processes in one directory, signals.  It works, or prints the error in one
line; nothing is left half written.

    limits.py               every part
    limits.py --only PART   one of: limits closed gone two swapped signals
"""
import argparse
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import table

tried = failed = 0


def complain(what, problem):
    global failed
    failed += 1
    print(f"FAILED: {what}: {problem}", flush=True)


def start(command, **more):
    global tried
    tried += 1
    quiet = [] if command.name == "help" else ["-q"]
    return subprocess.Popen([table.ATTN] + command.words + quiet + ["--threads", "2"], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=table.environment(), **more)


def judge(command, process, what, codes=(0, 1, 2), silent=False):
    what = f"attn {' '.join(command.words)} with {what}"
    try:
        said = process.communicate(timeout=120)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        return complain(what, "no end")
    if process.returncode not in codes:
        complain(what, f"{process.returncode}, {said[:300]}")
    elif process.returncode in (1, 2) and not silent and (len(said.splitlines()) != 1 or not said.startswith(b"attn: ")):
        complain(what, f"not one line: {said[:300]}")
    left = [path for path in table.contents("out") if ".tmp" in path] if os.path.isdir("out") else []
    return complain(what, f"left {left}") if left and process.returncode >= 0 else None


def limited(kind, value):
    return lambda: resource.setrlimit(kind, (value, value))


def limits(command):
    for kind, name, values in ((resource.RLIMIT_FSIZE, "files of", (0, 1, 100, 1000, 5000)),
                               (resource.RLIMIT_NOFILE, "descriptors", (5, 6, 7, 8, 10, 12)),
                               (resource.RLIMIT_STACK, "a stack of", (128 << 10, 256 << 10, 1 << 20))):
        for value in values:
            table.prepare(command)
            judge(command, start(command, preexec_fn=limited(kind, value)), f"{name} {value}")


def closed(command):
    for chosen in range(1, 8):
        gone = [d for d in range(3) if chosen >> d & 1]
        table.prepare(command)
        judge(command, start(command, preexec_fn=lambda: [os.close(d) for d in gone]), f"{gone} closed", silent=2 in gone)


def leave():
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    os.rmdir(folder)


def gone(command):
    table.prepare(command)
    judge(command, start(command, preexec_fn=leave), "a directory that is gone")


def two(command):
    table.prepare(command)
    processes = [start(command) for _ in range(3)]
    for process in processes:
        judge(command, process, "two others in one directory")
    if all(process.returncode for process in processes):
        complain(f"attn {' '.join(command.words)}", "none of three at once comes through")


def swapped(command):
    for by in ("nothing", "a file", "another"):
        table.prepare(command)
        process = start(command)
        time.sleep(random.random() / 20)
        os.rename("out", "before")
        if by == "a file":
            open("out", "w").close()
        if by == "another":
            os.mkdir("out")
        judge(command, process, f"its directory swapped for {by}", (0, 2))
        shutil.rmtree("before")
        if by == "a file":
            os.unlink("out")


def signals(command):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGSTOP):
        for _ in range(3):
            table.prepare(command)
            process = start(command)
            time.sleep(random.random() / 20)
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)
            judge(command, process, str(number), (0,) if number == signal.SIGSTOP else (0, 130, -number))


def main():
    parts = {part.__name__: part for part in (limits, closed, gone, two, swapped, signals)}
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=parts)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table.make_fixture(folder)
        for part in [options.only] if options.only else parts:
            began, before = time.time(), tried
            for command in table.commands():
                parts[part](command)
            print(f"{part}: {tried - before} runs, {time.time() - began:.0f} s", flush=True)
        os.chdir("/")
    print(f"{tried} runs, {failed} failures")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
