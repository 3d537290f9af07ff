#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs every command, and compiles or runs every C and Python snippet, of README.md and docs/*.md.

Each page gets a directory of its own with stand-ins (standins.py) for the data that it speaks of, and its blocks are
run there from top to bottom, as a reader would.  Commands that would take hours, a network or another program are
replaced by the rules of substitutions.py, and by nothing else; the report says how often each was used and names what
was not run.

    ATTN_BUILD=build python3 tests/documents/run.py [PAGE...]
"""
import collections
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import standins  # noqa: E402
import substitutions  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("ATTN_BUILD", os.path.join(ROOT, "build")))

PYTHON = None  # one that has NumPy

# An indented block is a shell's if its first line begins like one of these; other blocks are tables and formulas.
SHELL = re.compile(r"(build/attn|attn|(?:\{ )?printf|make|cc|cmake|pip|sh|zcat|for|scripts/\S+|python3?|mpirun|\./\w+|ATTN_\w+=\S*|"
                   r"[A-Z_]+=\S+ \S+|build/\S+)( |$)")


def blocks(text):
    """(line, kind, text) of the fenced blocks, whose kind follows the fence, and of indented ones ("")."""
    lines, i = text.split("\n"), 0
    while i < len(lines):
        start = i
        if lines[i].startswith("```"):
            end = next(j for j in range(i + 1, len(lines)) if lines[j].startswith("```"))
            yield start + 1, lines[i][3:].strip(), "\n".join(lines[i + 1:end])
            i = end + 1
        elif lines[i].startswith("    ") and (i == 0 or not lines[i - 1].strip()):
            while i < len(lines) and (lines[i].startswith("    ") or (not lines[i] and lines[i + 1:i + 2] and
                                                                      lines[i + 1].startswith("    "))):
                i += 1
            yield start + 1, "", "\n".join(line[4:] for line in lines[start:i])
        else:
            i += 1


def python_with_numpy():
    for candidate in (os.environ.get("PYTHON"), sys.executable, "/usr/bin/python3", "build/venv/bin/python"):
        if candidate and os.path.exists(candidate) and subprocess.run(
                [candidate, "-c", "import numpy"], capture_output=True, cwd=ROOT).returncode == 0:
            return os.path.abspath(candidate) if "/" in candidate else candidate
    return None


def is_shell(kind, text):
    return kind in ("sh", "bash", "console") or (kind == "" and SHELL.match(text.split("\n")[0]))


class Page:
    def __init__(self, path, directory, report):
        self.path, self.directory, self.report = path, directory, report
        self.environment = dict(os.environ, ATTN_THREADS="2", ATTN_BUILD=BUILD,
                                ATTN_LIBRARY=os.path.join(BUILD, "libattn.so"), PYTHONDONTWRITEBYTECODE="1",
                                PYTHONPATH=os.path.join(ROOT, "python") + os.pathsep + os.path.join(directory, "site"))

    def call(self, line, what, command, text):
        done = subprocess.run(command, cwd=self.directory, env=self.environment, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL)
        if done.returncode == 77:  # as in a test: what the command needs is not here, which it says
            self.report["skipped"].append(f"{self.path}:{line}: {done.stdout.strip().splitlines()[-1]}")
        elif done.returncode != 0:
            print(f"{self.path}:{line}: {what} ended with {done.returncode}:\n{text}\n---- it said\n"
                  f"{(done.stdout + done.stderr)[-3000:]}")
            self.report["counts"]["failed"] += 1

    def shell(self, line, text):
        used, skipped = self.report["used"], self.report["skipped"]
        script = re.sub(r"\\\n *", " ", text)
        for rule in substitutions.RULES:
            script, n = re.subn(rule.pattern, rule.replacement, script, flags=re.M)
            if n:
                used[rule.why] += n
        kept = []
        for command in script.split("\n"):
            reason = next((r for pattern, r in substitutions.NOT_RUN if re.match(pattern, command.strip())), None)
            if reason:
                skipped.append(f"{self.path}: {command.split('#')[0].strip()}: {reason}")
            elif command.strip():
                kept.append(command)
                self.report["counts"]["commands"] += 1
        if kept:
            self.call(line, "the block", ["bash", "-euc", "set -x\n" + "\n".join(kept)], "\n".join(kept))

    def c(self, line, name, text):
        if text.lstrip().startswith("X("):
            self.report["skipped"].append(f"{self.path}:{line}: a table's row: tests/adding.sh builds with it")
            return
        source = os.path.join(self.directory, name or f"snippet{line}.c")
        if not re.search(r"^const|^int main|^[a-z].*\)\n\{", text, re.M):  # statements: into a function
            includes = "\n".join(re.findall(r"^#include.*$", text, re.M))
            body = re.sub(r"^#include.*$", "", text, flags=re.M)
            text = f"{includes}\n{substitutions.C_BEFORE}\nint main(void)\n{{\n{body}\nreturn 0;\n}}\n"
        with open(source, "w") as file:
            file.write(text)
        self.report["counts"]["c"] += 1
        self.call(line, "the C snippet", ["cc", "-std=gnu11", "-Wall", "-Werror", "-Wno-unused", "-Iinclude", "-Isrc/engine",
                                          "-c", source, "-o", source + ".o"], text)

    def python(self, line, text):
        why = substitutions.PYTHON_NOT_RUN.get(self.path)
        if why:
            self.report["skipped"].append(f"{self.path}:{line}: {why}")
            return
        if not PYTHON:
            self.report["skipped"].append(f"{self.path}:{line}: no Python here has NumPy")
            return
        before = substitutions.PYTHON_BEFORE.get(self.path, "")
        self.report["counts"]["python"] += 1
        self.call(line, "the Python snippet", [PYTHON, "-c", before + "\n" + text], text)

    def run(self):
        for line, kind, text in blocks(open(os.path.join(ROOT, self.path), encoding="utf-8").read()):
            if is_shell(kind, text):
                self.shell(line, text)
            elif kind.split(" ")[0] == "c":  # "c NAME": a file of that name, which later commands compile
                self.c(line, kind[2:], text)
            elif kind == "python":
                self.python(line, text)


def run_page(path, directory):
    report = {"counts": collections.Counter(), "used": collections.Counter(), "skipped": []}
    os.mkdir(directory)
    standins.lay(directory, ROOT, BUILD)
    start = time.time()
    Page(path, directory, report).run()
    print(f"{time.time() - start:6.1f} s  {path}", flush=True)
    return report


def main():
    global PYTHON
    PYTHON = python_with_numpy()
    pages = sys.argv[1:] or ["README.md"] + sorted("docs/" + p for p in os.listdir(os.path.join(ROOT, "docs"))
                                                   if p.endswith(".md"))
    begin = time.time()
    with tempfile.TemporaryDirectory() as top, concurrent.futures.ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(lambda path: run_page(path, os.path.join(top, path.replace("/", "-"))), pages))
    unused = [] if sys.argv[1:] else [rule.why for rule in substitutions.RULES if not any(rule.why in r["used"] for r in reports)]
    for why in unused:
        print(f"substitutions.py: no page has a command for this rule: {why}")
    counts = sum((report["counts"] for report in reports), collections.Counter())
    used = sum((report["used"] for report in reports), collections.Counter())
    print("\nreplaced:")
    for why, n in sorted(used.items()):
        print(f"  {n:3} x {why}")
    print("not run:")
    for line in (line for report in reports for line in report["skipped"]):
        print("  " + line)
    print(f"{counts['commands']} lines of commands, {counts['c']} C and {counts['python']} Python snippets in "
          f"{time.time() - begin:.0f} s; {counts['failed']} failed")
    return 1 if counts["failed"] or counts["commands"] == 0 or unused else 0


if __name__ == "__main__":
    sys.exit(main())
