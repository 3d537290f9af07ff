# SPDX-License-Identifier: MIT
"""Whole models in PyTorch: eager, under attn.torch.enable() and by attn.torch.optimize(), beside other ways to run them.

    PYTHONPATH=python ATTN_LIBRARY=build/libattn.so build/venv/bin/python bench/peers/torch_whole.py \\
        [--models bert,gpt2-token] [--batches 1,8] [--threads 1] [--kind f32] [--ways eager,optimize] [--seconds 2] [--json] [--tiny]

A line for each model and batch: the milliseconds of eager PyTorch in float32 with scaled_dot_product_attention, and how many
times as fast the other ways are.  --kind chooses them:

    f32     medium (torch.set_float32_matmul_precision, by which PyTorch multiplies by oneDNN: the baseline to compare with),
            enable, optimize; compile (torch.compile, inductor with freezing), onnx (ONNX Runtime), openvino, zentorch
    bf16    eager bf16, enable bf16 and optimize bf16 (the model converted to bfloat16), weights bf16 (optimize(model, "bf16"),
            float32 between layers); compile bf16, openvino bf16, zentorch bf16
    int8    optimize bf16, int8 (optimize(model, "int8"), float32 between layers); onnx int8 (dynamic), torchao int8
    step    a training step with AdamW: medium, enable; eager bf16, enable bf16
    first   the time to the first result and the peak memory of each way of the kinds f32, bf16 and int8, each in a process of
            its own

A way whose package is not installed, or that cannot run a model, is named on stderr, and has no number.  --zentorch PYTHON is
a Python with zentorch and the version of PyTorch that it needs; without it that way is not tried.  --json: an array of objects
in place of the lines.  --gate: when everything is prepared, prints "ready" and waits for a line before it measures, so that the
machine can be cleared.  --tiny: small widths, to see that everything runs.

Calls alternate; the least time of each counts, of one thread in processor time.  Ratios within one run mean something, times
do not.
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

import measure

ATTENTION = {"attn_implementation": "sdpa"}


# ---------------------------------------------------------------------------------------------------- models


class Whole(torch.nn.Module):
    """A model of transformers as a function of one tensor, and of a cache where it has one."""

    def __init__(self, model, name="input_ids", **settings):
        super().__init__()
        self.model, self.name, self.settings = model, name, settings

    def forward(self, x, cache=None):
        settings = {**self.settings, **({} if cache is None else {"past_key_values": cache, "use_cache": True})}
        if self.training:
            settings.pop("logits_to_keep", None)
        return self.model(**{self.name: x}, **settings)[0]


class Detr(torch.nn.Module):
    """The transformer of DETR, which is torch.nn.Transformer with 100 queries."""

    def __init__(self, width, blocks):
        super().__init__()
        self.transformer = torch.nn.Transformer(width, 8, blocks, blocks, 8 * width, batch_first=True)
        self.queries = torch.nn.Parameter(torch.randn(100, width))

    def forward(self, x, cache=None):
        return self.transformer(x, self.queries.expand(len(x), -1, -1))


def config(kind, tiny, small, **settings):
    return getattr(transformers, kind)(**{**settings, **(small if tiny else {})}, **ATTENTION)


def ids(length, past=0):
    """Inputs of a batch: token ids, and those of a prompt whose cache is there."""
    return lambda batch: (torch.randint(4, 30, (batch, length)), torch.randint(4, 30, (batch, past)) if past else None)


def numbers(*shape):
    return lambda batch: (torch.randn(batch, *shape), None)


def bert(tiny, length, **settings):
    small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100}
    return Whole(transformers.BertModel(config("BertConfig", tiny, small, **settings))), ids(16 if tiny else length)


def esm(tiny):
    small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    of = {"vocab_size": 33, "mask_token_id": 32, "pad_token_id": 1, "hidden_size": 480, "num_hidden_layers": 12, "num_attention_heads": 20,
          "intermediate_size": 1920, "max_position_embeddings": 1026, "position_embedding_type": "rotary", "token_dropout": False}
    return Whole(transformers.EsmModel(config("EsmConfig", tiny, small, **of))), ids(16 if tiny else 256)


def pictures(kind, tiny, small):
    side = small["image_size"] if tiny else 224
    return Whole(getattr(transformers, kind + "Model")(config(kind + "Config", tiny, small)), "pixel_values"), numbers(3, side, side)


def vit(tiny):
    return pictures("ViT", tiny, {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
                                  "image_size": 32, "patch_size": 8})


def swin(tiny):
    return pictures("Swin", tiny, {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4],
                                   "window_size": 4})


def generator(model, length, token):
    """A pass of a prompt, of which the last token's logits are wanted, or of the token after it."""
    model = Whole(model, logits_to_keep=1, **({} if token else {"use_cache": False}))
    return model, ids(1, length) if token else ids(length)


def gpt2(tiny, token):
    small = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100}
    return generator(transformers.GPT2LMHeadModel(config("GPT2Config", tiny, small)), 16 if tiny else 512, token)


def llama(tiny, token):
    small = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100}
    of = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 2, "num_attention_heads": 32, "num_key_value_heads": 8,
          "vocab_size": 32000}
    return generator(transformers.LlamaForCausalLM(config("LlamaConfig", tiny, small, **of)), 16 if tiny else 256, token)


def t5(tiny):
    small = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": 100}
    return Whole(transformers.T5EncoderModel(config("T5Config", tiny, small, d_model=768, d_ff=3072, num_layers=12, num_heads=12))), \
        ids(16 if tiny else 128)


def whisper(tiny):
    small = {"d_model": 64, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 128, "max_source_positions": 50,
             "decoder_attention_heads": 4, "num_mel_bins": 8, "vocab_size": 100}
    of = {"d_model": 512, "encoder_layers": 6, "encoder_attention_heads": 8, "decoder_layers": 1, "decoder_attention_heads": 8,
          "encoder_ffn_dim": 2048, "pad_token_id": 1, "bos_token_id": 1, "eos_token_id": 1, "decoder_start_token_id": 1}
    model = transformers.WhisperModel(config("WhisperConfig", tiny, small, **of)).encoder
    return Whole(model, "input_features"), numbers(*((8, 100) if tiny else (80, 3000)))


def detr(tiny):
    width, length, blocks = (64, 20, 2) if tiny else (256, 850, 6)
    return Detr(width, blocks), numbers(length, width)


MODELS = {
    "bert-16": lambda tiny: bert(tiny, 16), "bert": lambda tiny: bert(tiny, 128),
    "minilm": lambda tiny: bert(tiny, 128, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536),
    "vit": vit, "swin": swin, "gpt2": lambda tiny: gpt2(tiny, False), "gpt2-token": lambda tiny: gpt2(tiny, True),
    "llama": lambda tiny: llama(tiny, False), "llama-token": lambda tiny: llama(tiny, True),
    "t5": t5, "whisper": whisper, "detr": detr, "esm": esm,
}


# ------------------------------------------------------------------------------------------------------ ways

KINDS = {
    "f32": ("eager", "medium", "enable", "optimize", "compile", "onnx", "openvino", "zentorch"),
    "bf16": ("eager", "eager bf16", "enable bf16", "optimize bf16", "weights bf16", "compile bf16", "openvino bf16", "zentorch bf16"),
    "int8": ("eager", "optimize bf16", "int8", "onnx int8", "torchao int8"),
    "step": ("eager", "medium", "enable", "eager bf16", "enable bf16"),
}
HALF = ("eager bf16", "enable bf16", "optimize bf16", "compile bf16", "zentorch bf16")  # their inputs are bfloat16
FORMS = {"optimize": None, "optimize bf16": torch.bfloat16, "weights bf16": "bf16", "int8": "int8"}
SLOW = 3  # seconds of a call that is not repeated


def made(name, tiny):
    torch.manual_seed(0)
    model, inputs = MODELS[name](tiny)
    return model.eval(), inputs


def converted(model, way):
    if way in FORMS:
        import attn.torch
        return attn.torch.optimize(model, FORMS[way])
    return copy.deepcopy(model).to(torch.bfloat16) if way in HALF else model


@contextlib.contextmanager
def medium():
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")


@contextlib.contextmanager
def enabled():
    import attn.torch
    with attn.torch.enable():
        yield
    attn.torch.disable()


def around(way):
    """A block in which the way holds."""
    return enabled if way.startswith("enable") else medium if way == "medium" else contextlib.nullcontext


def caller(model, way, given, step=False):
    """A call of the forward pass without gradients, or of a training step."""
    x, past = given
    x = x.bfloat16() if way in HALF and x.is_floating_point() else x
    if step:
        model = copy.deepcopy(model).train()
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)

        def train():
            optimizer.zero_grad()
            model(x).sin().mean().backward()
            optimizer.step()
        return train
    if past is None:
        return lambda: model(x)
    cache = transformers.DynamicCache()
    model(past, cache)

    def token():
        found = model(x, cache)
        cache.crop(-1)
        return found
    return token


# ------------------------------------------------------------------------------------------------ other ways


def compiled(model, way, given):
    import torch._inductor.config as inductor
    inductor.freezing = True
    return caller(torch.compile(converted(model, way)), way, given)


def by_zentorch(model, way, given):
    import zentorch
    call = caller(torch.compile(converted(model, way), backend="zentorch"), way, given)

    def frozen():
        with zentorch.freezing_enabled():
            return call()
    return frozen


def without_cache(given, peer):
    if given[1] is not None:
        raise ValueError(f"{peer} is not tried with a cache")
    return given[0]


def by_onnx(model, way, given):
    import onnxruntime
    x = without_cache(given, "ONNX Runtime")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        torch.onnx.export(model, (x,), path, dynamo=True, verbose=False)
        if way == "onnx int8":
            from onnxruntime.quantization import quantize_dynamic
            path, full = os.path.join(folder, "int8.onnx"), path
            quantize_dynamic(full, path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feeds = {session.get_inputs()[0].name: x.numpy()}
    return lambda: session.run(None, feeds)[0]


def by_openvino(model, way, given):
    import openvino
    x = without_cache(given, "OpenVINO")
    with tempfile.TemporaryDirectory() as folder:
        try:
            network = openvino.convert_model(model, example_input=x, input=[list(x.shape)])
        except openvino.frontend.OpConversionFailure:
            path = os.path.join(folder, "model.onnx")
            torch.onnx.export(model, (x,), path, dynamo=True, verbose=False)
            network = openvino.convert_model(path)
    request = openvino.compile_model(network, "CPU", {
        "INFERENCE_PRECISION_HINT": "bf16" if way == "openvino bf16" else "f32", "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": torch.get_num_threads(), "ENABLE_CPU_PINNING": False}).create_infer_request()
    feeds = [x.numpy()]
    return lambda: request.infer(feeds, share_inputs=True, share_outputs=True)[0]


def by_torchao(model, way, given):
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
    model = copy.deepcopy(model)
    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    return compiled(model, way, given)


PEERS = {"compile": compiled, "compile bf16": compiled, "zentorch": by_zentorch, "zentorch bf16": by_zentorch, "onnx": by_onnx,
         "onnx int8": by_onnx, "openvino": by_openvino, "openvino bf16": by_openvino, "torchao int8": by_torchao}


# ------------------------------------------------------------------------------------------------ measuring


def check(found, wanted):
    """That a way computes this model, however it rounds."""
    found = torch.as_tensor(found).float()
    error = float((found - wanted).norm() / wanted.norm()) if found.shape == wanted.shape else float("nan")
    if not error < 0.5:
        raise ValueError(f"its result is another one, {tuple(found.shape)} with an error of {error:.2g}")


def prepared(name, batch, ways, how, step):
    """{way: its call}, each called once; without the ways that cannot run the model."""
    model, inputs = made(name, how.tiny)
    given, calls = inputs(batch), {}
    if step and given[1] is not None:
        return {}
    with contextlib.nullcontext() if step else torch.no_grad():
        wanted = None if step else caller(model, "eager", given)().clone()
        for way in ways:
            try:
                call = PEERS[way](model, way, given) if way in PEERS else caller(converted(model, way), way, given, step)
                with around(way)():
                    found = call()
                if not step:
                    check(found, wanted)
                calls[way] = call
            except Exception as error:  # whatever a peer raises, the row has no number of it
                if way not in PEERS:
                    raise
                print(f"# {name} x {batch}: no {way}: {type(error).__name__}: {' '.join(str(error).split())[:200]}", file=sys.stderr)
    return calls


def timed(calls, seconds):
    """The least time of each call in ms, in turns, each within its own block: about this long for each.  Of one thread it is
    processor time, which other programs of the machine lengthen less."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    best, end, turns = dict.fromkeys(calls, float("inf")), time.perf_counter() + seconds * len(calls), 0
    while turns == 0 or (max(best.values()) < SLOW and (turns == 1 or time.perf_counter() < end)):
        for way, call in calls.items():
            with around(way)():
                for _ in range(1 if turns and best[way] > 0.2 else 2):
                    begin = clock()
                    call()
                    best[way] = min(best[way], clock() - begin)
        turns += 1
    return {way: 1e3 * x for way, x in best.items()}


class Elsewhere:
    """The ways of another Python, in a process that waits until it is told to measure."""

    def __init__(self, python, name, batch, ways, how):
        self.child = subprocess.Popen(
            [python, os.path.abspath(__file__), "--models", name, "--batches", str(batch), "--ways", ",".join(ways), "--threads",
             str(how.threads), "--seconds", str(how.seconds), "--json", "--gate"] + ["--tiny"] * how.tiny, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)
        self.ready = False

    def wait(self):
        self.ready = self.child.stdout.readline() == "ready\n"

    def times(self):
        found, _ = self.child.communicate("\n")
        return json.loads(found)[0]["ms"] if self.ready and self.child.returncode == 0 else {}


def row(name, batch, how):
    step, ways = how.kind == "step", how.ways or KINDS[how.kind]
    here = [way for way in ways if how.zentorch is None or not way.startswith("zentorch")]
    there = [way for way in ways if way not in here]
    others = Elsewhere(how.zentorch, name, batch, there, how) if there else None
    calls = prepared(name, batch, [way for way in here if how.ways or not way.startswith("zentorch")], how, step)
    if others:
        others.wait()
    if how.gate:
        print("ready", flush=True)
        sys.stdin.readline()
    with contextlib.nullcontext() if step else torch.no_grad():
        found = timed(calls, how.seconds) if calls else {}
    if others:
        found.update(others.times())
    return {"model": name, "batch": batch, "what": "step" if step else "forward", "threads": how.threads, "ms": found}


def first(name, batch, how):
    """Each way in a process of its own: the time from the model to the first result, and the peak of memory."""
    found = {"first_ms": {}, "peak_mib": {}}
    ways = how.ways or dict.fromkeys(way for kind in ("f32", "bf16", "int8") for way in KINDS[kind])
    for way in ways:
        elsewhere = way.startswith("zentorch")
        if elsewhere and how.zentorch is None:
            continue
        done = subprocess.run([how.zentorch if elsewhere else sys.executable, os.path.abspath(__file__), "--models", name, "--batches",
                               str(batch), "--threads", str(how.threads), "--alone", way] + ["--tiny"] * how.tiny,
                              stdout=subprocess.PIPE, text=True)
        if done.returncode == 0 and done.stdout:
            for what, x in json.loads(done.stdout).items():
                found[what][way] = x
    return {"model": name, "batch": batch, "what": "first", "threads": how.threads, **found}


def alone(name, batch, way, how):
    """In this process: the time to the first result and the peak of memory."""
    import torch._inductor.config as inductor
    inductor.force_disable_caches = True
    model, inputs = made(name, how.tiny)
    given, begin = inputs(batch), time.perf_counter()
    with torch.no_grad(), around(way)():
        call = PEERS[way](model, way, given) if way in PEERS else caller(converted(model, way), way, given)
        del model
        call()
    print(json.dumps({"first_ms": 1e3 * (time.perf_counter() - begin), "peak_mib": measure.status_mib("VmHWM")}))


def line(found):
    of = f"{found['model']} x {found['batch']}, {found['what']}, {found['threads']} thread{'s' * (found['threads'] > 1)}"
    if "ms" not in found:
        return f"{of}: " + " | ".join(f"{way} {ms:.0f} ms, {found['peak_mib'][way]:.0f} MiB" for way, ms in found["first_ms"].items())
    base = next(iter(found["ms"]), None)
    if base is None:
        return f"{of}: nothing"
    return f"{of}: {base} {found['ms'][base]:.1f} ms | " + " | ".join(
        f"{way} {found['ms'][base] / ms:.2f}" for way, ms in found["ms"].items() if way != base)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--kind", choices=[*KINDS, "first"], default="f32")
    parser.add_argument("--ways", type=lambda text: text.split(","))
    parser.add_argument("--seconds", type=float, default=2, help="for each way")
    parser.add_argument("--zentorch", metavar="PYTHON")
    parser.add_argument("--alone", help=argparse.SUPPRESS)  # the way of which this process tells the first result
    for switch in ("json", "gate", "tiny"):
        parser.add_argument("--" + switch, action="store_true")
    how = parser.parse_args()
    torch.set_num_threads(how.threads)
    rows = []
    for name in how.models.split(","):
        if name not in MODELS:
            parser.error(f"there is no model {name}: {', '.join(MODELS)}")
        for batch in map(int, how.batches.split(",")):
            if how.alone:
                alone(name, batch, how.alone, how)
                continue
            rows.append(first(name, batch, how) if how.kind == "first" else row(name, batch, how))
            print(line(rows[-1]), file=sys.stderr if how.json else sys.stdout, flush=True)
    if how.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
