# SPDX-License-Identifier: MIT
"""Models of Hugging Face's transformers with random weights, as they are and under attn.torch.enable(): whether outputs and
gradients agree, and how long a forward pass and a training step take.

    PYTHONPATH=python ATTN_LIBRARY=build/libattn.so build/venv/bin/python bench/peers/torch_models.py [--time] [NAME...]

It needs transformers.  The times of both take turns, so that what else the machine does falls on both.
"""
import argparse
import statistics
import sys
import time

import torch
import transformers as hf

import attn.torch

TOLERANCE = 1e-4  # of the largest element


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


SMALL = {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 512}


def bert():
    mask = torch.ones(4, 256, dtype=torch.long)
    mask[1, 200:] = 0
    return plain(hf.BertConfig(vocab_size=500, **SMALL), hf.BertModel, (4, 256), attention_mask=mask)


def esm():
    return plain(hf.EsmConfig(vocab_size=33, pad_token_id=1, mask_token_id=32, position_embedding_type="rotary", **SMALL),
                 hf.EsmModel, (4, 256))


def vit():
    return plain(hf.ViTConfig(image_size=224, **SMALL), hf.ViTModel, pixel_values=torch.randn(2, 3, 224, 224))


def gpt2():
    config = hf.GPT2Config(vocab_size=500, n_embd=256, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0, use_cache=False)
    return plain(config, hf.GPT2Model, (2, 512))


def llama():
    return plain(hf.LlamaConfig(vocab_size=500, num_key_value_heads=2, use_cache=False, **SMALL), hf.LlamaModel, (2, 512))


def t5():
    config = hf.T5Config(vocab_size=500, d_model=256, d_kv=64, d_ff=512, num_layers=2, num_heads=4, use_cache=False)
    return plain(config, hf.T5Model, (2, 512), decoder_input_ids=ids(500, 2, 256))


def whisper():
    config = hf.WhisperConfig(vocab_size=500, d_model=256, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                              decoder_attention_heads=4, encoder_ffn_dim=512, decoder_ffn_dim=512, use_cache=False,
                              max_source_positions=500, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                              decoder_start_token_id=1)
    return plain(config, hf.WhisperModel, input_features=torch.randn(2, 80, 1000), decoder_input_ids=ids(500, 2, 64))


def swin():
    config = hf.SwinConfig(image_size=112, embed_dim=48, depths=[2, 2], num_heads=[3, 6], drop_path_rate=0.0)
    return plain(config, hf.SwinModel, pixel_values=torch.randn(2, 3, 112, 112))


MODELS = {"BERT": bert, "ESM": esm, "ViT": vit, "GPT-2": gpt2, "Llama": llama, "T5": t5, "Whisper": whisper, "Swin": swin}


def step(model, inputs):
    """The output and the gradients of all parameters."""
    model.zero_grad()
    o = model(**inputs)[0]
    o.pow(2).mean().backward()
    return o.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def forward(model, inputs):
    with torch.no_grad():
        model(**inputs)


def difference(got, wanted):
    """The largest of outputs and gradients, relative to the largest element of the outputs, or of all gradients."""
    error = float((got[0] - wanted[0]).abs().max() / wanted[0].abs().max())
    peak = max(float(g.abs().max()) for g in wanted[1].values())
    return max(error, *(float((got[1][name] - g).abs().max()) / peak for name, g in wanted[1].items()))


def ratio(work, model, inputs, seconds=1.0):
    """PyTorch's time over attn's: medians of calls that take turns."""
    times = {False: [], True: []}
    end = time.perf_counter() + seconds
    while len(times[True]) < 4 or time.perf_counter() < end:
        for ours in (False, True):
            if ours:
                attn.torch.enable()
            begin = time.perf_counter()
            work(model, inputs)
            times[ours].append(time.perf_counter() - begin)
            attn.torch.disable()
    theirs, ours = (statistics.median(times[way][1:]) for way in (False, True))
    return theirs / ours, 1e3 * ours


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(MODELS))
    parser.add_argument("--time", action="store_true")
    options = parser.parse_args()
    failed = 0
    for name in options.names or MODELS:
        torch.manual_seed(0)
        model, inputs = MODELS[name]()
        model.train()
        wanted, before = step(model, inputs), attn.torch.calls()
        with attn.torch.enable():
            got = step(model, inputs)
        error, taken = difference(got, wanted), attn.torch.calls() - before
        ok = error <= TOLERANCE and taken > 0
        failed += not ok
        line = f"{'ok  ' if ok else 'FAIL'} {name}: {taken} calls taken, largest difference {error:.1e}"
        if options.time:
            figures = [ratio(work, model, inputs) for work in (forward, step)]
            line += "; forward {:.2f} x ({:.0f} ms), training step {:.2f} x ({:.0f} ms)".format(*figures[0], *figures[1])
        print(line, flush=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
