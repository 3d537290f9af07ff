# SPDX-License-Identifier: MIT
"""Models of transformers with random weights: how much faster they are with attn_implementation="attn" than with "eager" and
"sdpa", in a forward pass, a training step and the next token after a cache of many.

    PYTHONPATH=python ATTN_LIBRARY=build/libattn.so \\
        build/venv/bin/python bench/peers/torch_transformers.py [--json] [--free] [--type T]... [--tokens N] [--cached N] [NAME...]

The implementations take turns, and the fastest turn of each counts, in processor time of one thread.  A model without "sdpa"
(softcap, sinks) has a dash there.  scripts/figures makes docs/pytorch.md's table of this.
"""
import argparse
import copy
import json
import sys
import time

import torch
import transformers as hf

import attn.torch
import measure

WIDTH = {"vocab_size": 500, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8,
         "pad_token_id": 0, "max_position_embeddings": 8192}
GROUPED = {**WIDTH, "num_key_value_heads": 2, "head_dim": 64}
LARGE = {**GROUPED, "num_attention_heads": 4, "head_dim": 128}
T5 = {"vocab_size": 500, "d_model": 256, "d_kv": 64, "d_ff": 512, "num_layers": 2, "num_heads": 8, "decoder_start_token_id": 0}
# name: what makes it, its config, how the table calls it
MODELS = {
    "Bert": (hf.BertModel, hf.BertConfig, {**WIDTH, "num_attention_heads": 4}, "BERT, 4 heads of 64"),
    "Llama": (hf.LlamaForCausalLM, hf.LlamaConfig, LARGE, "Llama, 4 query and 2 key heads of 128"),
    "Mistral": (hf.MistralForCausalLM, hf.MistralConfig, {**LARGE, "sliding_window": 256}, "Mistral, window 256"),
    "Gemma2": (hf.Gemma2ForCausalLM, hf.Gemma2Config, {**LARGE, "sliding_window": 256},
               "Gemma 2 with 27B's heads, 4 query and 2 key heads of 128"),
    "Gemma2Wide": (hf.Gemma2ForCausalLM, hf.Gemma2Config, {**LARGE, "head_dim": 256, "sliding_window": 256},
                   "Gemma 2 with 9B's heads, 4 query and 2 key heads of 256"),
    "GptOss": (hf.GptOssForCausalLM, hf.GptOssConfig, {**GROUPED, "sliding_window": 128, "num_local_experts": 2,
                                                       "num_experts_per_tok": 1}, "gpt-oss, 8 query and 2 key heads of 64"),
    "T5": (hf.T5ForConditionalGeneration, hf.T5Config, T5, "T5, 8 heads of 64"),
}
IMPLEMENTATIONS = "attn", "eager", "sdpa"


def free(module, query, key, value, attention_mask=None, position_bias=None, **options):
    """Almost no work in place of attention, with gradients for all operands: it bounds what faster attention gains."""
    o = value.repeat_interleave(query.shape[1] // key.shape[1], 1)[:, :, :query.shape[2]]
    o = o + 1e-3 * query[..., :o.shape[-1]] + 1e-3 * key.mean()
    o = o if position_bias is None else o + position_bias[..., :1]
    return o.transpose(1, 2).contiguous(), None


def made(name, dtype, implementations=IMPLEMENTATIONS):
    """The model, and the implementations that it has."""
    kind, config, sizes, _ = MODELS[name]
    torch.manual_seed(0)
    model, has = kind(config(**sizes)).to(dtype).eval(), []
    for implementation in implementations:
        try:
            model.set_attn_implementation(implementation)
        except ValueError:
            continue
        if model.config._attn_implementation == implementation:
            has.append(implementation)
    return model, has


def filled(model, keys, dtype):
    """A cache with random keys and values of a sequence of this length."""
    config, t5 = model.config, model.config.model_type == "t5"
    heads, width = (config.num_heads, config.d_kv) if t5 else (config.num_key_value_heads, config.head_dim)
    caches = [hf.DynamicCache(config=config.get_text_config(decoder=True)) for _ in range(1 + t5)]
    for cache in caches:
        for layer in range(2):
            cache.update(*(torch.randn(1, heads, keys, width).to(dtype) for _ in range(2)), layer)
    return hf.EncoderDecoderCache(*caches) if t5 else caches[0]


def work_of(model, what, tokens, dtype):
    """The function to time, and the one that prepares each call of it."""
    ids, t5 = torch.randint(5, 500, (1, tokens)), model.config.model_type == "t5"
    inputs = {"input_ids": ids, **({"decoder_input_ids": ids} if t5 else {})}
    if what == "one token":
        cache, caches = filled(model, tokens, dtype), []
        inputs = {("decoder_input_ids" if t5 else "input_ids"): ids[:, :1], "cache_position": torch.tensor([tokens])}
        if t5:
            inputs["encoder_outputs"] = (torch.randn(1, tokens, model.config.d_model).to(dtype),)

        def before():
            caches[:] = [copy.deepcopy(cache)]

        def one_token():
            with torch.no_grad():
                model(**inputs, past_key_values=caches[0], use_cache=True)

        return one_token, before

    def forward():
        with torch.no_grad():
            model(**inputs)

    def step():
        model(**inputs)[0].float().square().mean().backward()

    return step if what == "step" else forward, lambda: model.zero_grad()


def fastest(model, names, work, before, turns):
    """Milliseconds of each implementation's fastest turn."""
    def prepare(name):
        model.set_attn_implementation(name)
        before()

    calls = {name: (lambda: work()) for name in names}
    named = {call: name for name, call in calls.items()}
    for name, call in calls.items():  # warm
        prepare(name)
        call()
    best = measure.best_of_turns(list(calls.values()), 0, time.thread_time, lambda call: prepare(named[call]), turns)
    return {name: 1e3 * seconds for name, seconds in zip(calls, best)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(MODELS), metavar="NAME")
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--cached", type=int, default=4096, help="tokens before the one that is timed")
    parser.add_argument("--type", action="append", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="an array of objects instead of lines")
    parser.add_argument("--free", action="store_true", help="also with attention that takes no time")
    options = parser.parse_args()
    attn.torch.register()
    hf.AttentionInterface.register("free", free)
    hf.AttentionMaskInterface.register("free", hf.AttentionMaskInterface()["attn"])
    torch.set_num_threads(1)
    rows = []
    for name in options.names:
        for dtype in options.type or ("float32", "bfloat16"):
            model, has = made(name, getattr(torch, dtype), (*IMPLEMENTATIONS, *(("free",) if options.free else ())))
            for what in ("forward", "step", *(["one token"] if name != "Bert" and not options.free else [])):
                tokens = options.cached if what == "one token" else options.tokens
                turns = options.turns * (8 if what == "one token" else 1)
                ms = fastest(model, has, *work_of(model, what, tokens, getattr(torch, dtype)), turns)
                rows.append({"model": MODELS[name][3], "what": what, "tokens": tokens, "type": dtype, "ms": ms})
                ratios = ", ".join(f"{other} {ms[other] / ms['attn']:.2f}" for other in has if other != "attn")
                print(f"{MODELS[name][3]}, {dtype}, {what}, {tokens} tokens: {ms['attn']:.2f} ms; {ratios}", flush=True,
                      file=sys.stderr if options.json else sys.stdout)
    if options.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
