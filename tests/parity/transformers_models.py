# SPDX-License-Identifier: MIT
"""Small random models of Hugging Face's transformers: eager attention and attn.torch.register.

    transformers_models.py [NAME...]     ATTN_LIBRARY and PYTHONPATH are the paths of library and
                                         package; build and python if not
    transformers_models.py --every [SHARD/SHARDS or NAME...]
    transformers_models.py --whole [SHARD/SHARDS or NAME...]

For each model, with all numbers relative to the largest element: outputs and the gradient of every
parameter, whole and with padding (at positions that are no padding); attention weights, and
gradients of a loss of the weights; outputs and gradients in bfloat16 and under autocast, as
multiples of the eager attention's difference from float32; weights that are recorded while outputs
keep their bits; and generation with a growing and with a static cache, token by token.  The eager
function may compute weights with sinks, and no other call.

--every: a small config of each architecture that the installed transformers has.  Of text: logits of
a padded pass with and without weights, and of generation with a growing cache and with a static
one, with and without weights.  Of pictures, videos, sound and series: all outputs of a pass with and
without weights.  What cannot be built so, or the eager function does not compute, is said and passed
over.

--whole: the same small models in float32 and in float64 by PyTorch: outputs and the gradients of all
parameters under attn.torch.enable(), and outputs of attn.torch.optimize() as the model is, with
weights in bfloat16, and converted to bfloat16.  Each error against float64 is at most twice that of
PyTorch itself in the same type.
"""
import copy
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
BUILD = os.environ.get("ATTN_BUILD", os.path.join(ROOT, "build"))
os.environ.setdefault("ATTN_LIBRARY", os.path.join(BUILD, "libattn.so"))
sys.path.append(os.path.join(ROOT, "python"))

try:
    import torch
    import transformers as hf
except ImportError as error:
    print(f"skipped: {error.name} is not installed")
    sys.exit(0)

import attn.torch  # noqa: E402 - after its place is known

TOLERANCE = 1e-5
ROUNDED = 1.5  # times the eager attention's own difference from float32, in bfloat16
VOCABULARY = 97
WIDTH = {"hidden_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2,
         "intermediate_size": 64}
GROUPED = {**WIDTH, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": VOCABULARY,
           "pad_token_id": 0, "max_position_embeddings": 128, "initializer_range": 0.2}
BOTH = {"d_model": 48, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "init_std": 0.2}


class Case:
    """A model and its inputs; `real`, where an output is no padding."""

    def __init__(self, model, inputs, real=None, generates=False, padded=None, weights=True):
        self.model, self.inputs, self.real, self.generates = model, inputs, real, generates
        self.padded, self.weights = padded, weights


def still(config):
    """The config without dropout."""
    for name, value in list(vars(config).items()):
        if ("drop" in name) and isinstance(value, float):
            setattr(config, name, 0.0)
    return config


def tokens(batch, n):
    return torch.randint(5, VOCABULARY, (batch, n))


def padding(batch, n, left):
    found = torch.ones(batch, n, dtype=torch.long)
    for i in range(1, batch):
        short = 2 + 3 * i
        found[i, :short] = 0 if left else 1
        if not left:
            found[i, n - short:] = 0
    return found


def encoder(kind, model=None, n=23, **config):
    def make():
        made = still(getattr(hf, kind + "Config")(**{"vocab_size": VOCABULARY, **WIDTH, **config}))
        return Case(getattr(hf, model or kind + "Model")(made), {"input_ids": tokens(3, n)},
                    padded=("attention_mask", padding(3, n, False)))
    return make


def decoder(kind, n=23, of="Config", **config):
    def make():
        made = still(getattr(hf, kind + of)(**{**GROUPED, **config}))
        return Case(getattr(hf, kind + "ForCausalLM")(made), {"input_ids": tokens(3, n)},
                    generates=True, padded=("attention_mask", padding(3, n, True)))
    return make


def gpt2():
    config = still(hf.GPT2Config(vocab_size=VOCABULARY, n_positions=64, n_embd=48, n_layer=2,
                                 n_head=4, initializer_range=0.2, pad_token_id=0))
    return Case(hf.GPT2LMHeadModel(config), {"input_ids": tokens(3, 23)}, generates=True,
                padded=("attention_mask", padding(3, 23, True)))


def t5():
    config = still(hf.T5Config(vocab_size=VOCABULARY, d_model=48, d_kv=12, d_ff=64, num_layers=2,
                               num_heads=4, decoder_start_token_id=0,
                               feed_forward_proj="gated-gelu"))  # ReLU's kinks amplify rounding
    return Case(hf.T5ForConditionalGeneration(config),
                {"input_ids": tokens(3, 23), "decoder_input_ids": tokens(3, 11)}, generates=True,
                padded=("attention_mask", padding(3, 23, False)))


def bart():
    config = still(hf.BartConfig(vocab_size=VOCABULARY, max_position_embeddings=64, **BOTH))
    return Case(hf.BartForConditionalGeneration(config),
                {"input_ids": tokens(3, 23), "decoder_input_ids": tokens(3, 11)}, generates=True,
                padded=("attention_mask", padding(3, 23, False)))


def whisper():
    config = still(hf.WhisperConfig(vocab_size=VOCABULARY, num_mel_bins=8, max_source_positions=30,
                                    max_target_positions=40, pad_token_id=0, bos_token_id=1,
                                    eos_token_id=2, decoder_start_token_id=3, suppress_tokens=None,
                                    begin_suppress_tokens=None, **BOTH))
    return Case(hf.WhisperForConditionalGeneration(config),
                {"input_features": torch.randn(2, 8, 60), "decoder_input_ids": tokens(2, 11)},
                generates=True)


def vit():
    config = still(hf.ViTConfig(image_size=30, patch_size=6, **WIDTH))
    return Case(hf.ViTModel(config), {"pixel_values": torch.randn(2, 3, 30, 30)})


def swin():
    """Windows of 4 x 4, every other one shifted: a table's biases and a float mask."""
    config = still(hf.SwinConfig(image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4],
                                 window_size=4, initializer_range=0.2))
    return Case(hf.SwinModel(config), {"pixel_values": torch.randn(2, 3, 32, 32)})


def packed():
    """Three sequences in one row, and two in another, which position_ids tell apart."""
    case = decoder("Mistral", sliding_window=5)()
    positions = [torch.cat([torch.arange(n) for n in row]) for row in ((4, 12, 7), (15, 8))]
    case.inputs = {"input_ids": tokens(2, 23), "position_ids": torch.stack(positions),
                   "use_cache": False}
    case.generates, case.padded = False, None
    return case


MODELS = {
    "BERT": encoder("Bert"),
    "RoBERTa": encoder("Roberta", max_position_embeddings=64),
    "ESM-2": encoder("Esm", pad_token_id=1, mask_token_id=4, position_embedding_type="rotary"),
    "ModernBERT": encoder("ModernBert", local_attention=8, global_attn_every_n_layers=2,
                          num_hidden_layers=3, pad_token_id=0),
    "ViT": vit,
    "Swin": swin,
    "GPT-2": gpt2,
    "Llama": decoder("Llama"),
    "Mistral": decoder("Mistral", sliding_window=6),
    "Mistral, packed": packed,
    "Qwen 3": decoder("Qwen3", use_sliding_window=True, sliding_window=6, max_window_layers=1),
    "Gemma 2": decoder("Gemma2", sliding_window=6, attn_logit_softcapping=3.0,
                       query_pre_attn_scalar=16),
    "Gemma 3": decoder("Gemma3", of="TextConfig", sliding_window=6, query_pre_attn_scalar=16),
    "gpt-oss": decoder("GptOss", sliding_window=6, num_local_experts=4, num_experts_per_tok=2),
    "Llama 4": decoder("Llama4", of="TextConfig", attention_chunk_size=8, num_local_experts=2,
                       intermediate_size_mlp=64),
    "T5": t5,
    "BART": bart,
    "Whisper": whisper,
}


def main_output(found):
    return found.logits if getattr(found, "logits", None) is not None else found.last_hidden_state


def weights_of(found):
    return [x for name, group in found.items() if name.endswith("attentions") for x in group]


def passed(case, implementation, inputs, dout, real, of_weights=False):
    """The output, the weights and every gradient of one pass, forward and backward."""
    model = case.model
    model.set_attn_implementation(implementation)
    model.zero_grad(set_to_none=True)
    found = model(**inputs, **({"output_attentions": True} if of_weights else {}))
    output = main_output(found)
    weights = weights_of(found) if of_weights else []
    loss = (output * dout.to(output.dtype) * real).sum()
    for i, x in enumerate(weights):
        loss = loss + (x * torch.linspace(-1, 1, x.shape[-1]).roll(i)).sum()
    loss.backward()
    grads = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return (output.detach() * real).float(), [x.detach() for x in weights], grads


def distance(found, wanted, scale=None):
    largest = float(wanted.abs().max()) if scale is None else scale
    return float((found.float() - wanted.float()).abs().max()) / max(largest, 1e-30)


def of_grads(found, wanted):
    """The largest difference.  A gradient that is zero by mathematics, as that of the bias of keys,
    is measured by the model's largest gradient."""
    assert found.keys() == wanted.keys(), f"no gradients of {sorted(found.keys() ^ wanted.keys())}"
    largest = {name: float(x.abs().max()) for name, x in wanted.items()}
    top = max(largest.values())
    return max(distance(found[name], x, largest[name] if largest[name] > 1e-5 * top else top)
               for name, x in wanted.items())


def mean_distance(found, wanted):
    """The norm of all differences, relative to that of all numbers."""
    found, wanted = (torch.cat([x.flatten().float() for x in group]) for group in (found, wanted))
    return float((found - wanted).norm() / wanted.norm())


def real_of(case, inputs, output):
    """Where outputs count: not at padding, if the padded tokens are those of the output."""
    mask = None if case.padded is None else inputs.get(case.padded[0])
    if mask is None or output.shape[1] != mask.shape[1]:
        return torch.ones(())
    return mask[..., None].float()


class Calls:
    """The calls that attn takes in a block, and that none is an eager function's."""

    def __enter__(self):
        self.before = attn.torch.calls(), attn.torch.calls(verbose=True).count("\n")
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            assert attn.torch.calls() > self.before[0], "attn took no call"
            said = attn.torch.calls(verbose=True)
            assert said.count("\n") == self.before[1], f"calls of the eager function: {said}"


def check_pass(case, padded):
    inputs = dict(case.inputs)
    if padded:
        inputs[case.padded[0]] = case.padded[1]
    with torch.no_grad():
        output = main_output(case.model(**inputs))
    dout, real = torch.randn(output.shape), real_of(case, inputs, output)
    wanted = passed(case, "eager", inputs, dout, real)
    with Calls():
        found = passed(case, "attn", inputs, dout, real)
    return distance(found[0], wanted[0]), of_grads(found[2], wanted[2])


def check_weights(case, strict):
    output = main_output(case.model(**case.inputs))
    dout, real = torch.randn(output.shape), torch.ones(())
    wanted = passed(case, "eager", case.inputs, dout, real, True)
    if strict:
        with Calls():
            found = passed(case, "attn", case.inputs, dout, real, True)
    else:
        found = passed(case, "attn", case.inputs, dout, real, True)
    assert len(found[1]) == len(wanted[1]) > 0, f"{len(found[1])} weights, {len(wanted[1])} wanted"
    return max(map(distance, found[1], wanted[1])), of_grads(found[2], wanted[2])


def check_recorded(case):
    """Weights of a padded pass, recorded while the outputs keep their bits."""
    inputs = {**case.inputs, **({} if case.padded is None else dict([case.padded]))}
    eager = copy.deepcopy(case.model)
    eager.set_attn_implementation("eager")
    case.model.set_attn_implementation("attn")
    with torch.no_grad(), Calls():
        wanted = weights_of(eager(**inputs, output_attentions=True))
        output = main_output(case.model(**inputs))
        with attn.torch.record_weights() as weights:
            again = main_output(case.model(**inputs))
    assert torch.equal(again, output), "recording changes the output"
    assert not weights.missed, weights.missed
    found = list(weights)
    blocks = sum(getattr(case.model.config, "depths", ())) or len(wanted)  # Swin gives the weights of a stage's last block
    assert len(found) == blocks, f"{len(found)} weights, {blocks} wanted"
    real = None if case.padded is None else case.padded[1].bool()
    worst = 0.0
    # An encoder and a decoder differ in the order of their calls.
    for x in wanted:
        near = []
        for i, y in enumerate(found):
            if y.shape == x.shape:
                both = (x, y) if real is None or real.shape[1] != x.shape[2] else (
                    x.transpose(1, 2)[real], y.transpose(1, 2)[real])
                near.append((distance(*reversed(both)), i))
        best, i = min(near)
        worst = max(worst, best)
        del found[i]
    return worst


def check_rounded(case, how):
    """The difference from float32, as a multiple of the eager attention's."""
    with torch.no_grad():
        output = main_output(case.model(**case.inputs))
    dout, real = torch.randn(output.shape), torch.ones(())
    exact = passed(case, "eager", case.inputs, dout, real)
    other = Case(copy.deepcopy(case.model), dict(case.inputs))
    if how == "bfloat16":
        other.model.to(torch.bfloat16)
        for name, x in case.inputs.items():
            if isinstance(x, torch.Tensor) and x.is_floating_point():
                other.inputs[name] = x.to(torch.bfloat16)

    def rounded(implementation):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=how == "autocast"):
            found = passed(other, implementation, other.inputs, dout, real)
        return [mean_distance(found[0:1], exact[0:1]),
                mean_distance(found[2].values(), exact[2].values())]

    eager = rounded("eager")
    with Calls():
        found = rounded("attn")
    return max(a / b for a, b in zip(found, eager))


def check_generation(case, cache):
    """The largest difference of the scores of greedy generation, whose tokens are the same."""
    inputs = {name: x for name, x in case.inputs.items() if not name.startswith("decoder")}
    if case.padded:
        inputs[case.padded[0]] = case.padded[1]
    found = {}
    for implementation in ("eager", "attn"):
        case.model.set_attn_implementation(implementation)
        case.model.eval()
        found[implementation] = case.model.generate(
            **inputs, max_new_tokens=14, min_new_tokens=14, do_sample=False, num_beams=1,
            output_scores=True, return_dict_in_generate=True, cache_implementation=cache)
    eager, ours = found["eager"], found["attn"]
    assert torch.equal(eager.sequences, ours.sequences), "other tokens are generated"

    def finite(x):
        return x.masked_fill(torch.isinf(x), 0)
    return max(distance(finite(a), finite(b)) for a, b in zip(ours.scores, eager.scores))


def row(name):
    torch.manual_seed(1)
    case = MODELS[name]()
    case.model.eval()
    numbers = {}
    numbers["output"], numbers["gradients"] = check_pass(case, False)
    if case.padded is not None:
        numbers["padded"], numbers["padded gradients"] = check_pass(case, True)
    if case.weights:
        numbers["weights"], numbers["their gradients"] = check_weights(case, name != "gpt-oss")
        numbers["recorded"] = check_recorded(case)
    factors = {how: check_rounded(case, how) for how in ("bfloat16", "autocast")}
    if case.generates:
        with Calls():
            numbers["generation"] = max(check_generation(case, x) for x in (None, "static"))
    bad = [f"{what} {x:.1e}" for what, x in numbers.items() if not x <= TOLERANCE]
    bad += [f"{what} {x:.2f}" for what, x in factors.items() if not x <= ROUNDED]
    print(f"{name:16} " + "  ".join([f"{what} {x:.0e}" for what, x in numbers.items()]
                                    + [f"{what} x{x:.2f}" for what, x in factors.items()])
          + (f"  FAILED: {', '.join(bad)}" if bad else ""), flush=True)
    return not bad


SMALL = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "embed_dim", "embedding_size", "hidden_dim", "dim", "word_embed_proj_dim"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "num_decoder_layers",
                     "num_encoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "num_global_key_value_heads"), 2),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "n_inner", "encoder_ffn_dim", "decoder_ffn_dim", "moe_intermediate_size",
                     "shared_expert_intermediate_size", "intermediate_size_mlp"), 48),
    **dict.fromkeys(("head_dim", "global_head_dim", "d_kv", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"), 8),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "rotary_dim"), 8),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "index_n_heads"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "num_experts_per_token"), 2),
    **dict.fromkeys(("sliding_window", "attention_chunk_size", "local_attention", "attention_window_size"), 6),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx"), 128),
    **dict.fromkeys(("n_group", "topk_group", "first_k_dense_replace", "n_shared_experts"), 1),
    "index_topk": 6, "index_head_dim": 16, "vocab_size": VOCABULARY, "vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 8,
    "num_mel_bins": 16, "max_source_positions": 64, "context_length": 24, "prediction_length": 4,
    "num_kv_shared_layers": 0, "initializer_range": 0.2, "init_std": 0.2, "tie_word_embeddings": False}


def smaller(given, layers=2):
    """The arguments of a small config, from those of a default one."""
    found = {}
    for name, x in given.items():
        if name in SMALL and not isinstance(x, (list, tuple, dict)) and (x is not None or name == "prediction_length"):
            found[name] = SMALL[name]
        elif name.endswith("token_id") and isinstance(x, int):
            found[name] = x % VOCABULARY
        elif name.endswith("token_id") and isinstance(x, list):
            found[name] = [i % VOCABULARY for i in x]
        elif "drop" in name and isinstance(x, float):
            found[name] = 0.0
        elif name in ("layer_types", "mlp_layer_types", "no_rope_layers") and isinstance(x, list):
            kinds = list(dict.fromkeys(x))
            found[name] = (kinds * layers)[:layers]
        elif name == "image_size" and x is not None:
            found[name] = type(x)([64] * len(x)) if isinstance(x, (list, tuple)) else 64
        elif name == "patch_size" and isinstance(x, int):
            found[name] = min(x, 8)
    if "kv_lora_rank" in found and "num_key_value_heads" in found:  # multi-head latent attention
        found["num_key_value_heads"] = SMALL["num_attention_heads"]
    return found


def every():
    """The names of the architectures that the installed transformers has."""
    from transformers.models.auto import modeling_auto as auto
    text = {*auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
            *auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, *auto.MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES}
    return sorted(text) + sorted({*auto.MODEL_MAPPING_NAMES} - text)


def senses(model):
    """Inputs of a pass, of which the first that a model's eager function computes is taken; [] for a model of text."""
    torch.manual_seed(2)
    config, name = model.config, model.main_input_name
    side = getattr(config, "image_size", None) or 64
    height, width = (side[0], side[-1]) if isinstance(side, (list, tuple)) else (side, side)
    channels, mels = getattr(config, "num_channels", 3) or 3, getattr(config, "num_mel_bins", None) or getattr(config, "feature_size", 16)
    frames = getattr(config, "num_frames", None) or 4
    shapes = {"pixel_values": [(2, channels, height, width), (2, frames, channels, height, width), (2, channels, 128, 128)],
              "pixel_values_videos": [(2, frames, channels, height, width)],
              "input_values": [(2, 4000), (2, 1, 4000)],
              "input_features": [(2, mels, 128), (2, 128, mels), (2, 128, 160)],
              "past_values": [(2, getattr(config, "context_length", 24)), (2, getattr(config, "context_length", 24), 1)]}.get(name, [])
    found = [{name: torch.randn(shape)} for shape in shapes]
    if name == "pixel_values":  # a model of pictures and text
        found.append({**found[0], "input_ids": tokens(2, 9)})
    return found


def tensors_of(found):
    """All tensors of an output that have real elements, in order."""
    if isinstance(found, torch.Tensor):
        return [found] if found.is_floating_point() and found.numel() else []
    if isinstance(found, dict):
        found = list(found.values())
    return [x for part in found for x in tensors_of(part)] if isinstance(found, (list, tuple)) else []


def built(name):
    """A small model with random weights."""
    from transformers.models.auto import modeling_auto as auto
    config = hf.AutoConfig.for_model(name)
    small = smaller(config.to_dict())
    if config.sub_configs:
        parts = {part: x for part, x in config.to_dict().items() if part in config.sub_configs and isinstance(x, dict)}
        if any(x.get("model_type") == "timm_backbone" for x in parts.values()):  # which only the package timm builds
            parts = {part: x for part, x in parts.items() if x.get("model_type") != "timm_backbone"}
            small["backbone_config"] = hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1],
                                                       out_features=["stage1", "stage2", "stage3", "stage4"])
        small = {**{part: {**smaller(x), **{n: x[n] for n in ("model_type",) if n in x}} for part, x in parts.items()}, **small}
    config = still(hf.AutoConfig.for_model(name, **small))
    for text in (config.get_text_config(), config):
        if getattr(text, "pad_token_id", None) is None:
            text.pad_token_id = 0
        if getattr(text, "is_encoder_decoder", False) and getattr(text, "decoder_start_token_id", None) is None:
            text.decoder_start_token_id = 0
    kind = next(kind for kind, known in ((hf.AutoModelForCausalLM, auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES),
                                         (hf.AutoModelForSeq2SeqLM, auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES),
                                         (hf.AutoModelForMaskedLM, auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES),
                                         (hf.AutoModel, {name})) if name in known)
    with torch.device("meta"):
        size = sum(x.numel() for x in kind.from_config(config).parameters())
    if size > 20_000_000:
        raise ValueError(f"{size // 10**6} million parameters")
    return kind.from_config(config, attn_implementation="eager").eval()


def results_of(model, implementation, ids, mask, how):
    """Logits and weights of a pass, or logits of generation with a cache of this kind."""
    model.set_attn_implementation(implementation)
    if isinstance(ids, dict):
        return tensors_of(model(**ids, **({"output_attentions": True} if how == "weights" else {}))), []
    if how in ("pass", "weights"):
        more = {"decoder_input_ids": ids[:, :5]} if model.config.is_encoder_decoder else {}
        found = model(input_ids=ids, attention_mask=mask, output_attentions=how == "weights", **more)
        real = mask.bool() if main_output(found).shape[1] == mask.shape[1] else slice(None)
        return [main_output(found)[real]], [x for x in weights_of(found) if x is not None]
    found = model.generate(ids, attention_mask=mask, max_new_tokens=9, min_new_tokens=9, do_sample=False, num_beams=1,
                           disable_compile=True, output_logits=True, output_attentions=how.endswith("weights"),
                           return_dict_in_generate=True, cache_implementation="static" if how.startswith("static") else None)
    return [found.sequences.float(), *found.logits], []


def computes(model, inputs):
    """Whether the eager function computes a pass of these inputs."""
    with torch.no_grad():
        try:
            return bool(results_of(model, "eager", inputs, None, "pass"))
        except Exception:
            return False


def worst_of(found, wanted):
    """The largest distance between two results of results_of."""
    return max(distance(x, y) if x.shape == y.shape else 1.0 for x, y in zip(found[0], wanted[0]))


def by_sdpa(model, ids, mask, how):
    """The results by PyTorch's own function; None, if the model has none."""
    try:
        return results_of(model, "sdpa", ids, mask, how)
    except Exception:
        return None


def row_of_every(name):
    """Compares "attn" with "eager"; an architecture that cannot be built, or where the eager function fails, is passed over."""
    torch.manual_seed(1)
    try:
        model = built(name)
    except Exception as error:
        print(f"{name:24} not built: {' '.join(f'{type(error).__name__}: {error}'.split())[:150]}", flush=True)
        return True
    ids, numbers, failed = tokens(2, 13), {}, []
    mask = padding(2, 13, not model.config.is_encoder_decoder and model.can_generate())
    hows = ["pass", "weights"] + (["dynamic", "static", "static weights"] if model.can_generate() else [])
    if model.main_input_name != "input_ids":
        ids, mask, hows = next((x for x in senses(model) if computes(model, x)), ids), None, ["pass", "weights"]
    for how in hows:
        with torch.no_grad():
            try:
                wanted = results_of(model, "eager", ids, mask, how)
                again = results_of(model, "eager", ids, mask, how)
            except Exception as error:
                numbers[how] = f"not by eager ({' '.join(f'{type(error).__name__}: {error}'.split())[:60]})"
                continue
            if not all(map(torch.equal, wanted[0], again[0])) or not all(bool(x.isfinite().all()) for x in wanted[0]):
                numbers[how] = "eager differs from itself"
                continue
            before = attn.torch.calls()
            try:
                found = results_of(model, "attn", ids, mask, how)
                worst = worst_of(found, wanted)
                theirs = None if worst <= 1e-4 else by_sdpa(model, ids, mask, how)
                if theirs and worst_of(found, theirs) <= 1e-4:
                    numbers[how] = "as sdpa, not as eager"
                    continue
                if len(found[1]) != len(wanted[1]):
                    failed.append(f"{how}: {len(found[1])} weights of {len(wanted[1])}")
                numbers[how] = f"{worst:.0e}" + ("" if attn.torch.calls() > before else " (no call)")
                if not worst <= 1e-4:
                    failed.append(f"{how} {worst:.1e}")
            except Exception as error:
                if by_sdpa(model, ids, mask, how) is None:
                    numbers[how] = "neither by sdpa"
                else:
                    failed.append(f"{how}: {type(error).__name__}: {str(error)[:120]}")
    print(f"{name:24} " + "  ".join(f"{how} {x}" for how, x in numbers.items()) + (f"  FAILED: {'; '.join(failed)}" if failed else ""),
          flush=True)
    return not failed


# ------------------------------------------------------------------------------- whole models, against float64

NOISE = 1e-6  # an error of float32 below which a multiple of it says nothing


def given_to(model, dtype):
    """Inputs of a pass in this type, and the positions at which its outputs count."""
    torch.manual_seed(3)
    if model.main_input_name != "input_ids":
        found = next((x for x in senses(model) if computes(copy.deepcopy(model), x)), None)
        assert found is not None, "no inputs are known"
        return {name: x.to(dtype) if x.is_floating_point() else x for name, x in found.items()}, None
    mask = padding(2, 13, False)
    found = {"input_ids": tokens(2, 13), "attention_mask": mask}
    if model.config.is_encoder_decoder:
        found["decoder_input_ids"] = tokens(2, 5)
    return found, mask


def numbers_of(model, inputs, mask):
    found = model(**inputs)
    if mask is None:
        return tensors_of(found)
    output = main_output(found)
    return [output[mask.bool()] if output.shape[1] == mask.shape[1] else output]


def outputs_of(model, inputs, mask):
    with torch.no_grad():
        return numbers_of(model, inputs, mask)


def gradients_of(model, inputs, mask):
    """The gradients of all parameters, of a loss of all outputs."""
    model.zero_grad(set_to_none=True)
    generator, loss = torch.Generator().manual_seed(4), 0.0
    for x in numbers_of(model, inputs, mask):
        loss = loss + (x * torch.randn(x.shape, generator=generator).to(x.dtype)).sum()
    loss.backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


def of_all(found, wanted):
    """The norm of all differences, relative to that of all numbers."""
    assert [x.shape for x in found] == [x.shape for x in wanted], "other shapes"
    found, wanted = (torch.cat([x.detach().flatten().double() for x in group]) for group in (found, wanted))
    return float((found - wanted).norm() / wanted.norm())


def whole_row(name):
    """Whether the errors are small enough, and whether there were any."""
    torch.manual_seed(1)
    try:
        model = built(name)
        try:
            model.set_attn_implementation("sdpa")  # the eager functions compute the softmax of float64 in float32
        except ValueError:
            pass
        inputs, mask = given_to(model, torch.float32)
        wide, wide_inputs = copy.deepcopy(model).double(), given_to(model, torch.float64)[0]
        outputs = outputs_of(wide, wide_inputs, mask)
        own, again = outputs_of(model, inputs, mask), outputs_of(model, inputs, mask)
        assert own and all(map(torch.equal, own, again)) and all(bool(x.isfinite().all()) for x in own), "PyTorch differs from itself"
        own = of_all(own, outputs)
    except Exception as error:
        print(f"{name:24} not compared: {' '.join(f'{type(error).__name__}: {error}'.split())[:150]}", flush=True)
        return True, False
    found, failed = {}, []

    def compare(what, of, error):
        found[what] = f"{error:.1e} of {of:.1e}"
        if not error <= 2 * of + NOISE:
            failed.append(what)

    def tried(what, call, *args):
        try:
            return call(*args)
        except Exception as error:
            found[what] = f"{type(error).__name__}: {str(error)[:200]}"
            failed.append(what)
            return None
    gradients = None
    try:
        gradients = gradients_of(wide, wide_inputs, mask)
        own_gradients = of_all(gradients_of(model, inputs, mask), gradients)
        assert own_gradients == own_gradients, "they are not numbers"
    except Exception as error:
        found["gradients"] = f"not by PyTorch ({' '.join(f'{type(error).__name__}: {error}'.split())[:60]})"
        gradients = None
    with attn.torch.enable(always=True):
        ours = tried("enable", outputs_of, model, inputs, mask)
        grads = tried("gradients", gradients_of, model, inputs, mask) if gradients else None
    attn.torch.disable()
    if ours is not None:
        compare("enable", own, of_all(ours, outputs))
    if grads is not None:
        compare("gradients", own_gradients, of_all(grads, gradients))
    model.zero_grad(set_to_none=True)
    try:
        half = copy.deepcopy(model).to(torch.bfloat16)
        half_inputs = given_to(model, torch.bfloat16)[0]
        rounded = of_all(outputs_of(half, half_inputs, mask), outputs)
    except Exception as error:
        found["bfloat16"] = f"not by PyTorch ({' '.join(f'{type(error).__name__}: {error}'.split())[:60]})"
        rounded = None
    for what, form, of in (("optimize", None, own), ("weights bf16", "bf16", rounded), ("bfloat16", torch.bfloat16, rounded)):
        if of is None:
            continue
        ours = tried(what, lambda: outputs_of(attn.torch.optimize(model, form), half_inputs if form is torch.bfloat16 else inputs, mask))
        if ours is not None:
            compare(what, of, of_all(ours, outputs))
    print(f"{name:24} " + "  ".join(f"{what} {x}" for what, x in found.items()) + (f"  FAILED: {', '.join(failed)}" if failed else ""),
          flush=True)
    return not failed, True


def whole(names):
    torch.set_num_threads(1)  # the models are too small for more
    rows = [whole_row(name) for name in names]
    compared, good = sum(there for _, there in rows), sum(good for good, there in rows if there)
    print(f"{compared} architectures of {len(rows)} compared, {compared - good} failed")
    return 0 if all(good for good, _ in rows) else 1


def main():
    try:
        attn.torch.register()
    except attn.UnsupportedError as error:
        print(f"skipped: {error}")
        return 0
    if sys.argv[1:2] in (["--every"], ["--whole"]):
        shard, shards = map(int, sys.argv[2].split("/")) if len(sys.argv) > 2 and "/" in sys.argv[2] else (1, 1)
        names = sys.argv[2:] if len(sys.argv) > 2 and "/" not in sys.argv[2] else every()[shard - 1::shards]
        if sys.argv[1] == "--whole":
            return whole(names)
        return 0 if all([row_of_every(name) for name in names]) else 1
    names = sys.argv[1:] or list(MODELS)
    return 0 if all([row(name) for name in names]) else 1


if __name__ == "__main__":
    sys.exit(main())
