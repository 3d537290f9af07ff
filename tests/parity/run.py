# SPDX-License-Identifier: MIT
"""Runs the library on random models and compares its logits and gradients with PyTorch's in float64.

    run.py [--cases N] [--first SEED] [--tool COMMAND] [--keep DIR]

One line a case, then 'N passed, M failed'; the exit code is 1 when any failed.
"""
import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import torch

import make_case
import safetensors_file
from compare import TOLERANCE, compare_grads, distance, peak

def check(folder):
    """The errors of what the tool has written into a case: {what: error}."""
    def array(name):
        return np.load(os.path.join(folder, name + ".npy"))

    def grads(name):
        return safetensors_file.read(os.path.join(folder, name + ".safetensors"))

    logits = array("logits")
    errors = {"logits": distance(array("out_logits"), logits, peak(logits))}
    if os.path.exists(os.path.join(folder, "out_loss.npy")):
        loss = array("loss")
        errors["loss"] = distance(array("out_loss").reshape(loss.shape), loss, peak(loss))
    name, error = compare_grads(grads("out_grads"), grads("grads"))
    errors["gradient of " + name] = error
    return errors


def run_case(tool, seed, folder):
    """Whether the case passes, and a line about it."""
    config = make_case.write_case(seed, folder)
    sizes = " ".join(f"{key}={value}" for key, value in config.items() if key != "architecture")
    title = f"{seed}: {config['architecture']} {sizes}"
    for name in filter(lambda name: name.startswith("out_"), os.listdir(folder)):
        os.remove(os.path.join(folder, name))  # an earlier run's results must not pass for this one's
    done = subprocess.run([*tool, folder], capture_output=True, text=True)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["nothing said"]
        return False, f"FAIL {title}: exit code {done.returncode}: {lines[-1]}"
    try:
        errors = check(folder)
    except (OSError, ValueError, KeyError) as error:
        return False, f"FAIL {title}: {error}"
    passed = max(errors.values()) <= TOLERANCE
    figures = ", ".join(f"{what} {error:.1e}" for what, error in errors.items())
    return passed, f"{'ok  ' if passed else 'FAIL'} {title}: {figures}"


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    build = os.environ.get("ATTN_BUILD", os.path.join(root, "build"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="the first case's seed")
    parser.add_argument("--tool", default=shlex.quote(os.path.join(build, "tests", "parity_tool")))
    parser.add_argument("--keep", help="a folder to leave the cases in")
    options = parser.parse_args()
    tool = shlex.split(options.tool)
    if not shutil.which(tool[0]):
        sys.exit(f"run.py: there is no {tool[0]}; build the tests first, or name another --tool")
    torch.set_num_threads(1)  # the models are too small for more
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(options.first, options.first + options.cases):
            folder = os.path.join(options.keep or scratch, f"case{seed}")
            passed, line = run_case(tool, seed, folder)
            print(line, flush=True)
            failed += not passed
    print(f"{options.cases - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
