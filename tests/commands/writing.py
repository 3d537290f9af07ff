#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each command with nowhere to write and nothing to read: a disk that fails at each call in turn, files cut short,
reading and writing a few bytes at a time, a closed, full or broken standard output, outputs that cannot be, inputs that
are missing, empty, halves, folders or devices.  Always: an exit code for the failure, one line, no crash, no half file,
the old file still there.

    writing.py               every call of every command
    writing.py --each N      about N of each command's calls
    writing.py --only NAME   one command
"""
import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import table
from memory import check_files, places, said
import memory

SHIM = os.path.join(os.path.abspath(os.environ["ATTN_BUILD"]), "tests", "libfailing_disk.so")


def complain(command, what, problem):
    memory.complain(command, what, problem)


def quiet(command):
    return command.words + ["-q"] * (command.name != "help")


def one_line(command, what, done, codes=(2,), about=b""):
    """A failure's exit code and its one line."""
    lines = done.stderr.splitlines()
    if done.returncode not in codes:
        complain(command, what, f"exit code {done.returncode}, not {codes}: {lines[:3]}")
    elif done.returncode > 0 and (len(lines) != 1 or not lines[0].startswith(b"attn: ")):
        complain(command, what, f"not one line: {lines[:3]}")
    elif done.returncode > 0 and about not in lines[0]:
        complain(command, what, f"does not name {about.decode()}: {lines[0]}")


def with_disk(command, **how):
    env = {"LD_PRELOAD": SHIM, "FAILING_DISK_REPORT": "report"}
    env.update({f"FAILING_DISK_{key.upper()}": str(value) for key, value in how.items()})
    if os.path.exists("report"):
        os.remove("report")
    done = table.run(quiet(command), command.stdin, env)
    if not os.path.exists("report"):
        return done, -1
    with open("report") as f:
        return done, int(f.read())


def break_disk(command, each):
    table.prepare(command)
    before = table.contents("out")
    good, calls = with_disk(command)
    reference = table.contents("out")
    for at in places(calls, each) if calls > 0 else ():
        table.prepare(command)
        done, reached = with_disk(command, **({"at": at, "on": 1} if at % 2 else {"at": at}))
        if reached < 0:
            complain(command, f"disk call {at}", f"died: code {done.returncode}")
        elif done.returncode == 0:  # a folder that cannot be flushed, a file that need not be there
            if said(done) != said(good) and "bench" not in command.name:
                complain(command, f"disk call {at}", "exit code 0 with another output")
        else:
            one_line(command, f"disk call {at}", done, (1, 2))
        check_files(command, f"disk call {at}", before, reference, done.returncode == 0)
        if command.resume and done.returncode != 0 and at % 4 == 0:
            memory.go_on(command, f"disk call {at}", reference)
    table.prepare(command)
    done, _ = with_disk(command, short=1)
    if done.returncode != 0 or (said(done) != said(good) and "bench" not in command.name):
        complain(command, "a few bytes at a time", f"code {done.returncode}, {done.stderr[:200]}")
    check_files(command, "a few bytes at a time", before, reference, True)
    return calls


def sizes_of_files(command):
    """A limit on the size of files, as a small disk has one."""
    table.prepare(command)
    before = table.contents("out")
    table.run(quiet(command), command.stdin)
    reference = table.contents("out")
    largest = max((len(data) for data in reference.values()), default=0)
    for limit in sorted({0, 1, largest // 2, max(largest - 1, 0)}):
        def limited():
            import resource
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        table.prepare(command)
        done = table.run(quiet(command), command.stdin, preexec_fn=limited)
        one_line(command, f"files of at most {limit} bytes", done)
        check_files(command, f"files of at most {limit} bytes", before, reference, False)


def break_stdout(command):
    table.prepare(command)
    before = table.contents("out")
    good = table.run(quiet(command), command.stdin)
    reference = table.contents("out")
    prints = len(good.stdout) > 0

    def run(target, what, codes):
        table.prepare(command)
        done = table.run(quiet(command), command.stdin, stdout=target)
        one_line(command, what, done, codes if prints else (0,), b"standard output" if prints else b"")
        check_files(command, what, before, reference, done.returncode == 0)

    with open("/dev/full", "wb") as full:
        run(full, "standard output full", (2,))
    for close in (1, 2):
        table.prepare(command)
        done = table.run(quiet(command), command.stdin, preexec_fn=lambda: os.close(close))
        if done.returncode not in ((2,) if close == 1 and prints else (0,)):
            complain(command, f"descriptor {close} closed", f"exit code {done.returncode}: {done.stderr[:200]}")
        check_files(command, f"descriptor {close} closed", before, reference, done.returncode == 0)
    # A reader that closes the pipe: the signal ends the command, or it prints an error.
    read, write = os.pipe()
    os.close(read)
    run(write, "standard output broken", (-signal.SIGPIPE, 2))
    os.close(write)


def as_nobody():
    os.setgid(65534)
    os.setuid(65534)


def nobody_reaches():
    """Whether another user may run the command at all: if the sources are in a closed home directory none may."""
    try:
        return subprocess.run([table.ATTN, "--version"], preexec_fn=as_nobody, capture_output=True).returncode == 0
    except PermissionError:
        return False


def break_places(command):
    """Outputs where none can be: a file for a folder, a folder for a file, a folder without leave to write."""
    for path in command.out:
        whole = os.path.join("out", path)
        folder = os.path.isdir(whole) if command.old else True
        shutil.rmtree("out", ignore_errors=True)
        os.mkdir("out")
        if folder:
            with open(whole, "wb") as f:
                f.write(table.OLD)
        else:
            os.makedirs(os.path.join(whole, "inside"))
        one_line(command, f"{path} of the wrong kind", table.run(quiet(command), command.stdin), (2,), b"out/")
        shutil.rmtree("out")
        with open("out", "wb") as f:
            f.write(table.OLD)
        one_line(command, "out is a file", table.run(quiet(command), command.stdin), (2,), b"out")
        os.remove("out")
        if os.getuid() == 0 and nobody_reaches():
            os.mkdir("out")
            os.chmod("out", 0o555)
            done = table.run(quiet(command), command.stdin, preexec_fn=as_nobody)
            one_line(command, "no leave to write", done, (2,), b"out")
            if table.contents("out"):
                complain(command, "no leave to write", f"wrote {list(table.contents('out'))}")


def bad_inputs(path):
    """Objects that may be at `path` instead; (a word for it, how it is made, whether it must be refused)."""
    def nothing(at):
        pass

    def empty(at):
        open(at, "wb").close()

    def half(at):
        with open(path, "rb") as f:
            data = f.read()
        with open(at, "wb") as f:
            f.write(data[:len(data) // 2])

    def pipe(at):
        os.mkfifo(at)

    def loop(at):
        os.symlink(os.path.basename(at), at)
    kinds = [("missing", nothing), ("a loop of links", loop)]
    if os.path.isdir(path):
        return kinds + [("an empty folder", os.mkdir), ("an empty file", empty)]
    return kinds + [("a folder", os.mkdir), ("empty", empty), ("half of it", half)]


def break_inputs(command):
    for place, word in enumerate(command.words):
        path = word.split("=")[-1]
        if place < len(command.name.split()) or not os.path.exists(path) or word.startswith("out"):
            continue
        for what, make in bad_inputs(path):
            table.prepare(command)
            before = table.contents("out")
            bad = os.path.join("out", "bad input" + os.path.splitext(path)[1])
            make(bad)
            words = list(quiet(command))
            words[place] = word.replace(path, bad)
            done = table.run(words, command.stdin)
            may = (0, 2) if what in ("half of it", "an empty folder") else (2,)
            # Words for another kind of model are refused before the model is looked for.
            named = len(may) == 1 and b"--kinds" not in done.stderr
            one_line(command, f"{word} {what}", done, may, b"bad input" if named else b"")
            if os.path.isdir(bad) and not os.path.islink(bad):
                shutil.rmtree(bad)
            elif os.path.lexists(bad):
                os.remove(bad)
            if done.returncode != 0 and table.contents("out") != before:
                complain(command, f"{word} {what}", f"files were written: {list(table.contents('out'))}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--each", type=int, default=0)
    parser.add_argument("--only")
    parser.add_argument("--quick", action="store_true", help="one command of each kind")
    options = parser.parse_args()
    began = time.time()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        table.make_fixture(folder)
        for command in table.commands():
            if options.only and options.only != command.name:
                continue
            if options.quick and command.name not in ("train msa", "show", "contacts", "run", "list"):
                continue
            calls = break_disk(command, options.each)
            break_stdout(command)
            if command.out:
                sizes_of_files(command)
                table.prepare(command)
                break_places(command)
            break_inputs(command)
            print(f"{command.name}: {calls} calls of the file system", flush=True)
        os.chdir("/")
    print(f"{time.time() - began:.0f} s, {memory.failed} failures")
    sys.exit(memory.failed > 0)


if __name__ == "__main__":
    main()
