# SPDX-License-Identifier: MIT
"""Times attention in PyTorch and ONNX Runtime, and in attn where it is built, and prints the ratios.

    attend.py [--threads LIST] [--peers LIST] [--attn COMMAND] [--seconds X] [--json] [PROBLEM...]

PROBLEM is b2h8q512k512d64[:causal][,bf16] or one of the layers of attend_layers.py; without any, a list of both.
Every thread count is measured in a process of its own.
"""
import argparse
import json
import os
import subprocess
import sys

import measure
import problems

# Layers of attend_layers.py in attn's grammar; the times of several are added.  The parent process does without torch.
ATTN_NAMES = {"axial256x256c64h8": ["axis256x256c64h8:row", "axis256x256c64h8:col"],
              "window7x7:256x256c64h8": ["window256x256w7h8d8:zero"], "tied:128x256c768h12": ["tied128x256h12d64"]}
LAYER_NAMES = list(ATTN_NAMES)
MORE = {"window7x7:64x64c64h8": "window64x64w7h8d8:zero", "relative:64x8x64x8": "b64h8q64k64d8:rel",
        "relative:4x8x256x64": "b4h8q256k256d64:rel", "additive:4x8x64x64x64": "addb4h8q64k64d64",
        "additive:128x1x1x10x256": "addb128h1q1k10d256", "additive:64x1x1x30x1024": "addb64h1q1k30d1024",
        "gaussian:1x8x512x64": "b1h8q512k512d64:gaussian", "mean:3x1x784x64": "b3h1q784k784d64:over-n"}
ATTN_NAMES |= {name + end: [own + end] for name, own in MORE.items() for end in ("", ",f64")}
PEERS = "pytorch,pytorch-math,onnxruntime"
# The scores and their gradient at 4 bytes; beyond this many the unfused path is left out.
MOST_SCORES = 2 ** 29


def timers(name, peers):
    """(peer, function of the direction) for each peer that can compute the problem, and the problem's dtype."""
    import attend_dense
    import attend_layers
    if name in ATTN_NAMES:
        dtype = "f64" if name.endswith(",f64") else "f32"
        return [("pytorch", lambda direction: attend_layers.pytorch(name, direction))], dtype
    problem = problems.parse(name)
    scores = problem.batch * problem.heads * problem.queries * problem.keys
    return [(peer, lambda direction, peer=peer: attend_dense.PEERS[peer](problem, direction))
            for peer in peers if peer != "pytorch-math" or scores <= MOST_SCORES], problem.dtype


def child(names, peers, threads, seconds):
    """Measures in this process; one JSON object a line, with a problem's peers one after the other."""
    import torch
    torch.set_num_threads(threads)
    measure.SECONDS = seconds
    for name in names:
        available, dtype = timers(name, peers)
        for direction in ("forward", "backward"):
            for peer, timer in available:
                ms = timer(direction)
                if ms is not None:
                    print(json.dumps({"problem": name, "peer": peer, "direction": direction, "dtype": dtype,
                                      "threads": threads, "ms": round(ms, 4)}), flush=True)


def peers_rows(names, peers, threads, seconds):
    command = [sys.executable, os.path.abspath(__file__), "--child", str(threads), "--peers", peers, "--seconds", str(seconds), *names]
    environment = measure.environment(threads, True)
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        print(f"attend.py: the peers stopped with exit code {done.returncode}", file=sys.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def attn_problem_rows(attn, name, threads, seconds):
    """The output of `attn bench attend` for one problem, as it is spelt here; None, with a note, if it fails."""
    totals = {}
    for part in ATTN_NAMES.get(name, [name]):
        command = [attn, "bench", "attend", "--json", "--threads", str(threads), "--seconds", str(seconds / 2), part]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            print(f"attend.py: attn does not measure {part}: {done.stderr.strip()}", file=sys.stderr)
            return []
        for row in json.loads(done.stdout):
            before = totals.get(row["direction"], {"ms": 0})["ms"]
            totals[row["direction"]] = {**row, "ms": before + row["ms"], "peer": "attn", "problem": name}
    return list(totals.values())


def attn_rows(attn, names, threads, seconds):
    return [row for name in names if os.access(attn, os.X_OK) for row in attn_problem_rows(attn, name, threads, seconds)]


def print_table(rows, peers):
    """A line per problem, direction and threads: attn's time, and each peer's time and its ratio to attn's."""
    groups = {}
    for row in rows:
        key = row["problem"], row["direction"], row["threads"]
        groups.setdefault(key, {})[row["peer"]] = row["ms"]
    columns = ["attn", *peers]
    print(f"{'problem':28} {'':8} {'thr':>3} " + " ".join(f"{name + ' ms':>22}" for name in columns))
    for (name, direction, threads), times in groups.items():
        cells = []
        for peer in columns:
            ratio = f" ({times[peer] / times['attn']:.2f}x)" if {"attn", peer} <= times.keys() != {"attn"} else ""
            cells.append(f"{times[peer]:.3f}{ratio if peer != 'attn' else ''}" if peer in times else "-")
        print(f"{name:28} {direction:8} {threads:3} " + " ".join(f"{cell:>22}" for cell in cells))


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", metavar="PROBLEM")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--peers", default=PEERS)
    parser.add_argument("--attn", default=os.path.join(os.environ.get("ATTN_BUILD", os.path.join(root, "build")), "attn"))
    parser.add_argument("--json", action="store_true", help="an array of objects instead of the table")
    parser.add_argument("--seconds", type=float, default=measure.SECONDS, help="for each time of a peer; attn has half of it")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.problems or problems.DEFAULT + LAYER_NAMES
    for name in names:
        if name not in ATTN_NAMES:
            try:
                problems.parse(name)
            except ValueError as error:
                parser.error(str(error))
    if options.child:
        return child(names, options.peers.split(","), options.child, options.seconds)
    rows = []
    for threads in map(int, options.threads.split(",")):
        for name in names:  # side by side, so that both meet the machine in the same state
            rows += peers_rows([name], options.peers, threads, options.seconds)
            rows += attn_rows(options.attn, [name], threads, options.seconds)
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        print_table(rows, options.peers.split(","))
    return None


if __name__ == "__main__":
    main()
