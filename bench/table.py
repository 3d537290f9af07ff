#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures the problems of `attn bench attend` and prints them as the table of docs/performance.md.

    table.py [--attn build/attn] [--unfused ./unfused] [--threads 1,2] [PROBLEM...]

A row is a problem and a pass; for each number of threads: milliseconds, part of the f32 peak measured in the same run, and
the time of bench/unfused.c over attn's (backward: from the log-sum-exp; with all weights kept).  Nothing else should
run meanwhile.
"""
import argparse
import functools
import json
import subprocess


def measured(attn, problems, threads):
    """{(problem, direction): {threads: row}} in the order of the problems."""
    text = subprocess.run([attn, "bench", "attend", "--json", "--quiet", "--threads", threads, *problems], check=True,
                          capture_output=True, text=True).stdout
    table = {}
    for row in json.loads(text):
        table.setdefault((row["problem"], row["direction"]), {})[row["threads"]] = row
    return table


@functools.lru_cache
def unfused_times(unfused, problem, threads):
    """Milliseconds forward, backward with weights kept, backward without; nothing for an unknown problem."""
    done = subprocess.run([unfused, str(threads), problem], capture_output=True, text=True)
    return tuple(map(float, done.stdout.split()[-3:])) if done.returncode == 0 and done.stdout.strip() else None


def unfused_ratios(unfused, row):
    """How many times attn's milliseconds the unfused path takes."""
    times = unfused_times(unfused, row["problem"], row["threads"]) if unfused and row["dtype"] == "f32" else None
    if not times:
        return ""
    forward, kept, anew = times
    times = [forward] if row["direction"] == "forward" else [anew, kept]
    return "; ".join(f"{time / row['ms']:.2f} x" for time in times)


def cells(unfused, by_threads):
    for threads in sorted(by_threads):
        row = by_threads[threads]
        yield f"{row['ms']:.3g}"
        yield f"{row['fraction']:.2f}"
        yield unfused_ratios(unfused, row)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", metavar="PROBLEM")
    parser.add_argument("--attn", default="build/attn")
    parser.add_argument("--unfused", help="bench/unfused.c, compiled; without it that column stays empty")
    parser.add_argument("--threads", default="1,2")
    options = parser.parse_args()
    table = measured(options.attn, options.problems, options.threads)
    heads = [f"{t}: {what}" for t in options.threads.split(",") for what in ("ms", "part", "unfused")]
    print("| problem | pass | solver | workspace | " + " | ".join(heads) + " |")
    print("|---" * (4 + len(heads)) + "|")
    for (problem, direction), by_threads in table.items():
        last = by_threads[max(by_threads)]
        print(f"| `{problem}` | {direction} | {last['solver']} | {last['workspace_bytes'] / 1e3:,.0f} KB | "
              + " | ".join(cells(options.unfused, by_threads)) + " |", flush=True)


if __name__ == "__main__":
    main()
