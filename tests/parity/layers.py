# SPDX-License-Identifier: MIT
"""Runs every layer of the library on random cases and compares outputs and all gradients with PyTorch's in float64.

    layers.py [--cases N] [--first SEED] [--tool COMMAND] [--only ARCHITECTURE]

The formulas are written from the papers and docs in layers_NAME.py, one function a layer.  A function draws a
config, weights and inputs from `rng` and returns them with the outputs, as (config, weights, inputs, forward); forward
takes two dicts of float64 tensors and returns the outputs by name, the first being the one whose gradient is taken.
"""
import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile

import numpy as np
import torch

import layers_axial
import layers_book
import layers_msa
import layers_spatial
import models_vision
import safetensors_file
from compare import TOLERANCE, compare_grads, distance, peak
from draw import normal

LAYERS = {**layers_book.LAYERS, **layers_axial.LAYERS, **layers_msa.LAYERS, **layers_spatial.LAYERS,
          **models_vision.LAYERS}
INTEGERS = ("valid_lens", "self_attn_padding_mask", "tokens", "image", "slices")


def evaluate(forward, weights, inputs, dout, dtype):
    """Outputs and gradients of weights and inputs, as numpy arrays."""
    def tensors(arrays):
        return {name: torch.tensor(array, dtype=dtype, requires_grad=name not in INTEGERS)
                for name, array in arrays.items()}
    w, x = tensors(weights), tensors(inputs)
    outputs = forward(w, x)
    first = next(iter(outputs.values()))
    if dout is None:
        return first.shape
    first.backward(torch.tensor(dout, dtype=dtype))
    grads = [{name: (t.grad if t.grad is not None else torch.zeros_like(t)).numpy() for name, t in part.items()
              if name not in INTEGERS} for part in (w, x)]
    return {name: out.detach().numpy() for name, out in outputs.items()}, *grads


def nudged(arrays, rng):
    """Everything a float32's last digit away."""
    return {name: array if name in INTEGERS else array * (1 + rng.choice([-1, 1], array.shape) * 2.0 ** -23)
            for name, array in arrays.items()}


def draw_case(architecture, rng):
    """A case whose results PyTorch's own float32 finds within half of the tolerance, and that move by no more when the
    last digits of weights and inputs change: others say nothing about who computes them (a norm over channels that are
    nearly equal, a hidden unit on ReLU's kink, a sum of many numbers that is nearly zero)."""
    while True:
        config, weights, inputs, forward = LAYERS[architecture](rng)
        dout = normal(rng, *evaluate(forward, weights, inputs, None, torch.float64))
        exact = evaluate(forward, weights, inputs, dout, torch.float64)
        others = [evaluate(forward, weights, inputs, dout, torch.float32),
                  evaluate(forward, nudged(weights, rng), nudged(inputs, rng), dout, torch.float64)]
        errors = []
        for other in others:
            errors += [distance(other[0][name], array, max(peak(array), 1e-30)) for name, array in exact[0].items()]
            errors.append(compare_grads({**other[1], **other[2]}, {**exact[1], **exact[2]})[1])
        if max(errors) <= TOLERANCE / 2:
            return config, weights, inputs, dout, exact


def run_case(tool, architecture, seed, folder):
    rng = np.random.default_rng(seed)
    config, weights, inputs, dout, (outputs, grads, input_grads) = draw_case(architecture, rng)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({"architecture": architecture, **config}, file)
    for name, arrays in ("weights", weights), ("inputs", inputs):
        safetensors_file.write(os.path.join(folder, name + ".safetensors"), arrays)
    np.save(os.path.join(folder, "dout.npy"), dout)
    title = f"{architecture} {seed}: " + " ".join(f"{k}={v}" for k, v in config.items())
    done = subprocess.run([*tool, folder], capture_output=True, text=True)
    if done.returncode != 0:
        return False, f"FAIL {title}: exit code {done.returncode}: {done.stderr.strip()}"
    got = {part: safetensors_file.read(os.path.join(folder, f"out_{part}.safetensors"))
           for part in ("outputs", "grads", "input_grads")}
    errors = {name: distance(got["outputs"][name], array, max(peak(array), 1e-30)) for name, array in outputs.items()}
    # Parameters that take no part in the result have no gradient; here that means zero.
    zeros = {name: np.zeros_like(array) for name, array in grads.items()}
    name, error = compare_grads({**zeros, **got["grads"], **got["input_grads"]}, {**grads, **input_grads})
    errors["gradient of " + name] = error
    passed = max(errors.values()) <= TOLERANCE
    return passed, f"{'ok  ' if passed else 'FAIL'} {title}: " + ", ".join(f"{k} {v:.1e}" for k, v in errors.items())


def main():
    build = os.environ.get("ATTN_BUILD", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10, help="of each layer")
    parser.add_argument("--first", type=int, default=0, help="the first case's seed")
    parser.add_argument("--tool", default=shlex.quote(os.path.join(build, "tests", "parity_tool")))
    parser.add_argument("--only", choices=LAYERS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    failed = count = 0
    for architecture in [options.only] if options.only else LAYERS:
        for seed in range(options.first, options.first + options.cases):
            with tempfile.TemporaryDirectory() as folder:
                passed, line = run_case(shlex.split(options.tool), architecture, seed, folder)
            print(line, flush=True)
            failed += not passed
            count += 1
    print(f"{count - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
