# SPDX-License-Identifier: MIT
"""Times contacts of one alignment: facebookresearch/esm on PyTorch, or this library, on random residues.

    msa.py [--json] esm|esm-bf16|attn|attn-bf16|attn-int8 ROWS COLUMNS CHECKPOINT [REPEATS]

CHECKPOINT is the published .pt file or one of its form (tests/parity/msa.py writes one), for the library; esm has the
published structure with random weights.  ESM_SOURCE: the folder of esm's source.  esm in bf16 is torch.autocast.
"""
import argparse
import contextlib
import ctypes
import json
import os
import sys
import time

import numpy as np

import measure

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "tests", "parity"), os.environ.get("ESM_SOURCE", "build/esm")]


def esm_call(tokens, bf16):
    import msa
    import torch
    torch.set_num_threads(2)
    model, tokens = msa.original_model(12, 768)[0], torch.tensor(tokens)

    def call():
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16) if bf16 else contextlib.nullcontext():
            model.predict_contacts(tokens)

    return call


def attn_call(tokens, precision, checkpoint):
    import msa
    lib = msa.Library(os.path.join(os.environ.get("ATTN_BUILD", "build"), "libattn.so"), precision)
    model, ids = lib.load(checkpoint), np.ascontiguousarray(tokens, np.int32)
    options, result = msa.Options(contacts=True), msa.Result()

    def call():
        lib.check(lib.lib.attn_msa_run(model, ids.ctypes.data_as(ctypes.c_void_p),
                                       *[ctypes.c_int64(n) for n in ids.shape], ctypes.byref(options),
                                       ctypes.byref(result)))

    return call


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["esm", "esm-bf16", "attn", "attn-bf16", "attn-int8"])
    parser.add_argument("rows", type=int, metavar="ROWS")
    parser.add_argument("columns", type=int, metavar="COLUMNS")
    parser.add_argument("checkpoint", metavar="CHECKPOINT")
    parser.add_argument("repeats", type=int, nargs="?", default=1, metavar="REPEATS")
    parser.add_argument("--json", action="store_true", help="an array of objects instead of the lines")
    options = parser.parse_args()
    rows, columns = options.rows, options.columns
    tokens = np.random.default_rng(0).integers(4, 24, (1, rows, columns))
    tokens[:, :, 0] = 0
    peer, _, precision = options.mode.partition("-")
    call = esm_call(tokens, precision == "bf16") if peer == "esm" else attn_call(tokens, precision or "f32", options.checkpoint)
    found = []
    for _ in range(options.repeats):
        begin = time.perf_counter()
        call()
        took = time.perf_counter() - begin
        work = 12 * (rows * columns * 32 * 768 ** 2 + 4 * columns ** 2 * rows * 768 + 4 * rows ** 2 * columns * 768)
        found.append({"mode": options.mode, "rows": rows, "columns": columns, "ms": round(1e3 * took, 1),
                      "gflops": round(work / took * 1e-9, 1), "mib": round(measure.status_mib("VmHWM"))})
        if not options.json:
            print(f"{options.mode} {rows} x {columns}: {took:.2f} s, {work / took * 1e-9:.0f} GFLOP/s, "
                  f"{found[-1]['mib']} MiB", flush=True)
    if options.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
