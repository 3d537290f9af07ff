# SPDX-License-Identifier: MIT
"""Writes one parity case: a random small model, a random batch, and what the model must give for it.

    make_case.py SEED DIR

README.md describes the files of DIR.  An even seed makes a Transformer, an odd one the Bahdanau model.
"""
import json
import os
import sys

import numpy as np
import torch

import models
import safetensors_file
from compare import TOLERANCE, compare_grads

# A hidden unit this near to ReLU's kink may fall on either side in float32, where the gradient jumps.
KINK = 2e-6


def transformer_config(rng):
    heads = int(rng.choice([1, 2, 3, 4, 5]))
    width = int(rng.choice([7, 8, 11, 16, 17, 33]))
    width += heads * width % 2  # sines and cosines come in pairs
    return {"architecture": "transformer",
            "src_vocab_size": int(rng.integers(5, 70)), "tgt_vocab_size": int(rng.integers(5, 70)),
            "num_hiddens": heads * width, "ffn_num_hiddens": int(rng.choice([1, 5, 16, 31, 64, 97])),
            "num_heads": heads, "num_blks": int(rng.integers(1, 4)), "dropout": 0.0,
            "use_bias": bool(rng.integers(2))}


def seq2seq_config(rng):
    return {"architecture": "seq2seq-attention",
            "src_vocab_size": int(rng.integers(5, 70)), "tgt_vocab_size": int(rng.integers(5, 70)),
            "embed_size": int(rng.choice([1, 3, 8, 17, 32])), "num_hiddens": int(rng.choice([1, 5, 8, 16, 33, 65])),
            "num_layers": int(rng.integers(1, 4)), "dropout": 0.0}


def random_weights(config, model, rng):
    """Values of a trained model's size everywhere: ones and zeros (layer norms, biases) would hide mistakes."""
    for name, parameter in model.named_parameters():
        values = rng.standard_normal(tuple(parameter.shape))
        if name.endswith("ln.weight"):
            values = 1.0 + 0.2 * values
        elif parameter.dim() == 1:
            values = 0.2 * values
        elif config["architecture"] == "seq2seq-attention" and "embedding" in name:
            pass  # the book's N(0, 1)
        else:  # embeddings too: the Transformer multiplies them by the root of the width
            values = values / np.sqrt(parameter.shape[1])
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(values.astype(np.float32)))


def random_batch(config, rng):
    """Tokens, lengths and labels.  Padding takes part as a token; one sentence in some cases is wholly masked."""
    batch, src_steps, tgt_steps = (int(rng.choice(sizes)) for sizes in
                                   ([1, 2, 3, 5, 8], [1, 2, 5, 10, 17, 33], [1, 3, 9, 10, 16, 31]))
    pad = config["tgt_pad"]
    src = rng.integers(0, config["src_vocab_size"], (batch, src_steps))
    valid = rng.integers(1, src_steps + 1, batch)
    if batch > 1 and rng.integers(4) == 0:
        valid[rng.integers(batch)] = 0
    tgt_in, labels = (rng.integers(0, config["tgt_vocab_size"], (batch, tgt_steps)) for _ in range(2))
    for row in range(batch):
        labels[row, int(rng.integers(1, tgt_steps + 1)):] = pad
    labels[0, 0] = (pad + 1) % config["tgt_vocab_size"]  # at least one label counts
    arrays = {"src": src, "src_valid_len": valid, "tgt_in": tgt_in, "labels": labels}
    return {name: array.astype(np.int32) for name, array in arrays.items()}


def evaluate(config, weights, batch, dtype):
    """Logits, loss and gradients as numpy arrays, and the distance to the nearest kink."""
    model = models.build(config, dtype)
    model.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in weights.items()})
    nearest = [np.inf]

    def watch(module, inputs, output):
        nearest[0] = min(nearest[0], output.detach().abs().min().item())

    for name, module in model.named_modules():
        if name.endswith("dense1"):
            module.register_forward_hook(watch)
    tokens = {name: torch.from_numpy(array).long() for name, array in batch.items()}
    logits = model(tokens["src"], tokens["src_valid_len"], tokens["tgt_in"])
    loss = models.masked_loss(logits, tokens["labels"], config["tgt_pad"])
    loss.backward()
    grads = {name: parameter.grad.numpy() for name, parameter in model.named_parameters()}
    return logits.detach().numpy(), loss.item(), grads, nearest[0]


def random_case(seed):
    """Config, weights, batch, the float64 results and PyTorch's float32 logits.

    Drawn again while near a kink, and while PyTorch's own float32 gradients take more than half of the tolerance:
    there the gradient is a small difference of large numbers, and is no evidence about who computes it.
    """
    rng = np.random.default_rng(seed)
    config = (transformer_config, seq2seq_config)[seed % 2](rng)
    config["tgt_pad"] = int(rng.integers(config["tgt_vocab_size"]))
    while True:
        model = models.build(config)
        random_weights(config, model, rng)
        weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
        batch = random_batch(config, rng)
        *results, nearest = evaluate(config, weights, batch, torch.float64)
        logits_f32, _, grads_f32, _ = evaluate(config, weights, batch, torch.float32)
        if nearest > KINK and compare_grads(grads_f32, results[2])[1] <= TOLERANCE / 2:
            return config, weights, batch, results, logits_f32


def write_case(seed, folder):
    config, weights, batch, (logits, loss, grads), logits_f32 = random_case(seed)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file, indent=2)
    safetensors_file.write(os.path.join(folder, "weights.safetensors"), weights)
    safetensors_file.write(os.path.join(folder, "grads.safetensors"), grads)
    for name, array in {**batch, "logits": np.float32(logits), "logits_f32": logits_f32,
                        "loss": np.float32([loss])}.items():
        np.save(os.path.join(folder, name + ".npy"), array)
    return config


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    print(json.dumps(write_case(int(sys.argv[1]), sys.argv[2])))
