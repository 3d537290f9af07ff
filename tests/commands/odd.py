#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Odd circumstances: the directory of a training damaged at every place, headers that claim more than there is, little
memory from the system, another language, no home, strange names, links, a million lines.

    odd.py               64 places in each file of a training, a million lines
    odd.py --each N      N places
    odd.py --only NAME   one of: headers language clock names memory damage lines
"""
import argparse
import gzip
import json
import os
import pty
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time

import kills
import memory
import table


def complain(what, problem):
    memory.failed += 1
    print(f"FAILED: {what}: {problem}", flush=True)


def refused(what, done, about=b"", codes=(2,)):
    lines = done.stderr.splitlines()
    if done.returncode not in codes:
        complain(what, f"exit code {done.returncode}: {lines[:3]}")
    elif len(lines) != 1 or about not in lines[0]:
        complain(what, f"not one line that names {about}: {lines[:3]}")


# ------------------------------------------------------------------------------------------- damaged trainings

def part_of_a_training(command):
    """Leaves in out/ a training that was killed after its second epoch."""
    shutil.rmtree("out", ignore_errors=True)
    os.mkdir("out")
    history = os.path.join("out", command.out[0], "history.tsv")
    process = kills.start(kills.begin_words(command))
    while process.poll() is None:
        if os.path.exists(history) and open(history).read().count("\n") > 2:
            break
    process.kill()
    process.wait()
    process.stderr.close()


def damages(data, each):
    """(what, damaged bytes), at `each` places."""
    for i in range(each):
        at = len(data) * i // each
        yield f"cut off at byte {at}", data[:at]
        at = min(at + i % 7, len(data) - 1)
        yield f"byte {at} changed", data[:at] + bytes([data[at] ^ (1 << i % 8)]) + data[at + 1:]


def fixed(path, data):
    """training.json without what a resumed training may be told anew, and without the way to the data."""
    if os.path.basename(path) != "training.json" or data is None:
        return data
    return {k: v for k, v in json.loads(data).items() if k not in ("epochs", "patience", "save_every", "data")}


def damage_training(command, each):
    reference, _ = kills.unbroken(command)
    part_of_a_training(command)
    saved = table.contents("out")
    tried = refusals = 0
    for path, data in saved.items():
        name = os.path.basename(path)
        # The best parameters so far are in model.safetensors alone, and history.tsv is for people: no sum is kept of either.
        if name in ("model.safetensors", "history.tsv") or name.startswith("."):
            continue
        for what, damaged in damages(data, each):
            for other, content in saved.items():
                with open(os.path.join("out", other), "wb") as f:
                    f.write(damaged if other == path else content)
            done = table.run(command.resume + ["-q"])
            tried += 1
            if done.returncode == 2:
                refusals += 1
                refused(f"{command.name}, {path} {what}", done)
            elif done.returncode != 0:
                complain(f"{command.name}, {path} {what}", f"exit code {done.returncode}: {done.stderr}")
            else:
                now = table.contents("out")
                wrong = [p for p in reference if fixed(p, now.get(p)) != fixed(p, reference[p])]
                # Another number of epochs is a wish like any other: it cannot be told from damage.
                told_anew = name == "training.json" and json.loads(damaged) != json.loads(data)
                if wrong and not (told_anew and fixed(path, damaged) == fixed(path, data)):
                    complain(f"{command.name}, {path} {what}", f"went on to another end: {wrong}")
    print(f"{command.name}: {tried} damages, {refusals} refused, the others came to the same bits", flush=True)


# ------------------------------------------------------------------------------------------------ false headers

def limit_memory(bytes_):
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (bytes_, bytes_))


def npy(shape, order="False"):
    header = f"{{'descr': '<f4', 'fortran_order': {order}, 'shape': {shape}, }}"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header.encode() + b"\n"


def safetensors(header):
    return struct.pack("<Q", len(header)) + header.encode()


def lying_headers():
    big = 1 << 62
    arrays = {"a": npy(f"({big}, 4)"), "b": npy(f"({1 << 31}, {1 << 31}, 4)"), "c": npy(f"({1 << 30},)"),
              "d": b"\x93NUMPY\x02\x00" + struct.pack("<I", 0xffffffff), "e": npy("(-1,)"), "f": npy(f"({1 << 64},)")}
    weights = {"g": struct.pack("<Q", (1 << 63) - 1) + b"{}", "h": struct.pack("<Q", 1 << 40) + b"{}",
               "i": safetensors(f'{{"w":{{"dtype":"F32","shape":[{big},4],"data_offsets":[0,{big}]}}}}'),
               "j": safetensors('{"w":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4294967296]}}'),
               "k": safetensors("[" * 100000), "l": safetensors('{"w":' * 50000),
               "m": safetensors('{"w":{"dtype":"F32","shape":[' + "1," * 60000 + '1],"data_offsets":[0,4]}}')}
    pictures = {"n": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\x7f\xff\xff\xff\x7f\xff\xff\xff\x08\x06\0\0\0\0\0\0\0",
                "o": b"P5 999999999 999999999 255\n", "p": b"P6 65535 65535 65535\n\0", "q": b"P2 4 4 99999999999999\n1",
                "r": b"\xff\xd8\xff\xc0\x00\x11\x08\xff\xff\xff\xff\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01\xff\xd9"}
    with gzip.open("bomb.gz", "wb", 9) as f:
        for _ in range(80):
            f.write(bytes(1 << 24))
    run = ["run", "--arch", "self-attention", "--config", '{"dim": 8, "heads": 2}']
    little = {"preexec_fn": limit_memory(1 << 31)}
    for files, words in ((arrays, lambda f: run + ["--input", "x=" + f, "--output", "out=y.npy"]),
                         (weights, lambda f: run + ["--weights", f, "--input", "x=x.npy", "--output", "out=y.npy"]),
                         (pictures, lambda f: ["classify", "classifier", f])):
        for name, data in files.items():
            with open(name, "wb") as f:
                f.write(data)
            refused(f"lying header {name}", table.run(words(name), **little), name.encode(), (1, 2))
    refused("a gzip bomb", table.run(["contacts", "bomb.gz", "--model", "fitted", "-o", "out"], **little), codes=(1, 2))
    refused("a gzip bomb", table.run(["train", "translate", "--data", "bomb.gz", "--out", "out/b"], **little),
            codes=(1, 2))
    print("headers that lie: 18 files, 2 bombs", flush=True)


# ------------------------------------------------------------------------------------------------ circumstances

BUILD = os.path.abspath(os.environ["ATTN_BUILD"])
LANGUAGES = os.path.join(BUILD, "tests", "languages")


def preload(name):
    return {"LD_PRELOAD": os.path.join(BUILD, "tests", f"lib{name}.so")}


def circumstances():
    comma = {"LC_ALL": "", "LC_NUMERIC": "comma", "LOCPATH": LANGUAGES, **preload("chosen_language")}
    if os.path.exists(os.path.join(LANGUAGES, "comma", "LC_NUMERIC")):  # else localedef had no character maps
        yield "a decimal comma", comma
    else:
        print("a decimal comma was not tried: localedef makes no language here", flush=True)
    yield "no home", {"HOME": "/nonexistent"}
    yield "a language that is not there", {"LC_ALL": "xx_YY"}


def same_anywhere():
    """Another language, chosen by the process before attn begins, no home: the same files and the same output."""
    tried = 0
    for command in table.commands():
        if "bench" in command.name:
            continue
        table.prepare(command)
        good, reference = table.run(command.words, command.stdin), table.contents("out")
        for what, env in circumstances():
            table.prepare(command)
            done = table.run(command.words, command.stdin, env)
            tried += 1
            if done.returncode != 0 or memory.said(done) != memory.said(good) or table.contents("out") != reference:
                complain(f"attn {' '.join(command.words)} with {what}", f"{done.returncode}, {done.stderr[:200]}")
    print(f"other circumstances: {tried} commands", flush=True)


def told_on_a_terminal(words, env):
    """A command's standard error on a terminal, and its exit code."""
    ours, its = pty.openpty()
    process = subprocess.Popen([table.ATTN] + words, stdout=subprocess.DEVNULL, stderr=its, env=table.environment(env))
    os.close(its)
    said = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            part = b""
        if not part:
            break
        said += part
    os.close(ours)
    return process.wait(), said


def clocks_that_go_backwards():
    """The same files and the same output but for speeds; a progress bar that says nothing impossible."""
    for how in ("steady", "jumps"):
        env = {"BACKWARD_CLOCK": how, **preload("backward_clock")}
        for command in table.commands():
            table.prepare(command)
            good, reference = table.run(command.words, command.stdin), table.contents("out")
            table.prepare(command)
            done = table.run(command.words, command.stdin, env, timeout=120)
            lines, codes = memory.said(done), (0,)
            if "bench" in command.name:  # which may take one set for slower than another
                lines, codes = memory.said(good), (0, 1)
            if done.returncode not in codes or lines != memory.said(good) or table.contents("out") != reference:
                complain(f"attn {' '.join(command.words)} with a clock that goes backwards ({how})",
                         f"{done.returncode}, {done.stderr[-200:]}")
            if command.resume:
                table.prepare(command)
                code, said = told_on_a_terminal(command.words, env)
                if code != 0 or b"epoch 1/1" not in said or re.search(rb"-[0-9]+[.:0-9]*k? *(/s|left|[a-z]+/s)|nan|inf", said):
                    complain(f"attn {' '.join(command.words)} on a terminal ({how})", f"{code}, {said[-300:]}")
        begun = time.time()
        done = table.run("bench attend b1h1q4k4d4 --seconds 0.05".split(), env=env, timeout=120)
        if done.returncode != 0:
            complain(f"attn bench attend ({how})", f"{done.returncode}, {done.stderr[-200:]}")
        print(f"a clock that goes backwards, {how}: {len(table.commands())} commands; bench ended after "
              f"{time.time() - begun:.1f} s", flush=True)


def strange_names():
    name = "a b\nc 'd' \"é\" *"
    os.makedirs(name)
    shutil.copytree("translator", os.path.join(name, "translator"))
    shutil.copy("f1.a3m", os.path.join(name, "f.a3m"))
    table.must(["translate", os.path.join(name, "translator"), "go on"])
    table.must(["show", os.path.join(name, "translator"), "go on", "-o", os.path.join(name, "s.html")])
    table.must(["contacts", os.path.join(name, "f.a3m"), "--model", "fitted", "-o", name])
    table.must(["train", "translate", "--data", "pairs.tsv", "--out", os.path.join(name, "new"), "--epochs", "1"] +
               table.TRANSLATE)
    table.must(["train", "translate", "--out", os.path.join(name, "new"), "--resume", "--epochs", "2"])
    refused("a name with a line break", table.run(["translate", name, "go on"]), b"a b c")
    # Through a link the file behind it is not touched; the link gives way to the new file.
    with open("target", "wb") as f:
        f.write(table.OLD)
    os.symlink("target", "link.html")
    table.must(["show", "translator", "go on", "-o", "link.html"])
    if open("target", "rb").read() != table.OLD or os.path.islink("link.html"):
        complain("a link as output", "the file behind it was changed, or the link is still there")
    os.symlink("nowhere", "dangling.html")
    table.must(["show", "translator", "go on", "-o", "dangling.html"])
    os.symlink("translator", "model")
    table.must(["translate", "model", "go on"])


def least_memory():
    """The address space, in MiB, with which the command starts at all: what its libraries need at their own start."""
    low, high = 1, 4096  # not enough, enough
    while high - low > 1:
        middle = (low + high) // 2
        enough = table.run(["version"], preexec_fn=limit_memory(middle << 20)).returncode == 0
        low, high = (low, middle) if enough else (middle, high)
    return high


def little_memory():
    """The system itself gives no more: the command survives it."""
    least = least_memory()
    begun = 0
    for command in table.commands():
        for more in (0, 4, 8, 12, 16, 24, 32, 48, 96, 160, 240):
            table.prepare(command)
            done = table.run(command.words + ["-q"] * (command.name != "help"), command.stdin,
                             preexec_fn=limit_memory((least + more) << 20))
            begun += done.returncode != 127
            if done.returncode not in (0, 1, 2, 127):
                complain(f"attn {' '.join(command.words)} in {least} + {more} MiB",
                         f"{done.returncode}, {done.stderr[-300:]}")
    print(f"little memory from the system, {least} MiB and more: {begun} commands begun", flush=True)


def many_lines(lines):
    with open("many.tsv", "w") as f:
        for i in range(lines):
            f.write(f"go {i % 977} on {i}\tva {i % 991} la {i}\n")
    began = time.time()
    table.must(["train", "translate", "--data", "many.tsv", "--out", "many", "--epochs", "0", "--vocabulary", "word",
                "--max-words", "1000"] +
               table.TRANSLATE)
    print(f"{lines} lines of sentence pairs: read, divided, encoded and written as an untrained translator in "
          f"{time.time() - began:.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--each", type=int, default=64)
    parser.add_argument("--only")
    options = parser.parse_args()
    began = time.time()

    def damage():
        for command in table.commands():
            if command.resume:
                damage_training(command, options.each)

    parts = {"headers": lying_headers, "language": same_anywhere, "clock": clocks_that_go_backwards, "names": strange_names, "memory": little_memory,
             "damage": damage, "lines": lambda: many_lines(1000000 if options.each >= 64 else 20000)}
    with tempfile.TemporaryDirectory() as folder:
        table.make_fixture(folder)
        for part in [options.only] if options.only else parts:
            parts[part]()
        os.chdir("/")
    print(f"{time.time() - began:.0f} s, {memory.failed} failures")
    sys.exit(memory.failed > 0)


if __name__ == "__main__":
    main()
