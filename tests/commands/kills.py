#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trainings killed (SIGKILL) at random moments and gone on with, again and again until they end: every file has the same
bits as that of an unbroken run, and nothing is left behind.  They save after every step, so that many of the kills fall
into the writing of a checkpoint.

    kills.py                 200 kills of a translator's training, 50 of each other kind
    kills.py --kills N       N of a translator's, N / 4 of each other kind
    kills.py --seed N        other moments
    kills.py --seconds N     kills nothing any more after N seconds (900), on a machine too slow for all of them
"""
import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

import table

failed = 0


def complain(what):
    global failed
    failed += 1
    print("FAILED:", what, flush=True)


def begin_words(command):
    words = [w for w in command.words]
    words[words.index("--epochs") + 1] = "6"
    return words + ["--save-every", "1", "-q", "--threads", "1"]


def start(words):
    return subprocess.Popen([table.ATTN] + words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                            env=table.environment())


def unbroken(command):
    shutil.rmtree("out", ignore_errors=True)
    os.mkdir("out")
    began = time.time()
    done = start(begin_words(command))
    if done.wait() != 0:
        raise SystemExit(f"{command.name}: {done.stderr.read().decode()}")
    return table.contents("out"), time.time() - began


def is_known(path, reference):
    """A file of the model, or one that was being written when its writer died: .NAME.PROCESS-NUMBER."""
    folder, name = os.path.split(path)
    return path in reference or name.startswith(".") and os.path.join(folder, name[1:].rsplit(".", 1)[0]) in reference


def one_training(command, reference, longest, rng, end):
    """Kills one training until it has got through, or until `end`; how often, and how many kills left a file half written."""
    shutil.rmtree("out", ignore_errors=True)
    os.mkdir("out")
    kills = halves = 0
    while True:
        begun = os.path.exists(os.path.join("out", command.out[0], "checkpoint.safetensors"))
        process = start(command.resume + ["-q", "--threads", "1"] if begun else begin_words(command))
        try:
            # Most moments are within the run; a third of the runs may end by themselves.  One that is left alone has
            # thirty times as long as it should take.
            late = time.time() > end
            code = process.wait(timeout=30 * longest + 60 if late else rng.uniform(0.0, 1.5) * longest)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            if late:
                complain(f"{command.name}: after {kills} kills it does not come to its end")
                return kills, halves
            kills += 1
            now = table.contents("out")
            halves += any(path not in reference for path in now)
            strange = [path for path in now if not is_known(path, reference)]
            if strange:
                complain(f"{command.name}: after kill {kills} there is {strange}")
            continue
        finally:
            message = process.stderr.read().decode()
            process.stderr.close()
        if code != 0:
            complain(f"{command.name}: exit code {code} after {kills} kills: {message}")
        break
    now = table.contents("out")
    for path in sorted(set(now) | set(reference)):
        if now.get(path) != reference.get(path):
            complain(f"{command.name}: after {kills} kills {path} " +
                     ("is left behind" if path not in reference else "differs from that of an unbroken training"))
    return kills, halves


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=900)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    end = time.time() + options.seconds
    with tempfile.TemporaryDirectory() as folder:
        table.make_fixture(folder)
        for command in table.commands():
            if not command.resume:
                continue
            wanted = options.kills if command.name == "train translate" else options.kills // 4
            reference, longest = unbroken(command)
            kills = halves = trainings = 0
            while kills < wanted and not failed and time.time() < end:
                k, h = one_training(command, reference, longest, rng, end)
                kills, halves, trainings = kills + k, halves + h, trainings + 1
            print(f"{command.name}: {kills} of {wanted} kills in {trainings} trainings of {longest:.2f} s, {halves} of them in the "
                  f"middle of a file; the same bits {'' if not failed else 'NOT '}every time", flush=True)
        os.chdir("/")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
