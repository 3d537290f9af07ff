# SPDX-License-Identifier: MIT
"""Does with PyTorch in float32 what build/tests/parity_tool does with the library; the driver is tested with it.

    torch_tool.py DIR

Reads the case from its files only, so that it also shows that they are complete.
"""
import json
import os
import sys

import numpy as np
import torch

import make_case
import safetensors_file


def main(folder):
    torch.set_num_threads(1)
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    weights = safetensors_file.read(os.path.join(folder, "weights.safetensors"))
    batch = {name: np.load(os.path.join(folder, name + ".npy"))
             for name in ("src", "src_valid_len", "tgt_in", "labels")}
    logits, loss, grads, _ = make_case.evaluate(config, weights, batch, torch.float32)
    np.save(os.path.join(folder, "out_logits.npy"), logits)
    np.save(os.path.join(folder, "out_loss.npy"), np.float32([loss]))
    safetensors_file.write(os.path.join(folder, "out_grads.safetensors"), grads)


if __name__ == "__main__":
    main(sys.argv[1])
