# SPDX-License-Identifier: MIT
"""Models with random weights, as they are and under attn.torch.enable(), and layers whose attention attn.torch replaces:
whether outputs and gradients agree, and how long a forward pass and a training step take.

    PYTHONPATH=python ATTN_LIBRARY=build/libattn.so build/venv/bin/python bench/peers/torch_models.py [--time] [--json] [NAME...]

It needs transformers.  Agreement is checked with all calls taken, time with those that enable() takes.  A model's `share` is
the part of PyTorch's forward pass inside attention.  Both sides take turns, so that what else the machine does falls on
both, and the fastest turn of each counts.
"""
import argparse
import contextlib
import json
import sys
import time

import torch
import torch.nn.functional as F
import transformers as hf
from torch_layers import LAYERS

import attn.torch

TOLERANCE = 1e-4  # of the largest element
SMALL = {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 512}


def ids(vocabulary, batch, length):
    return torch.randint(5, vocabulary, (batch, length))


def plain(config, model, tokens=None, **inputs):
    """A model without dropout, and its inputs."""
    for name in vars(config):
        if ("dropout" in name or name.endswith("_pdrop")) and not isinstance(getattr(config, name), bool):
            setattr(config, name, 0.0)
    config._attn_implementation = "sdpa"
    if tokens:
        inputs["input_ids"] = ids(config.vocab_size, *tokens)
    return model(config), inputs


def bert(batch=4, n=256, padded=True):
    mask = torch.ones(batch, n, dtype=torch.long)
    if padded:
        mask[-1, n * 4 // 5:] = 0
    config = hf.BertConfig(vocab_size=500, max_position_embeddings=n, **SMALL)
    return plain(config, hf.BertModel, (batch, n), attention_mask=mask)


def esm(batch=4, n=256):
    config = hf.EsmConfig(vocab_size=33, pad_token_id=1, mask_token_id=32, position_embedding_type="rotary", **SMALL)
    return plain(config, hf.EsmModel, (batch, n))


def vit(batch=2, patch=16):
    return plain(hf.ViTConfig(image_size=224, patch_size=patch, **SMALL), hf.ViTModel,
                 pixel_values=torch.randn(batch, 3, 224, 224))


def gpt2(batch=2, n=512):
    config = hf.GPT2Config(vocab_size=500, n_embd=256, n_layer=2, n_head=4, n_inner=512, bos_token_id=0, eos_token_id=0,
                           use_cache=False)
    return plain(config, hf.GPT2Model, (batch, n))


def llama(batch=2, n=512):
    config = hf.LlamaConfig(vocab_size=500, num_key_value_heads=2, use_cache=False, **SMALL)
    return plain(config, hf.LlamaModel, (batch, n))


def t5(batch=2, n=512):
    config = hf.T5Config(vocab_size=500, d_model=256, d_kv=64, d_ff=512, num_layers=2, num_heads=4, use_cache=False)
    return plain(config, hf.T5Model, (batch, n), decoder_input_ids=ids(500, batch, n // 2))


def whisper(batch=2, frames=500):
    config = hf.WhisperConfig(vocab_size=500, d_model=256, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                              decoder_attention_heads=4, encoder_ffn_dim=512, decoder_ffn_dim=512, use_cache=False,
                              max_source_positions=frames, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                              decoder_start_token_id=1)
    return plain(config, hf.WhisperModel, input_features=torch.randn(batch, 80, 2 * frames),
                 decoder_input_ids=ids(500, batch, 64))


def swin():
    config = hf.SwinConfig(image_size=112, embed_dim=48, depths=[2, 2], num_heads=[3, 6], drop_path_rate=0.0)
    return plain(config, hf.SwinModel, pixel_values=torch.randn(2, 3, 112, 112))


MODELS = {"BERT, 256 tokens, padded": bert, "BERT, 1,024 tokens": lambda: bert(1, 1024, False),
          "ESM, 256 tokens": esm, "ESM, 1,024 tokens": lambda: esm(1, 1024),
          "ViT, 197 tokens": vit, "ViT, 785 tokens": lambda: vit(1, 8),
          "GPT-2, 512 tokens": gpt2, "GPT-2, 1,024 tokens": lambda: gpt2(1, 1024),
          "Llama, 512 tokens": llama, "Llama, 1,024 tokens": lambda: llama(1, 1024),
          "T5, 512 and 256 tokens": t5, "T5, 1,024 and 512 tokens": lambda: t5(1, 1024),
          "Whisper, 500 frames": whisper, "Whisper, 1,500 frames": lambda: whisper(1, 1500), "Swin": swin}


class Replaced:
    """A model of transformers on either side."""

    def __init__(self, make):
        self.model, self.inputs = make()
        self.model.train()

    def side(self, ours, always=False):
        return attn.torch.enable(always=always) if ours else contextlib.nullcontext()

    def run(self, ours):
        return self.model(**self.inputs)[0]

    def leaves(self):
        return dict(self.model.named_parameters())


class Swapped:
    """A layer of torch_layers.py: its own mathematics, or attn.torch's function."""

    def __init__(self, make):
        self.theirs, self.ours, self.inputs = make()

    def side(self, ours, always=False):
        return contextlib.nullcontext()

    def run(self, ours):
        return (self.ours if ours else self.theirs)(*self.inputs)

    def leaves(self):
        return {str(i): x for i, x in enumerate(self.inputs) if isinstance(x, torch.Tensor) and x.requires_grad}


def step(case, ours):
    """The output and the gradients of all parameters."""
    leaves = case.leaves()
    for x in leaves.values():
        x.grad = None
    o = case.run(ours)
    o.pow(2).mean().backward()
    return o.detach(), {name: x.grad for name, x in leaves.items() if x.grad is not None}


def forward(case, ours):
    with torch.no_grad():
        case.run(ours)


def difference(got, wanted):
    """The largest of outputs and gradients, relative to the largest element of the outputs, or of all gradients."""
    error = float((got[0] - wanted[0]).abs().max() / wanted[0].abs().max())
    peak = max(float(g.abs().max()) for g in wanted[1].values())
    return max(error, *(float((got[1][name] - g).abs().max()) / peak for name, g in wanted[1].items()))


def now():
    """With one thread processor time, which other work on the machine hardly moves."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def ratio(work, case, seconds):
    """PyTorch's time over attn's, attn's in milliseconds, and how many calls attn took."""
    best = {False: 1e9, True: 1e9}
    turns, before, end = 0, attn.torch.calls(), time.perf_counter() + seconds
    while turns < 4 or time.perf_counter() < end:
        for ours in (False, True):
            with case.side(ours):
                begin = now()
                work(case, ours)
                best[ours] = min(best[ours], now() - begin)
        turns += 1
    return best[False] / best[True], 1e3 * best[True], (attn.torch.calls() - before) // turns


def share(case):
    """The part of the forward pass that PyTorch's function takes."""
    theirs, inside, parts = F.scaled_dot_product_attention, 0.0, []

    def timed(*arguments, **options):
        nonlocal inside
        begin = now()
        found = theirs(*arguments, **options)
        inside += now() - begin
        return found

    F.scaled_dot_product_attention = timed
    for _ in range(8):
        inside, begin = 0.0, now()
        forward(case, False)
        parts.append(inside / (now() - begin))
    F.scaled_dot_product_attention = theirs
    return sorted(parts)[4]


def print_row(row):
    line = f"{'ok  ' if row['ok'] else 'FAIL'} {row['name']}: largest difference {row['difference']:.1e}"
    if "share" in row:
        line += ", {calls} calls, share {share:.2f}".format(**row)
    if "step_ratio" in row:
        line += ("; forward {forward_ratio:.2f} x ({forward_attn_ms:.1f} ms, {forward_taken} taken), "
                 "training step {step_ratio:.2f} x ({step_attn_ms:.1f} ms, {step_taken} taken)").format(**row)
    print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="parts of names")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--json", action="store_true", help="an array of objects instead of the lines")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    cases = {**{name: (Replaced, make) for name, make in MODELS.items()},
             **{name: (Swapped, make) for name, make in LAYERS.items()}}
    rows = []
    for name, (kind, make) in cases.items():
        if options.names and not any(part.lower() in name.lower() for part in options.names):
            continue
        torch.manual_seed(0)
        case = kind(make)
        wanted, before = step(case, False), attn.torch.calls()
        with case.side(True, always=True):
            got = step(case, True)
        error, calls = difference(got, wanted), attn.torch.calls() - before
        ok = error <= TOLERANCE and (calls > 0 or kind is Swapped)
        row = {"name": name, "threads": options.threads, "ok": ok, "difference": error}
        if options.time:
            row |= {} if kind is Swapped else {"calls": calls, "share": round(share(case), 3)}
            for work in (forward, step):
                row |= dict(zip((f"{work.__name__}_{what}" for what in ("ratio", "attn_ms", "taken")),
                                ratio(work, case, options.seconds)))
        rows.append(row)
        if not options.json:
            print_row(row)
    if options.json:
        print(json.dumps(rows, indent=2))
    return not all(row["ok"] for row in rows)


if __name__ == "__main__":
    sys.exit(main())
