#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each command with its first allocation failing, then its second, and so on until none fails: exit code 1 and one line
that says so, nothing still held, no temporary file left, and each file that it writes either whole or as it was.

    memory.py                every allocation of every command (minutes)
    memory.py --each N       about N of each command's, the first ones and then at equal distances
    memory.py --own          allocations of the command's own code, and not those of the library
    memory.py --only NAME    one command
    memory.py --slow         the commands of minutes: each runs once, and every failure happens in a child of that run
    memory.py --slow --sites  only once for each chain of calls that allocates memory
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import table

SHIM = os.path.join(os.path.abspath(os.environ["ATTN_BUILD"]), "tests", "libfailing_memory.so")
failed = 0


def complain(command, at, what):
    global failed
    failed += 1
    print(f"FAILED: attn {' '.join(command.words)}, {at if isinstance(at, str) else f'allocation {at}'}: {what}", flush=True)


def once(command, at, and_on=False, own=False):
    """(process, calls, blocks held) with allocation `at` failing; 0: none."""
    env = {"LD_PRELOAD": SHIM, "FAILING_MEMORY_REPORT": "report", "FAILING_MEMORY_AT": str(at)}
    if and_on:
        env["FAILING_MEMORY_ON"] = "1"
    if own:
        env["FAILING_MEMORY_OWN"] = "1"
    if os.path.exists("report"):
        os.remove("report")
    done = table.run(command.words + ["-q"] * (command.name != "help"), command.stdin, env)
    if not os.path.exists("report"):
        return done, -1, -1
    with open("report") as f:
        calls, held = map(int, f.read().split())
    return done, calls, held


def said(done):
    """Standard output without times and speeds, which are never the same twice."""
    return [re.sub(rb"[0-9.]+ (s|ms)\b", b"", line) for line in done.stdout.splitlines() if b"second" not in line]


def check_files(command, at, before, reference, whole):
    after = table.contents("out")
    for path, data in after.items():
        known = {before.get(path), reference.get(path)}
        if path not in reference:
            complain(command, at, f"{path} is left behind")
        elif data not in known and (whole or not command.resume):
            complain(command, at, f"{path} is neither the old file nor the new one")
    for path in before:
        if path not in after:
            complain(command, at, f"{path} was there before and is gone")


def check_failure(command, at, done):
    lines = done.stderr.decode(errors="replace").splitlines()
    if done.returncode != 1:
        complain(command, at, f"exit code {done.returncode}: {lines[:3]}")
    elif len(lines) != 1 or not re.match(r"attn: .*(out of memory|memory)", lines[0]):
        complain(command, at, f"not one line about memory: {lines[:3]}")


def go_on(command, at, reference):
    """A training that ran out of memory after it had begun is resumed, and ends in the same bits.  False: it had not."""
    if not os.path.exists(os.path.join("out", command.out[0], "checkpoint.safetensors")):
        return False
    done = table.run(command.resume + ["-q"])
    if done.returncode != 0:
        complain(command, at, f"cannot be resumed: {done.stderr.decode()}")
    else:
        check_files(command, at, {}, reference, True)
    return True


def places(calls, each):
    if not each or each >= calls:
        return range(1, calls + 1)
    first = each // 4
    return sorted(set(range(1, first + 1)) | {first + (calls - first) * i // (each - first)
                                              for i in range(1, each - first + 1)})


def break_memory(command, each, own):
    table.prepare(command)
    before = table.contents("out")
    good, calls, held = once(command, 0, own=own)
    if good.returncode != 0 or held != 0:
        return complain(command, 0, f"code {good.returncode}, {held} blocks held: {good.stderr.decode()}")
    reference, survived, resumed = table.contents("out"), 0, 0
    for at in places(calls, each):
        table.prepare(command)
        done, reached, held = once(command, at, and_on=at % 5 == 0, own=own)
        if reached < at and reached >= 0:
            continue  # timing decides how often a bench allocates
        if held != 0:
            complain(command, at, f"{held} blocks still held" if held > 0 else
                     f"died without a report: code {done.returncode}, {done.stderr.decode()[-300:]}")
        if done.returncode == 0:
            survived += 1
            if "bench" not in command.name and said(done) != said(good):
                complain(command, at, "exit code 0 with another output")
        else:
            check_failure(command, at, done)
        check_files(command, at, before, reference, done.returncode == 0)
        if command.resume and (not each or resumed < 3):
            resumed += 1
            go_on(command, at, reference)
    print(f"{command.name}: {calls} allocations, {len(places(calls, each))} failed in turn, {survived} of them survived",
          flush=True)


def check_child(command, at, code, before, good, reference):
    """Checks the child's working folder, which is entered; true if it ended well all the same."""
    os.chdir("child")
    with open("stdout", "rb") as out, open("stderr", "rb") as err:
        done = subprocess.CompletedProcess(command.words, code, out.read(), err.read())
    held = int(open("report").read().split()[1]) if os.path.exists("report") else -1
    if held != 0:
        complain(command, at, f"{held} blocks still held" if held > 0 else f"died without a report: code {code}")
    if code != 0:
        check_failure(command, at, done)
    elif "bench" not in command.name and said(done) != said(good)[-len(said(done)):]:
        complain(command, at, "exit code 0 with another output")
    check_files(command, at, {path: data for path, data in before.items() if path in reference}, reference, code == 0)
    os.chdir("..")
    return code == 0


def break_in_children(command, each, sites):
    """As break_memory does, in one run of the command that forks at each allocation (tests/preload/failing_memory.c)."""
    table.prepare(command)
    good, calls, held = once(command, 0)
    if good.returncode != 0 or held != 0:
        return complain(command, 0, f"code {good.returncode}, {held} blocks held: {good.stderr.decode()}")
    reference, survived, failed_at, resumed = table.contents("out"), 0, 0, 0
    table.prepare(command)
    wanted, (ask, asked), (go, going) = set(places(calls, each)), os.pipe(), os.pipe()
    env = {"LD_PRELOAD": SHIM, "FAILING_MEMORY_FORK": f"{asked},{go}"}
    if sites:
        env["FAILING_MEMORY_SITES"] = "1"
    process = subprocess.Popen([table.ATTN] + command.words + ["-q", "--threads", "1"], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, env=table.environment(dict(env, FAILING_MEMORY_REPORT="report")),
                               pass_fds=(asked, go))
    os.close(asked)
    os.close(go)
    with os.fdopen(ask) as asks:
        for line in asks:
            at = int(line)
            if at not in wanted:
                os.write(going, b"-")
                continue
            shutil.rmtree("child", ignore_errors=True)
            shutil.copytree("out", "child/out")
            before = table.contents("out")
            os.write(going, b"f")
            code = os.waitstatus_to_exitcode(int(asks.readline()))
            failed_at += 1
            survived += check_child(command, at, code, before, good, reference)
            if command.resume and code != 0 and at * 4 // calls > resumed:  # three in all: each takes up to a whole run
                os.chdir("child")
                resumed += go_on(command, at, reference)
                os.chdir("..")
    os.close(going)
    if process.wait() != 0 or table.contents("out") != reference:
        complain(command, 0, f"the run that forked: code {process.returncode}, or other files")
    shutil.rmtree("child", ignore_errors=True)
    print(f"{command.name}: {calls} allocations, {failed_at} failed in turn, {survived} of them survived, "
          f"{resumed} resumed", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--each", type=int, default=0)
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--only")
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--sites", action="store_true")
    options = parser.parse_args()
    began = time.time()
    with tempfile.TemporaryDirectory() as folder:
        table.make_fixture(folder)
        inputs = table.contents(".")
        for command in table.slow_commands() if options.slow else table.commands():
            if not options.only or options.only == command.name:
                if options.slow:
                    break_in_children(command, options.each, options.sites)
                else:
                    break_memory(command, options.each, options.own)
        table.prepare(table.Command("", ""))
        if os.path.exists("report"):
            os.remove("report")
        now = table.contents(".")
        if now != inputs:
            print("FAILED: inputs were changed:", [k for k in inputs if inputs[k] != now.get(k)] + [k for k in now if k not in inputs])
            sys.exit(1)
        os.chdir("/")
    print(f"{time.time() - began:.0f} s, {failed} failures")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
