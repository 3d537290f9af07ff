# SPDX-License-Identifier: MIT
"""Checkpoints of the transformer family with random weights, by a names file alone: python family.py ATTN [--write FOLDER]

torch.nn.Transformer (as PyTorch's tutorial on translation wraps it), a Transformer of fairseq's form, MarianMT (Hugging Face's and
Marian's own), and BERT with each of its heads: `attn run --names` must give PyTorch's outputs to 1e-5 of the largest.  With
--write the small cases are written to a folder of the tests, checkpoint, inputs and outputs in one .npz each."""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from torch import nn

D, HEADS, FFN, VS, VT = 16, 2, 24, 23, 19


def randomize(model):
    torch.manual_seed(7)
    for name, p in model.named_parameters():
        with torch.no_grad():
            x = 1 + 0.2 * torch.randn_like(p) if "norm" in name.lower() and "weight" in name else 0.3 * torch.randn_like(p)
            p.copy_(x.half().float())  # so that files of f16 hold them
    return model.eval()


# ------------------------------------------------------------------------------------------------- PyTorch's

class Embedding(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, D)


class Positions(nn.Module):
    def __init__(self, longest=50):
        super().__init__()
        angle = torch.arange(longest)[:, None] * torch.exp(-torch.arange(0, D, 2) * math.log(10000) / D)
        table = torch.zeros(longest, 1, D)
        table[:, 0, 0::2], table[:, 0, 1::2] = angle.sin(), angle.cos()
        self.register_buffer("pos_embedding", table)


class Tutorial(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.transformer = nn.Transformer(D, HEADS, 2, 3, FFN, norm_first=first, activation="gelu" if first else "relu",
                                          batch_first=True)
        self.generator = nn.Linear(D, VT)
        self.src_tok_emb, self.tgt_tok_emb, self.positional_encoding = Embedding(VS), Embedding(VT), Positions()

    def forward(self, src, tgt):
        embed = lambda e, ids: e.embedding(ids) * math.sqrt(D) + self.positional_encoding.pos_embedding[:ids.shape[1], 0]
        mask = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1])
        return self.generator(self.transformer(embed(self.src_tok_emb, src), embed(self.tgt_tok_emb, tgt), tgt_mask=mask))


# ------------------------------------------------------------------------------------------------- fairseq's

class FairAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.k_proj, self.v_proj, self.q_proj, self.out_proj = (nn.Linear(D, D) for _ in range(4))

    def forward(self, q, kv, causal=False):
        split = lambda x: x.unflatten(-1, (HEADS, D // HEADS)).transpose(1, 2)
        scores = split(self.q_proj(q) * (D // HEADS) ** -0.5) @ split(self.k_proj(kv)).transpose(2, 3)
        if causal:
            scores = scores + torch.full(scores.shape[-2:], -math.inf).triu(1)
        return self.out_proj((scores.softmax(-1) @ split(self.v_proj(kv))).transpose(1, 2).flatten(2))


class FairLayer(nn.Module):
    def __init__(self, decoder, before):
        super().__init__()
        self.before = before
        self.self_attn, self.self_attn_layer_norm = FairAttention(), nn.LayerNorm(D)
        if decoder:
            self.encoder_attn, self.encoder_attn_layer_norm = FairAttention(), nn.LayerNorm(D)
        self.fc1, self.fc2, self.final_layer_norm = nn.Linear(D, FFN), nn.Linear(FFN, D), nn.LayerNorm(D)

    def step(self, x, norm, layer):
        return x + layer(norm(x)) if self.before else norm(x + layer(x))

    def forward(self, x, encoded=None):
        x = self.step(x, self.self_attn_layer_norm, lambda h: self.self_attn(h, h, encoded is not None))
        if encoded is not None:
            x = self.step(x, self.encoder_attn_layer_norm, lambda h: self.encoder_attn(h, encoded))
        return self.step(x, self.final_layer_norm, lambda h: self.fc2(torch.relu(self.fc1(h))))


class FairHalf(nn.Module):
    def __init__(self, vocabulary, blocks, decoder, before, learned):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocabulary, D)
        self.layers = nn.ModuleList(FairLayer(decoder, before) for _ in range(blocks))
        self.register_buffer("version", torch.tensor([3.0]))
        if learned:
            self.embed_positions = nn.Embedding(22, D)
        if before:
            self.layer_norm = nn.LayerNorm(D)
        if decoder:
            self.output_projection = nn.Linear(D, vocabulary, bias=False)

    def forward(self, ids, encoded=None):
        at = torch.arange(ids.shape[1]) + 2
        if hasattr(self, "embed_positions"):
            places = self.embed_positions(at)
        else:
            half = D // 2
            angle = at[:, None] * torch.exp(torch.arange(half) * -(math.log(10000) / (half - 1)))
            places = torch.cat([angle.sin(), angle.cos()], 1)
        x = self.embed_tokens(ids) * math.sqrt(D) + places
        for layer in self.layers:
            x = layer(x, encoded)
        x = self.layer_norm(x) if hasattr(self, "layer_norm") else x
        return self.output_projection(x) if encoded is not None else x


class Fairseq(nn.Module):
    def __init__(self, before=False, learned=False):
        super().__init__()
        self.encoder, self.decoder = FairHalf(VS, 3, False, before, learned), FairHalf(VT, 2, True, before, learned)

    def forward(self, src, tgt):
        return self.decoder(tgt, self.encoder(src))


# -------------------------------------------------------------------------------------------------- Marian's

def marian(eps=1e-5):
    model = transformers.MarianMTModel(transformers.MarianConfig(
        vocab_size=VS, d_model=D, encoder_layers=2, decoder_layers=3, encoder_attention_heads=HEADS, decoder_attention_heads=HEADS,
        encoder_ffn_dim=FFN, decoder_ffn_dim=FFN, activation_function="swish", scale_embedding=True, max_position_embeddings=512,
        pad_token_id=VS - 1, decoder_start_token_id=VS - 1, eos_token_id=0, forced_eos_token_id=0))
    places = model.model.encoder.embed_positions.weight.detach().clone()
    randomize(model)
    with torch.no_grad():
        model.model.shared.weight[-1] = 0
        model.final_logits_bias.copy_(torch.randn(1, VS).half().float())
        model.final_logits_bias[0, -1] = 0
        for half in (model.model.encoder, model.model.decoder):
            half.embed_positions.weight.copy_(places)
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = eps
    return model


def native(state):
    """The files that Marian itself would have written."""
    arrays = {"Wemb": state["model.shared.weight"][:-1], "decoder_ff_logit_out_b": state["final_logits_bias"][:, :-1],
              "special:model.yml": torch.tensor(list(b"type: transformer\0"), dtype=torch.int8)}
    parts = {"self_attn": "self", "encoder_attn": "context"}
    for half in ("encoder", "decoder"):
        for name, x in state.items():
            if not name.startswith(f"model.{half}.layers."):
                continue
            layer, part, *rest = name.split(".")[3:]
            at = f"{half}_l{int(layer) + 1}_"
            if part in parts and rest[0] != "layer_norm":
                letter = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "o"}[rest[0]]
                arrays[at + parts[part] + ("_W" if rest[1] == "weight" else "_b") + letter] = x.T if x.ndim == 2 else x[None]
            elif part.endswith("_layer_norm"):
                own = {"self_attn_layer_norm": "self_Wo", "encoder_attn_layer_norm": "context_Wo", "final_layer_norm": "ffn_ffn"}[part]
                arrays[f"{at}{own}_ln_{'scale' if rest[0] == 'weight' else 'bias'}"] = x[None]
            else:
                arrays[f"{at}ffn_{'W' if rest[0] == 'weight' else 'b'}{part[2]}"] = x.T if x.ndim == 2 else x[None]
    return arrays


# --------------------------------------------------------------------------------------------------- whole

def stored(state):
    """Each tensor once, as safetensors requires: tied ones under the first name."""
    kept, seen = {}, {}
    for name, x in state.items():
        if x.data_ptr() in seen and seen[x.data_ptr()].shape == x.shape:
            continue
        seen[x.data_ptr()] = x
        kept[name] = x.contiguous()
    return kept


def cases():
    torch.manual_seed(1)
    src, tgt = torch.randint(0, 19, (2, 7)), torch.randint(0, 19, (2, 5))
    pair = {"tokens": src, "tgt_tokens": tgt}
    heads = {"num_heads": HEADS}
    for first in (False, True):
        model = randomize(Tutorial(first))
        more = {"norm": "pre", "activation": "gelu"} if first else {}
        yield ("torch-pre" if first else "torch"), "torch-transformer", model.state_dict(), heads | more, pair, {"logits": model(src, tgt)}
    for kind, how in (("fairseq", {}), ("fairseq-pre", {"before": True}), ("fairseq-learned", {"learned": True})):
        model = randomize(Fairseq(**how))
        yield kind, "fairseq-transformer", model.state_dict(), heads | ({"norm": "pre"} if "before" in how else {}), pair, {
            "logits": model(src, tgt)}
    model = marian()
    logits = model(input_ids=src, decoder_input_ids=tgt).logits
    yield "marian", "marian-huggingface", stored(model.state_dict()), heads, pair, {"logits": logits}
    model = marian(1e-6)
    yield "marian-native", "marian-native", native(model.state_dict()), heads, pair, {
        "logits": model(input_ids=src, decoder_input_ids=tgt).logits}
    config = transformers.BertConfig(vocab_size=VS, hidden_size=D, num_hidden_layers=2, num_attention_heads=HEADS, num_labels=5,
                                     intermediate_size=FFN, max_position_embeddings=12, attn_implementation="eager")
    segments, lens = (torch.arange(7) > 3).long().expand(2, 7), torch.tensor([7, 4])
    given = {"tokens": src, "segments": segments, "valid_lens": lens}
    mask = (torch.arange(7) < lens[:, None]).long()
    how = {"input_ids": src, "token_type_ids": segments, "attention_mask": mask}
    model = randomize(transformers.BertModel(config))
    out = model(**how)
    yield "bert", "bert-huggingface", stored(model.state_dict()), heads, given, {"out": out.last_hidden_state,
                                                                               "pooled": out.pooler_output}
    model = randomize(transformers.BertForSequenceClassification(config))
    yield "bert-classes", "bert-huggingface", stored(model.state_dict()), heads, given, {"logits": model(**how).logits}
    model = randomize(transformers.BertForMaskedLM(config))
    yield "bert-masked", "bert-huggingface", stored(model.state_dict()), heads, given, {"token_logits": model(**how).logits}


def run(attn, names, state, config, inputs, outputs):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        weights = folder / ("w.npz" if names == "marian-native" else "w.safetensors")
        if weights.suffix == ".npz":
            np.savez(weights, **{name: x.numpy() for name, x in state.items()})
        else:
            save_file({name: x.contiguous() for name, x in state.items()}, weights)
        command = [attn, "run", "--names", names, "--config", json.dumps(config), "--weights", str(weights), "--quiet"]
        for name, x in inputs.items():
            np.save(folder / f"in_{name}.npy", x.numpy().astype(np.int32))
            command += ["--input", f"{name}={folder}/in_{name}.npy"]
        for name in outputs:
            command += ["--output", f"{name}={folder}/out_{name}.npy"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return {name: np.load(folder / f"out_{name}.npy") for name in outputs}


def main():
    worst = 0
    for title, names, state, config, inputs, outputs in cases():
        state = {name: x.detach() for name, x in state.items()}
        outputs = {name: x.detach().numpy() for name, x in outputs.items()}
        found = run(sys.argv[1], names, state, config, inputs, outputs)
        for name, expected in outputs.items():
            rows = slice(None)
            off = float(np.abs(found[name][rows] - expected[rows]).max() / np.abs(expected).max())
            worst = max(worst, off)
            print(f"{title:16} {name:14} {len(state):3} tensors  {off:.1e}")
        if "--write" in sys.argv and title in ("torch", "fairseq", "marian-native", "bert-masked"):
            folder = pathlib.Path(sys.argv[sys.argv.index("--write") + 1])
            np.savez(folder / f"{title}.npz", **{name: x.numpy().astype(np.float16) if x.is_floating_point() else x.numpy()
                                                  for name, x in state.items() if "embed_positions" not in name})
            np.savez(folder / f"{title}-case.npz", **{name: x.numpy().astype(np.int32) for name, x in inputs.items()},
                     **{"=" + name: x for name, x in outputs.items()})
    sys.exit(worst > 1e-5)


if __name__ == "__main__":
    main()
