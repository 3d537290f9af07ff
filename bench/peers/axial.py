# SPDX-License-Identifier: MIT
"""Times PyTorch's training step of the reversible axial image transformer.

    axial.py DEPTH DIM SIDE BATCH [THREADS]
"""
import statistics
import sys

import torch

import axial_models
import measure


def main():
    depth, dim, side, batch = map(int, sys.argv[1:5])
    torch.set_num_threads(int(sys.argv[5]) if len(sys.argv) > 5 else 2)
    torch.manual_seed(0)
    model = axial_models.AxialImageTransformer(dim, depth).train()
    x = torch.randn(batch, dim, side, side)
    before = measure.status_mib("VmRSS")

    def step():
        model.zero_grad(set_to_none=True)
        y = model(x)
        (y * y).mean().backward()

    times = measure.times_ms(step, budget_s=3, warm_up=1)
    print(f"depth {depth:3}  {batch} x {dim} x {side} x {side}  {statistics.median(times):8.1f} ms (fastest "
          f"{min(times):.1f})  {measure.status_mib('VmHWM') - before:7.1f} MiB")


if __name__ == "__main__":
    main()
