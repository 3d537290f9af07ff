# SPDX-License-Identifier: MIT
"""Whole models in PyTorch: eager, under attn.torch.enable() and by attn.torch.optimize(), beside PyTorch's other ways.

    PYTHONPATH=python ATTN_LIBRARY=build/libattn.so build/venv/bin/python bench/peers/torch_whole.py \\
        [--models bert,gpt2-token] [--batches 1,8] [--threads 1] [--seconds 4] [--step] [--compile] [--onnx] [--tiny]

A line for each model and batch: eager's milliseconds with scaled_dot_product_attention, and how many times as fast the others
are.  `medium` is torch.set_float32_matmul_precision("medium"), by which PyTorch multiplies by oneDNN, and is the baseline to
compare with.  `bf16`, `enable bf16` and `optimize bf16` are the model converted to bfloat16; `weights bf16` and `int8` are
optimize(model, "bf16") and optimize(model, "int8"), with float32 between layers.  --step: forward, backward and AdamW; enable()
alone takes part.  --compile: torch.compile (inductor, freezing).  --onnx: ONNX Runtime, where it and onnx are installed, in
float32 and with dynamic int8.  --memory: a line for each way with the time to its first result and its peak memory, in a
process of its own.  --tiny: small widths, to see that everything runs.

Calls alternate; the least time of each counts.  Ratios within one run mean something, times do not.
"""
import argparse
import contextlib
import copy
import json
import os
import subprocess
import sys
import tempfile
import time

import torch
import transformers

import attn.torch
import measure

ATTENTION = {"attn_implementation": "sdpa"}


def config(kind, tiny, small, **settings):
    return getattr(transformers, kind)(**{**settings, **(small if tiny else {})}, **ATTENTION)


def ids_of(batch, length, vocabulary):
    return torch.randint(1, vocabulary, (batch, length))


def bert(tiny, length, **settings):
    small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100}
    model = transformers.BertModel(config("BertConfig", tiny, small, **settings))
    return model, lambda batch: {"input_ids": ids_of(batch, 16 if tiny else length, 100)}


def esm(tiny):
    small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    model = transformers.EsmModel(config("EsmConfig", tiny, small, vocab_size=33, mask_token_id=32, pad_token_id=1, hidden_size=480,
                                         num_hidden_layers=12, num_attention_heads=20, intermediate_size=1920,
                                         max_position_embeddings=1026, position_embedding_type="rotary", emb_layer_norm_before=False,
                                         token_dropout=False))
    return model, lambda batch: {"input_ids": ids_of(batch, 16 if tiny else 256, 30)}


def pictures(kind, tiny, small, side=224):
    model = getattr(transformers, kind + "Model")(config(kind + "Config", tiny, small))
    side = small["image_size"] if tiny else side
    return model, lambda batch: {"pixel_values": torch.randn(batch, 3, side, side)}


def gpt2(tiny, token):
    small = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100}
    model = transformers.GPT2LMHeadModel(config("GPT2Config", tiny, small))
    return model, tokens(model, 16 if tiny else 512, token)


def llama(tiny, token):
    small = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100}
    model = transformers.LlamaForCausalLM(config("LlamaConfig", tiny, small, hidden_size=2048, intermediate_size=8192,
                                                 num_hidden_layers=2, num_attention_heads=32, num_key_value_heads=8, vocab_size=32000))
    return model, tokens(model, 16 if tiny else 512, token)


def tokens(model, length, token):
    """Inputs of a prompt, or of the token after it, whose cache is made once for each model."""
    if not token:
        return lambda batch: {"input_ids": ids_of(batch, length, 100), "use_cache": False}
    return lambda batch: {"input_ids": ids_of(batch, 1, 100), "use_cache": True, "past": ids_of(batch, length, 100)}


def t5(tiny):
    small = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": 100}
    model = transformers.T5EncoderModel(config("T5Config", tiny, small, d_model=768, d_ff=3072, num_layers=12, num_heads=12))
    return model, lambda batch: {"input_ids": ids_of(batch, 16 if tiny else 128, 100)}


def whisper(tiny):
    small = {"d_model": 64, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 128, "max_source_positions": 50, "decoder_attention_heads": 4,
             "num_mel_bins": 8, "vocab_size": 100}
    model = transformers.WhisperModel(config("WhisperConfig", tiny, small, d_model=512, encoder_layers=6, encoder_attention_heads=8,
                                             decoder_layers=1, decoder_attention_heads=8, encoder_ffn_dim=2048, pad_token_id=1, bos_token_id=1, eos_token_id=1,
                                             decoder_start_token_id=1)).encoder
    mels, frames = (8, 100) if tiny else (80, 3000)
    return model, lambda batch: {"input_features": torch.randn(batch, mels, frames)}


class Detr(torch.nn.Module):
    """The transformer of DETR, which is torch.nn.Transformer with 100 queries."""

    def __init__(self, width, tokens, blocks):
        super().__init__()
        self.transformer = torch.nn.Transformer(width, 8, blocks, blocks, 8 * width, batch_first=True)
        self.queries = torch.nn.Parameter(torch.randn(100, width))
        self.tokens = tokens

    def forward(self, features):
        return (self.transformer(features, self.queries.expand(len(features), -1, -1)),)


def detr(tiny):
    width, length, blocks = (64, 20, 2) if tiny else (256, 850, 6)
    return Detr(width, length, blocks), lambda batch: {"features": torch.randn(batch, length, width)}


MODELS = {
    "bert-16": lambda tiny: bert(tiny, 16), "bert": lambda tiny: bert(tiny, 128),
    "minilm": lambda tiny: bert(tiny, 128, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536),
    "vit": lambda tiny: pictures("ViT", tiny, {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                                               "intermediate_size": 128, "image_size": 32, "patch_size": 8}),
    "swin": lambda tiny: pictures("Swin", tiny, {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2],
                                                 "num_heads": [2, 4], "window_size": 4}),
    "gpt2": lambda tiny: gpt2(tiny, False), "gpt2-token": lambda tiny: gpt2(tiny, True),
    "llama": lambda tiny: llama(tiny, False), "llama-token": lambda tiny: llama(tiny, True),
    "t5": t5, "whisper": whisper, "detr": detr, "esm": esm,
}
HALF = ("bf16", "enable bf16", "optimize bf16")
WAYS = ("eager", "medium", "enable", "optimize", *HALF, "weights bf16", "int8")


def made(name, tiny):
    torch.manual_seed(0)
    model, inputs = MODELS[name](tiny)
    return model.eval(), inputs


def converted(model, way):
    kinds = {"optimize": None, "optimize bf16": torch.bfloat16, "weights bf16": "bf16", "int8": "int8"}
    if way in kinds:
        return attn.torch.optimize(model, kinds[way])
    return copy.deepcopy(model).to(torch.bfloat16) if way in HALF else model


def around(way):
    """A block in which the way holds."""
    @contextlib.contextmanager
    def medium():
        torch.set_float32_matmul_precision("medium")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision("highest")

    @contextlib.contextmanager
    def enabled():
        with attn.torch.enable():
            yield
        attn.torch.disable()
    if way.startswith("enable"):
        return enabled
    return medium if way == "medium" else contextlib.nullcontext


def caller(model, way, given):
    """A call of the forward pass without gradients."""
    given = dict(given)
    past = given.pop("past", None)
    if way in HALF:
        given = {name: x.bfloat16() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for name, x in given.items()}
    if past is None:
        return lambda: model(**given)
    cache = model(input_ids=past, use_cache=True).past_key_values

    def call():
        model(**given, past_key_values=cache)
        cache.crop(-1)
    return call


def stepper(model, given):
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step():
        optimizer.zero_grad()
        model(**given)[0].sin().mean().backward()
        optimizer.step()
    return step


def onnx_callers(model, given, folder):
    """ONNX Runtime in float32 and in dynamic int8; nothing where it or onnx is not installed."""
    try:
        import onnxruntime
        from onnxruntime.quantization import quantize_dynamic
        path, small = os.path.join(folder, "model.onnx"), os.path.join(folder, "int8.onnx")
        torch.onnx.export(model, (), path, kwargs=given, dynamo=True)
        quantize_dynamic(path, small)
    except Exception as error:  # whatever an exporter raises, the row has no such peer
        print(f"# no ONNX Runtime: {type(error).__name__}: {str(error).splitlines()[0][:100]}", file=sys.stderr)
        return {}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    found = {}
    for way, file in (("onnx", path), ("onnx int8", small)):
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        names = [one.name for one in session.get_inputs()]
        feeds = dict(zip(names, [x.numpy() for x in given.values() if isinstance(x, torch.Tensor)]))
        found[way] = lambda session=session, feeds=feeds: session.run(None, feeds)
    return found


def timed(calls, arounds, seconds):
    """The least time of each call in ms, in turns, each within its own block."""
    best = [float("inf")] * len(calls)
    end, turns = time.perf_counter() + seconds, 0
    while turns < 2 or time.perf_counter() < end:
        for i, (call, block) in enumerate(zip(calls, arounds)):
            with block():
                if turns == 0:
                    call()
                begin = time.perf_counter()
                call()
                best[i] = min(best[i], time.perf_counter() - begin)
        turns += 1
    return [1e3 * one for one in best]


def row(name, batch, how):
    model, inputs = made(name, how.tiny)
    given = inputs(batch)
    if how.step:
        ways = ["eager", "medium", "enable"] if "past" not in given else []
        calls = [stepper(copy.deepcopy(model), given) for _ in ways]
        return dict(zip(ways, timed(calls, [around(way) for way in ways], how.seconds)))
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        calls = {way: caller(converted(model, way), way, given) for way in WAYS}
        if how.compile and "past" not in given:
            import torch._inductor.config as inductor
            inductor.freezing = True
            calls["compile"] = caller(torch.compile(model), "compile", given)
        if how.onnx and "past" not in given:
            calls.update(onnx_callers(model, {key: x for key, x in given.items() if isinstance(x, torch.Tensor)}, folder))
        return dict(zip(calls, timed(list(calls.values()), [around(way) for way in calls], how.seconds)))


def memory(name, batch, way, how):
    """In this process: the time to the first result and the peak of memory over that of the model."""
    torch.set_num_threads(how.threads)
    model, inputs = made(name, how.tiny)
    given, begin = inputs(batch), time.perf_counter()
    with torch.no_grad(), around(way)():
        model = converted(model, way)
        caller(model, way, given)()
    print(json.dumps({"first_ms": 1e3 * (time.perf_counter() - begin), "peak_mib": measure.status_mib("VmHWM")}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=4)
    for switch in ("step", "compile", "onnx", "memory", "tiny"):
        parser.add_argument("--" + switch, action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # a way, of which memory is measured in this process
    how = parser.parse_args()
    torch.set_num_threads(how.threads)
    for name in how.models.split(","):
        if name not in MODELS:
            parser.error(f"there is no model {name}: {', '.join(MODELS)}")
        for batch in map(int, how.batches.split(",")):
            if how.one:
                memory(name, batch, how.one, how)
            elif how.memory:
                for way in WAYS:
                    again = [sys.executable, __file__, "--models", name, "--batches", str(batch), "--threads", str(how.threads), "--one", way]
                    found = json.loads(subprocess.run(again + ["--tiny"] * how.tiny, check=True, capture_output=True, text=True).stdout)
                    print(f"{name} x {batch}, {way}: first result {found['first_ms']:.0f} ms, peak {found['peak_mib']:.0f} MiB", flush=True)
            else:
                found = row(name, batch, how)
                ratios = [f"{way} {found['eager'] / ms:.2f}" for way, ms in found.items() if way != "eager"]
                print(f"{name} x {batch}{' step' * how.step}: eager {found.get('eager', 0):.1f} ms | {' | '.join(ratios)}", flush=True)


if __name__ == "__main__":
    main()
