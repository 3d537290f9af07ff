# SPDX-License-Identifier: MIT
"""Every architecture's settings, inputs and parameters by name and shape, as its original has them.

    names.py COMMAND        COMMAND is the attn to run, with `list NAME --config JSON --json`

The table is written from the originals' constructors, so that weights saved by them load unchanged.  A shape is what
the original's tensor has; the numbers are those of the config with it, chosen so that no two of a layer's sizes are
equal and a swap cannot hide.
"""
import json
import subprocess
import sys


def under(prefix, shapes):
    return {prefix + name: shape for name, shape in shapes.items()}


def affine(name, out, *ins):
    return {name + ".weight": [out, *ins], name + ".bias": [out]}


def batch_norm(name, n):
    return {**affine(name, n), name + ".running_mean": [n], name + ".running_var": [n],
            name + ".num_batches_tracked": []}


def numbered(name, blocks, shapes):
    return {key: shape for i in range(blocks) for key, shape in under(name % i, shapes).items()}


# ---------------------------------------------------------------------------------------------- axial attention

def self_attention(dim, hidden):
    return {"to_q.weight": [hidden, dim], "to_kv.weight": [2 * hidden, dim], **affine("to_out", dim, hidden)}


def axial_image(reversible, dim, depth, hidden, prefix="layers."):
    shapes = {}
    for i in range(2 * depth):
        for j, half in enumerate("fg"):
            at = f"{prefix}blocks.{i}.{half}.net." if reversible else f"{prefix}blocks.{i}.{j}."
            shapes |= under(at, axial_convolutions(dim) if i % 2 else under("fn.", pre_norm(dim, hidden)))
    return shapes


def axial_convolutions(dim):
    return {"0.g": [1, dim, 1, 1], "0.b": [1, dim, 1, 1], **affine("1", 4 * dim, dim, 3, 3),
            **affine("3", dim, 4 * dim, 3, 3)}


def pre_norm(dim, hidden):
    return {**affine("norm", dim), **under("fn.", self_attention(dim, hidden))}


# --------------------------------------------------------------------------------------------------- alignments

def projections(d):
    return {key: shape for name in "qkv" for key, shape in affine(f"{name}_proj", d, d).items()} \
        | affine("out_proj", d, d)


def msa_layer(d, ffn):
    block = under("feed_forward_layer.", affine("layer.fc1", ffn, d) | affine("layer.fc2", d, ffn)
                  | affine("layer_norm", d))
    for way in "row", "column":
        block |= under(f"{way}_self_attention.", under("layer.", projections(d)) | affine("layer_norm", d))
    return block


def msa(layers, d, ffn, heads, vocab, positions):
    return {"embed_tokens.weight": [vocab, d], "embed_positions.weight": [positions + 2, d],
            "msa_position_embedding": [1, 1024, 1, d],
            **affine("emb_layer_norm_before", d), **affine("emb_layer_norm_after", d),
            # The original's lm_head.weight is embed_tokens.weight: files that name both load, one is kept.
            **numbered("layers.%d.", layers, msa_layer(d, ffn)), "lm_head.bias": [vocab],
            **affine("lm_head.dense", d, d), **affine("lm_head.layer_norm", d),
            **affine("contact_head.regression", 1, layers * heads)}


# ------------------------------------------------------------------------------------------------------- images

def image_attention(ins, mid, out, heads, rows, bias=True):
    shapes = {key: shape for name in ("query", "key", "value")
              for key, shape in affine(name, mid * heads, ins, 1, 1).items()} | affine("wout", out, mid * heads, 1, 1)
    shapes = {key: shape for key, shape in shapes.items() if bias or not key.endswith("bias")}
    return shapes | ({f"{name}_embedding.weight": [rows, mid // 2] for name in ("row", "col")} if rows else {})


def non_local(d, mode, sub, bn, ins, inter):
    ones = [1] * d
    shapes = affine("g.0" if sub else "g", inter, ins, *ones) | affine("W.0" if bn else "W", ins, inter, *ones)
    shapes |= batch_norm("W.1", ins) if bn else {}
    if mode != "gaussian":
        shapes |= affine("theta", inter, ins, *ones) | affine("phi.0" if sub else "phi", inter, ins, *ones)
    return shapes | ({"concat_project.0.weight": [1, 2 * inter, 1, 1]} if mode == "concatenation" else {})


def non_local_rows():
    for d in 1, 2, 3:
        for mode in "embedded-gaussian", "gaussian", "dot-product", "concatenation":
            for sub in True, False:
                for bn in True, False:
                    c = {"in_channels": 6, "dimension": d, "mode": mode, "sub_sample": sub, "bn_layer": bn}
                    yield "non-local", c, "x", non_local(d, mode, sub, bn, 6, 3)
                    yield "non-local", {**c, "inter_channels": 5}, "x", non_local(d, mode, sub, bn, 6, 5)
    yield "non-local", {"in_channels": 1}, "x", non_local(3, "embedded-gaussian", True, True, 1, 1)


# ----------------------------------------------------------------------------------------- the book's Transformer

def heads(d, bias):
    shapes = {key: shape for part in "qkvo" for key, shape in affine(f"W_{part}", d, d).items()}
    return {key: shape for key, shape in shapes.items() if bias or key.endswith("weight")}


def coder(names, norms, d, ffn, bias):
    shapes = {key: shape for name in names for key, shape in under(name + ".", heads(d, bias)).items()}
    shapes |= {key: shape for i in range(norms) for key, shape in affine(f"addnorm{i + 1}.ln", d).items()}
    return shapes | affine("ffn.dense1", ffn, d) | affine("ffn.dense2", d, ffn)


def encoder(vocab, d, ffn, n, bias):
    return {"embedding.weight": [vocab, d], **numbered("blks.block%d.", n, coder(["attention"], 2, d, ffn, bias))}


def decoder(vocab, d, ffn, n):  # the book gives the decoder's attention no biases
    return {"embedding.weight": [vocab, d],
            **numbered("blks.block%d.", n, coder(["attention1", "attention2"], 3, d, ffn, False)),
            **affine("dense", vocab, d)}


def gru(d_in, d, layers):
    shapes = {}
    for i in range(layers):
        ins = d_in if i == 0 else d
        shapes |= {f"rnn.weight_ih_l{i}": [3 * d, ins], f"rnn.weight_hh_l{i}": [3 * d, d],
                   f"rnn.bias_ih_l{i}": [3 * d], f"rnn.bias_hh_l{i}": [3 * d]}
    return shapes


def seq2seq(src, tgt, embed, d, layers):
    attention = {"W_k.weight": [d, d], "W_q.weight": [d, d], "w_v.weight": [1, d]}
    return under("encoder.", {"embedding.weight": [src, embed], **under("rnn.", {k[4:]: s for k, s in
                                                                                 gru(embed, d, layers).items()})}) \
        | under("decoder.", {**under("attention.", attention), "embedding.weight": [tgt, embed],
                             **gru(embed + d, d, layers), **affine("dense", tgt, d)})


def vit(img, patch, d, mlp, n, classes, channels, bias):
    block = affine("ln1", d) | affine("ln2", d) | under("attention.", heads(d, bias)) \
        | affine("mlp.dense1", mlp, d) | affine("mlp.dense2", d, mlp)
    return {**affine("patch_embedding.conv", d, channels, patch, patch), "cls_token": [1, 1, d],
            "pos_embedding": [1, (img // patch) ** 2 + 1, d], **numbered("blks.%d.", n, block),
            **affine("head.0", d), **affine("head.1", classes, d)}


ATTENTION = "queries keys values valid_lens?"
LINES = "x self_attn_padding_mask?"
PROJECTIONS = {"w_k": [3, 10, 4], "w_v": [3, 10, 4], "proj.weight": [10, 12], **affine("layer_norm", 10)}
IMAGE = {"in_channels": 3, "mid_channels": 6, "out_channels": 5, "num_heads": 2}
BLOCK = {"num_hiddens": 12, "ffn_num_hiddens": 20, "num_heads": 3}
BOOK = {**BLOCK, "num_blks": 2}
ROWS = [
    ("self-attention", {"dim": 12, "heads": 3}, "x kv?", self_attention(12, 12)),
    ("self-attention", {"dim": 12, "heads": 3, "dim_heads": 5}, "x kv?", self_attention(12, 15)),
    ("self-attention", {"dim": 12, "heads": 3, "project": False}, "x kv?",
     {name + ".weight": [12, 12] for name in ("query", "key", "value")}),
    *(("axial-attention", {"dim": 16, "num_dimensions": n, "dim_index": i, "sum_axial_out": s}, "x",
       numbered("axial_attentions.%d.fn.", n, self_attention(16, 16)))
      for n in (1, 2, 3) for i in (-1, 1, 2) for s in (True, False)),
    ("axial-attention", {"dim": 16, "heads": 2, "dim_heads": 3}, "x",
     numbered("axial_attentions.%d.fn.", 2, self_attention(16, 6))),
    ("axial-positional-embedding", {"dim": 6, "shape": [4, 5]}, "x",
     {"param_0": [1, 6, 4, 1], "param_1": [1, 6, 1, 5]}),
    ("axial-positional-embedding", {"dim": 6, "shape": [4, 5, 7], "emb_dim_index": 2}, "x",
     {"param_0": [1, 4, 6, 1, 1], "param_1": [1, 1, 6, 5, 1], "param_2": [1, 1, 6, 1, 7]}),
    ("axial-image-transformer", {"dim": 16, "depth": 2}, "x", axial_image(True, 16, 2, 16)),
    ("axial-image-transformer", {"dim": 16, "depth": 2, "heads": 2, "dim_heads": 3, "reversible": False,
                                 "axial_pos_emb_shape": [4, 5]}, "x",
     {"pos_emb.param_0": [1, 16, 4, 1], "pos_emb.param_1": [1, 16, 1, 5], **axial_image(False, 16, 2, 6)}),
    ("row-self-attention", {"embed_dim": 12, "num_heads": 3, "max_tokens_per_msa": 9}, LINES, projections(12)),
    ("column-self-attention", {"embed_dim": 12, "num_heads": 3, "max_tokens_per_msa": 9}, LINES, projections(12)),
    ("axial-transformer-layer", {"embedding_dim": 12, "ffn_embedding_dim": 20, "num_attention_heads": 3,
                                 "max_tokens_per_msa": 9}, LINES, msa_layer(12, 20)),
    ("msa-transformer", {"layers": 2, "embed_dim": 12, "ffn_embed_dim": 20, "attention_heads": 3}, "tokens",
     msa(2, 12, 20, 3, 33, 1024)),
    ("detr-multi-head-attention", {"M": 3, "d": 10, "d_head": 4}, "x_q x_kv? p_q? p_kv?",
     {"w_q": [3, 10, 4], **PROJECTIONS}),
    ("detr-ffn", {"d": 10}, "x", affine("ffn_layers.0", 10, 10) | affine("ffn_layers.2", 10, 10)
     | affine("layer_norm", 10)),
    ("detr-ffn", {"d": 10, "hidden": 7}, "x", affine("ffn_layers.0", 7, 10) | affine("ffn_layers.2", 10, 7)
     | affine("layer_norm", 10)),
    *non_local_rows(),
    ("key-content-attention", {"M": 3, "d": 10, "d_head": 4}, "x", {"attention.u": [3, 1, 4], **PROJECTIONS}),
    ("stand-alone-self-attention", {**IMAGE, "max_pos_embedding": 9}, "x", image_attention(3, 6, 5, 2, 17)),
    ("local-self-attention", {**IMAGE, "kernel_size": 5, "stride": 2, "padding": "mask"}, "x",
     image_attention(3, 6, 5, 2, 5)),
    ("local-self-attention", {**IMAGE, "kernel_size": 5, "padding": "zero", "relative": False}, "x",
     image_attention(3, 6, 5, 2, 0)),
    ("local-self-attention", {"in_channels": 3, "mid_channels": 3, "out_channels": 3, "num_heads": 1, "kernel_size": 3,
                              "relative": False, "bias": False, "project": False}, "x",
     {name + ".weight": [3, 3, 1, 1] for name in ("query", "key", "value")}),
    ("pre-norm", {"dim": 12, "heads": 3, "dim_heads": 5}, "x", pre_norm(12, 15)),
    ("channel-layer-norm", {"dim": 12}, "x", {"g": [1, 12, 1, 1], "b": [1, 12, 1, 1]}),
    ("reversible-block", {"dim": 12, "heads": 3}, "x",
     under("f.net.fn.", pre_norm(12, 12)) | under("g.net.fn.", pre_norm(12, 12))),
    ("reversible-block", {"dim": 12, "functions": "convolution"}, "x",
     under("f.net.", axial_convolutions(12)) | under("g.net.", axial_convolutions(12))),
    ("reversible-block", {"dim": 12, "functions": "convolution", "reversible": False}, "x",
     under("f.", axial_convolutions(12)) | under("g.", axial_convolutions(12))),
    ("reversible-sequence", {"dim": 16, "depth": 2}, "x", axial_image(True, 16, 2, 16, "")),
    ("reversible-sequence", {"dim": 16, "depth": 2, "reversible": False}, "x", axial_image(False, 16, 2, 16, "")),
    ("feed-forward-network", {"embedding_dim": 12, "ffn_embedding_dim": 20}, "x",
     affine("fc1", 20, 12) | affine("fc2", 12, 20)),
    *(("normalized-residual-block", {"layer": layer, "embedding_dim": 12, "num_attention_heads": 3}, LINES,
       under("layer.", projections(12)) | affine("layer_norm", 12)) for layer in ("row", "column")),
    ("normalized-residual-block", {"layer": "feed-forward", "embedding_dim": 12, "ffn_embedding_dim": 20}, LINES,
     under("layer.", affine("fc1", 20, 12) | affine("fc2", 12, 20)) | affine("layer_norm", 12)),
    *(("nadaraya-watson", {"kernel": kernel, "sigma": 0.5}, "x_train y_train x_val", {})
      for kernel in ("gaussian", "boxcar", "constant", "epanechnikov")),
    ("masked-softmax", {}, "x valid_lens?", {}),
    ("dot-product-attention", {"dropout": 0.5}, ATTENTION, {}),
    ("additive-attention", {"num_hiddens": 8, "query_size": 20, "key_size": 2, "dropout": 0.1}, ATTENTION,
     {"W_k.weight": [8, 2], "W_q.weight": [8, 20], "w_v.weight": [1, 8]}),
    ("bilinear-attention", {"query_size": 20, "key_size": 2}, ATTENTION, {"M.weight": [20, 2]}),
    ("multi-head-attention", {"num_hiddens": 12, "num_heads": 3, "dropout": 0.5}, ATTENTION, heads(12, False)),
    ("multi-head-attention", {"num_hiddens": 12, "num_heads": 3, "bias": True}, ATTENTION, heads(12, True)),
    ("multi-head-attention", {"num_hiddens": 12, "num_heads": 3, "score": "additive"}, ATTENTION,
     {**heads(12, False), "attention.W_k.weight": [4, 4], "attention.W_q.weight": [4, 4], "attention.w_v.weight": [1, 4]}),
    ("multi-head-attention", {"num_hiddens": 12, "num_heads": 3, "score": "bilinear"}, ATTENTION,
     {**heads(12, False), "attention.M.weight": [4, 4]}),
    ("positional-encoding", {"num_hiddens": 32, "max_len": 60}, "x", {}),
    ("transformer-encoder", {"vocab_size": 9, **BOOK}, "tokens valid_lens? segments? offsets?", encoder(9, 12, 20, 2, False)),
    ("transformer-encoder", {"vocab_size": 9, **BOOK, "use_bias": True}, "tokens valid_lens? segments? offsets?",
     encoder(9, 12, 20, 2, True)),
    ("transformer-encoder", {"vocab_size": 9, **BOOK, "segments": 2, "pooler": True, "num_classes": 5, "masked_head": True,
                             "embedding_norm": True}, "tokens valid_lens? segments? offsets?",
     {**encoder(9, 12, 20, 2, False), "segment_embedding.weight": [2, 12], **affine("embedding_norm", 12),
      **affine("pooler.dense", 12, 12), **affine("classifier", 5, 12), **affine("masked_head.dense", 12, 12),
      **affine("masked_head.norm", 12), "masked_head.bias": [9]}),
    ("transformer-decoder", {"vocab_size": 9, **BOOK}, "tokens enc_outputs valid_lens?", decoder(9, 12, 20, 2)),
    ("transformer", {"src_vocab_size": 9, "tgt_vocab_size": 11, **BOOK}, "tokens valid_lens? tgt_tokens",
     under("encoder.", encoder(9, 12, 20, 2, False)) | under("decoder.", decoder(11, 12, 20, 2))),
    ("seq2seq-attention", {"src_vocab_size": 9, "tgt_vocab_size": 11, "embed_size": 5, "num_hiddens": 6,
                           "num_layers": 3}, "tokens valid_lens? tgt_tokens", seq2seq(9, 11, 5, 6, 3)),
    ("position-wise-ffn", {"num_hiddens": 5, "ffn_num_hiddens": 4, "ffn_num_outputs": 8}, "x",
     affine("dense1", 4, 5) | affine("dense2", 8, 4)),
    ("add-norm", {"norm_shape": 4, "dropout": 0.5}, "x y", affine("ln", 4)),
    ("batch-norm", {"num_features": 4}, "x", {"weight": [4], "bias": [4], "running_mean": [4], "running_var": [4],
                                              "num_batches_tracked": []}),
    ("transformer-encoder-block", BLOCK, "x valid_lens?", coder(["attention"], 2, 12, 20, False)),
    ("transformer-encoder-block", {**BLOCK, "use_bias": True}, "x valid_lens?", coder(["attention"], 2, 12, 20, True)),
    ("transformer-decoder-block", BLOCK, "x enc_outputs valid_lens?",
     coder(["attention1", "attention2"], 3, 12, 20, False)),
    ("seq2seq-encoder", {"vocab_size": 9, "embed_size": 5, "num_hiddens": 6, "num_layers": 3}, "tokens",
     {"embedding.weight": [9, 5], **under("rnn.", gru(5, 6, 3))}),
    ("patch-embedding", {"img_size": 24, "patch_size": 8, "num_hiddens": 12}, "x", affine("conv", 12, 3, 8, 8)),
    ("vit-mlp", {"num_hiddens": 5, "mlp_num_hiddens": 4, "mlp_num_outputs": 8}, "x",
     affine("dense1", 4, 5) | affine("dense2", 8, 4)),
    ("vit-block", {"num_hiddens": 12, "norm_shape": 12, "mlp_num_hiddens": 20, "num_heads": 3}, "x valid_lens?",
     affine("ln1", 12) | affine("ln2", 12) | under("attention.", heads(12, False))
     | affine("mlp.dense1", 20, 12) | affine("mlp.dense2", 12, 20)),
    ("vit", {"img_size": 24, "patch_size": 8, "num_hiddens": 12, "mlp_num_hiddens": 20, "num_heads": 3, "num_blks": 2,
             "num_classes": 7}, "x", vit(24, 8, 12, 20, 2, 7, 3, False)),
    ("vit", {"img_size": 24, "patch_size": 8, "num_hiddens": 12, "mlp_num_hiddens": 20, "num_heads": 3, "num_blks": 2,
             "num_classes": 7, "in_channels": 1, "use_bias": True}, "x", vit(24, 8, 12, 20, 2, 7, 1, True)),
]


def differences(command, name, config, inputs, shapes):
    done = subprocess.run([command, "list", name, "--config", json.dumps(config), "--json"], capture_output=True,
                          text=True)
    if done.returncode != 0:
        return [done.stderr.strip()]
    found = json.loads(done.stdout)
    listed = " ".join(port["name"] + "?" * port["optional"] for port in found["inputs"])
    own = {p["name"]: p["shape"] for p in found["parameters"]}
    return ([f"inputs {listed}, {inputs} wanted"] if listed != inputs else []) \
        + [f"{key}: {own.get(key, 'none')}, {shapes.get(key, 'none')} wanted" for key in sorted({*own, *shapes})
           if own.get(key) != shapes.get(key)]


def main():
    wrong = 0
    for name, config, inputs, shapes in ROWS:
        for line in differences(sys.argv[1], name, config, inputs, shapes):
            print(f"{name} {json.dumps(config)}: {line}")
            wrong += 1
    print(f"{len(ROWS)} configurations, {wrong} differences")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
