# SPDX-License-Identifier: MIT
"""Runs every layer of the library on random cases and compares outputs and all gradients with PyTorch's in float64.

    layers.py [--cases N] [--first SEED] [--tool COMMAND] [--only ARCHITECTURE]

Every case runs twice: in float64, to EXACT, which shows a wrong formula whatever its size; and in float32, to TOLERANCE,
where PyTorch's own float32 finds the result at all.

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
import layers_transformer
import models_vision
import safetensors_file
from compare import TOLERANCE, compare_grads, distance, peak
from draw import normal

LAYERS = {**layers_book.LAYERS, **layers_axial.LAYERS, **layers_msa.LAYERS, **layers_spatial.LAYERS,
          **layers_transformer.LAYERS, **models_vision.LAYERS}
EXACT = 1e-9  # of the largest element, in float64; a wrong epsilon or a forgotten factor is far above
TRIALS = 4
DRAWS = 12
INTEGERS = ("valid_lens", "self_attn_padding_mask", "tokens", "image", "slices", "mask")


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


def nudged(arrays, rng, digit=2.0 ** -23):
    """Everything a last digit away, float32's unless told."""
    return {name: array if name in INTEGERS else array * (1 + rng.choice([-1, 1], array.shape) * digit)
            for name, array in arrays.items()}


def errors_of(found, exact):
    """The largest error of each output, and the worst of the gradients under its name; both as evaluate() returns them.
    Parameters that take no part in the result have no gradient; here that means zero."""
    errors = {name: distance(found[0][name], array, max(peak(array), 1e-30)) for name, array in exact[0].items()}
    wanted = {**exact[1], **exact[2]}
    name, error = compare_grads({**{n: np.zeros_like(a) for n, a in wanted.items()}, **found[1], **found[2]}, wanted)
    return errors | {"gradient of " + name: error}


def says_nothing(weights, inputs, forward, dout, exact, rng):
    """Whether float32 cannot tell the result: PyTorch's own misses it by more than a quarter of the tolerance, or it moves
    so far when the last digits of weights and inputs change.  Such cases (a norm over channels that are nearly equal, a
    hidden unit on ReLU's kink, queries' gradients that are differences of nearly equal values) do not depend on who
    computes them; one trial may get them right by luck, so there are several, each with roundings of its own."""
    trials = [evaluate(forward, weights, inputs, dout, torch.float32)]
    for _ in range(TRIALS):
        near = nudged(weights, rng), nudged(inputs, rng)
        trials += [evaluate(forward, *near, dout, dtype) for dtype in (torch.float32, torch.float64)]
    return max(max(errors_of(trial, exact).values()) for trial in trials) > TOLERANCE / 4


def is_brittle(weights, inputs, forward, dout, exact, rng):
    """Whether even float64 cannot tell the result to EXACT: norms over two or three channels, block after block, multiply
    a last digit by hundreds each."""
    double = [{name: np.asarray(array, np.float64) for name, array in part.items()} for part in (weights, inputs)]
    moved = evaluate(forward, *(nudged(part, rng, 2.0 ** -51) for part in double), dout, torch.float64)
    return max(errors_of(moved, exact).values()) > EXACT / 4


def draw_case(architecture, rng):
    """A case that float32 can tell; one with the key "dtype" is for float64 only and need not.  A deep network may have
    none among so many draws: then the last one is for float64."""
    for _ in range(DRAWS):
        config, weights, inputs, forward = LAYERS[architecture](rng)
        dout = normal(rng, *evaluate(forward, weights, inputs, None, torch.float64))
        exact = evaluate(forward, weights, inputs, dout, torch.float64)
        case = weights, inputs, forward, dout, exact, rng
        if not is_brittle(*case) and ("dtype" in config or not says_nothing(*case)):
            break
    else:
        config = config | {"dtype": "f64"}
    return config, weights, inputs, dout, exact


def run_tool(tool, case, exact, double):
    """The errors of what the tool computes, or the text of its failure."""
    architecture, config, weights, inputs, dout = case
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump({"architecture": architecture, **config, "dtype": "f64" if double else "f32"}, file)
        for name, arrays in ("weights", weights), ("inputs", inputs):
            safetensors_file.write(os.path.join(folder, name + ".safetensors"), arrays, double)
        np.save(os.path.join(folder, "dout.npy"), dout.astype(np.float64 if double else np.float32))
        done = subprocess.run([*tool, folder], capture_output=True, text=True)
        if done.returncode != 0:
            return f"exit code {done.returncode}: {done.stderr.strip()}"
        return errors_of([safetensors_file.read(os.path.join(folder, f"out_{part}.safetensors"))
                          for part in ("outputs", "grads", "input_grads")], exact)


def run_case(tool, architecture, seed):
    config, weights, inputs, dout, exact = draw_case(architecture, np.random.default_rng(seed))
    title = f"{architecture} {seed}: " + " ".join(f"{k}={v}" for k, v in config.items())
    passed, said = True, []
    for double in (True,) if "dtype" in config else (True, False):
        errors = run_tool(tool, (architecture, config, weights, inputs, dout), exact, double)
        passed = passed and not isinstance(errors, str) and max(errors.values()) <= (EXACT if double else TOLERANCE)
        said.append(errors if isinstance(errors, str) else ("f64 " if double else "f32 ")
                    + ", ".join(f"{k} {v:.1e}" for k, v in errors.items()))
    return passed, f"{'ok  ' if passed else 'FAIL'} {title}: " + "; ".join(said)


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
            passed, line = run_case(shlex.split(options.tool), architecture, seed)
            print(line, flush=True)
            failed += not passed
            count += 1
    print(f"{count - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
