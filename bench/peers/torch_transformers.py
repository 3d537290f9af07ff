# SPDX-License-Identifier: MIT
"""Models of transformers with random weights: how much faster they are with
attn_implementation="attn" than with "sdpa" and "eager", in a forward pass, a training step and
generation.

    PYTHONPATH=python ATTN_LIBRARY=build/libattn.so \\
        build/venv/bin/python bench/peers/torch_transformers.py [--tokens N] [--type T] [NAME...]

The implementations take turns, and the fastest turn of each counts, in processor time of one
thread.  A model without "sdpa" (softcap, sinks) has a dash there.
"""
import argparse
import time

import torch
import transformers as hf

import attn.torch

SIZES = {"vocab_size": 500, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
         "num_attention_heads": 4, "pad_token_id": 0, "max_position_embeddings": 4096}
GROUPED = {**SIZES, "num_key_value_heads": 2, "head_dim": 64}
MODELS = {
    "Bert": ("BertModel", hf.BertConfig, SIZES),
    "Llama": ("LlamaForCausalLM", hf.LlamaConfig, GROUPED),
    "Mistral": ("MistralForCausalLM", hf.MistralConfig, {**GROUPED, "sliding_window": 128}),
    "Gemma2": ("Gemma2ForCausalLM", hf.Gemma2Config, {**GROUPED, "sliding_window": 128}),
    "GptOss": ("GptOssForCausalLM", hf.GptOssConfig,
               {**GROUPED, "sliding_window": 128, "num_local_experts": 2,
                "num_experts_per_tok": 1}),
}
IMPLEMENTATIONS = "eager", "sdpa", "attn"


def fastest(model, work, turns):
    """Seconds of each implementation's fastest turn; None where the model does not have it."""
    best = dict.fromkeys(IMPLEMENTATIONS)
    for _ in range(turns):
        for name in IMPLEMENTATIONS:
            try:
                model.set_attn_implementation(name)
            except ValueError:
                continue
            if model.config._attn_implementation != name:
                continue
            begin = time.thread_time()
            work()
            spent = time.thread_time() - begin
            best[name] = spent if best[name] is None else min(best[name], spent)
    return best


def row(name, tokens, dtype, turns):
    kind, config, sizes = MODELS[name]
    torch.manual_seed(0)
    model = getattr(hf, kind)(config(**sizes)).to(dtype).eval()
    ids = torch.randint(5, 500, (2, tokens))
    padding = torch.ones_like(ids)
    padding[1, :tokens // 5] = 0

    def forward():
        with torch.no_grad():
            model(input_ids=ids, attention_mask=padding)

    def step():
        model.zero_grad()
        model(input_ids=ids)[0].float().square().mean().backward()

    def generation():
        model.generate(input_ids=ids, attention_mask=padding, max_new_tokens=8, min_new_tokens=8,
                       do_sample=False)

    parts = [forward, step] + ([generation] if "CausalLM" in kind else [])
    text = []
    for part in parts:
        best = fastest(model, part, turns)
        ratios = ["-" if best[other] is None else f"{best[other] / best['attn']:.2f}"
                  for other in ("sdpa", "eager")]
        text.append(f"{part.__name__} {ratios[0]} {ratios[1]}")
    print(f"{name:8} {tokens:5} tokens   " + "   ".join(text), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(MODELS))
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--type", default="float32", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--turns", type=int, default=7)
    options = parser.parse_args()
    attn.torch.register()
    torch.set_num_threads(1)
    print("time with sdpa and with eager, divided by attn's")
    for name in options.names:
        row(name, options.tokens, getattr(torch, options.type), options.turns)


if __name__ == "__main__":
    main()
