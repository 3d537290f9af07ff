# SPDX-License-Identifier: MIT
"""Checkpoints of unlike origin before `attn convert --dry-run`: python3 dry_run.py ATTN

Each is made here, or is one of the tests' data.  The output about it must be right: the built-in names file that
matches it, with how many tensors; or a names file to begin with, which then converts the checkpoint; or that nothing is
known."""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import time

ATTN, DATA = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(__file__).parent.resolve() / "data"


def write(path, shapes):
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 4
        for n in shape:
            size *= n
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes((i * 7) % 61 for i in range(at)))


def linear(name, out, *ins):
    return {name + ".weight": [out, *ins], name + ".bias": [out]}


def norm(name, n):
    return {name + ".weight": [n], name + ".bias": [n]}


def timm(d=64):
    shapes = {"cls_token": [1, 1, d], "pos_embed": [1, 5, d], **linear("patch_embed.proj", d, 3, 4, 4), **norm("norm", d),
              **linear("head", 7, d)}
    for i in range(2):
        b = f"blocks.{i}."
        shapes |= {**norm(b + "norm1", d), **linear(b + "attn.qkv", 3 * d, d), **linear(b + "attn.proj", d, d),
                   **norm(b + "norm2", d), **linear(b + "mlp.fc1", 2 * d, d), **linear(b + "mlp.fc2", d, 2 * d)}
    return shapes


def deit():
    """As a training saves it: the model under "model", and its optimizer."""
    return {"model." + name: shape for name, shape in timm().items()} | {"optimizer.state.0.exp_avg": [1, 1, 64]}


def huggingface_vit(d=64):
    e = "vit.embeddings."
    shapes = {e + "cls_token": [1, 1, d], e + "position_embeddings": [1, 5, d],
              **linear(e + "patch_embeddings.projection", d, 3, 4, 4), **norm("vit.layernorm", d), **linear("classifier", 7, d)}
    for i in range(2):
        b = f"vit.encoder.layer.{i}."
        shapes |= {**norm(b + "layernorm_before", d), **norm(b + "layernorm_after", d), **linear(b + "intermediate.dense", 2 * d, d),
                   **linear(b + "output.dense", d, 2 * d), **linear(b + "attention.output.dense", d, d)}
        for part in ("query", "key", "value"):
            shapes |= linear(b + "attention.attention." + part, d, d)
    return shapes


def huggingface_marian(d=8, tables=("model.shared.weight",)):
    shapes = {name: [11, d] for name in tables} | {"final_logits_bias": [1, 11]}
    for half, parts in (("encoder", ["self_attn"]), ("decoder", ["self_attn", "encoder_attn"])):
        for i in range(2):
            b = f"model.{half}.layers.{i}."
            for part in parts:
                for p in "qkv":
                    shapes |= linear(f"{b}{part}.{p}_proj", d, d)
                shapes |= {**linear(f"{b}{part}.out_proj", d, d), **norm(f"{b}{part}_layer_norm", d)}
            shapes |= {**linear(b + "fc1", 12, d), **linear(b + "fc2", d, 12), **norm(b + "final_layer_norm", d)}
    return shapes


def marian_two():
    return huggingface_marian(tables=("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"))


def gpt2(d=8):
    shapes = {"wte.weight": [11, d], "wpe.weight": [16, d], **norm("ln_f", d)}
    for i in range(2):
        h = f"h.{i}."
        shapes |= {**norm(h + "ln_1", d), **norm(h + "ln_2", d), h + "attn.c_attn.weight": [d, 3 * d], h + "attn.c_attn.bias": [3 * d],
                   h + "attn.c_proj.weight": [d, d], h + "mlp.c_fc.weight": [d, 4 * d], h + "mlp.c_proj.weight": [4 * d, d]}
    return shapes


ENCODER = {"vocab_size": 13, "num_hiddens": 6, "ffn_num_hiddens": 10, "num_heads": 2, "num_blks": 3}


def encoder(prefix, first, renamed):
    """attn's own encoder under other names: a prefix, blocks counted from elsewhere, words for its layers."""
    shapes = {prefix + "embedding.weight": [13, 6]}
    for i in range(3):
        b = f"{prefix}layers.{i + first}."
        for part in ("W_q", "W_k", "W_v", "W_o"):
            shapes[f"{b}{renamed.get('attention', 'attention')}.{part}.weight"] = [6, 6]
        for n in (1, 2):
            shapes |= norm(f"{b}addnorm{n}.ln", 6)
        shapes |= {**linear(b + "ffn.dense1", 10, 6), **linear(b + "ffn.dense2", 6, 10)}
    return shapes


def said(*arguments, code=0):
    done = subprocess.run([ATTN, "convert", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != code:
        sys.exit(f"{arguments}: exit code {done.returncode}: {done.stderr}")
    return done.stdout


def known(path, names, count):
    text = said(path, "--dry-run")
    if f"{count} tensors have the names of {names}: --names {names}" not in text:
        sys.exit(f"{path}: {text[-300:]}")


def proposed(path, folder, arch, config, missing, closest):
    """The proposal, as it is, must convert the checkpoint."""
    text = said(path, "--dry-run", "--arch", arch, "--config", json.dumps(config))
    for words in (f"0 fit, 0 have another shape, {missing} parameters are missing, {missing} tensors are left over", *closest):
        if words not in text:
            sys.exit(f"{path}: not said: {words}\n{text}")
    rules = text[text.index("attn names 1"):]
    (folder / "guess.names").write_text(rules)
    said(path, "--names", folder / "guess.names", "--config", json.dumps(config), "-o", folder / (path.stem + "-converted"))
    return rules


def refused(folder, words, *arguments):
    """One clear line, and nothing written."""
    began = time.monotonic()
    done = subprocess.run([ATTN, "convert", *map(str, arguments), "-o", folder / "none"], capture_output=True, text=True)
    lines = done.stderr.splitlines()
    if done.returncode not in (1, 2) or len(lines) != 1 or words not in lines[0]:
        sys.exit(f"{arguments}: exit code {done.returncode}, not refused with \"{words}\": {done.stderr}")
    if (folder / "none").exists() or list(folder.glob("*none*")) or time.monotonic() - began > 20:
        sys.exit(f"{arguments}: something was written, or it took long")


def hostile(folder):
    """Names files, shards and sizes that must not work."""
    encoder_of = folder / "prefixed.safetensors"

    def names(text):
        path = folder / "hostile.names"
        path.write_text("attn names 1\narch transformer-encoder\n" + text)
        return path
    for text, words in (("(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)x \\1\n", "no rule of"), ("((a*)*)*b x\n", "no rule of"),
                        ("module\\.net\\.(.*) same\n", "is filled twice"), ("(.*) {\\1-1}\n", "a group in { } matches no number"),
                        ("(.*embedding.weight) e part 0/7\n.* -\n", "the number of parts"),
                        ("(.*embedding.weight) e join 1/3\n.* -\n", "is missing"), ("(.*)+)* x\n", "line 3"),
                        ("".join(f"(.*){i} t{i}\n" for i in range(5000)), "line"), ("size x y z\n", "expected an axis")):
        refused(folder, words, encoder_of, "--names", names(text), "--config", json.dumps(ENCODER))
    shards = folder / "shards"
    shards.mkdir()
    write(shards / "one.safetensors", {"a": [2], "b": [3]})
    write(shards / "two.safetensors", {"c": [2], "b": [3]})
    for places, words in (({"a": "one.safetensors", "b": "one.safetensors", "c": "three.safetensors"}, "three.safetensors"),
                          ({"a": "one.safetensors", "b": "one.safetensors", "c": "two.safetensors"}, "does not assign to this file"),
                          ({"a": "one.safetensors", "b": "one.safetensors", "d": "one.safetensors"}, "lacks the tensor \"d\""),
                          ({"a": "../one.safetensors"}, "a name without a directory"), ({"a": 1}, "a name without a directory"), ({}, "weight_map")):
        (shards / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
        refused(folder, words, shards, "--arch", "self-attention", "--config", '{"dim": 6, "heads": 2}')
    for shape in ([1 << 20, 1 << 20], [1 << 40], [1 << 62, 4]):
        header = json.dumps({"x": {"dtype": "F32", "shape": shape, "data_offsets": [0, 16]}}).encode()
        (folder / "huge.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
        refused(folder, "huge.safetensors", folder / "huge.safetensors", "--arch", "self-attention", "--config",
                '{"dim": 6, "heads": 2}')
    refused(folder, "huge", DATA / "npz/huge.npz", "--arch", "self-attention", "--config", '{"dim": 6, "heads": 2}')


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, make in (("timm", timm), ("deit", deit), ("hf", huggingface_vit), ("marian", huggingface_marian), ("two", marian_two),
                           ("gpt2", gpt2)):
            write(folder / f"{name}.safetensors", make())
        known(folder / "timm.safetensors", "vit-timm", f"{len(timm())} of {len(timm())}")
        known(folder / "deit.safetensors", "vit-timm", f"{len(timm())} of {len(timm()) + 1}")
        known(folder / "two.safetensors", "marian-huggingface-two", f"{len(marian_two())} of {len(marian_two())}")
        said(folder / "deit.safetensors", "-o", folder / "deit", "--heads", "1")
        known(folder / "hf.safetensors", "vit-huggingface", f"{len(huggingface_vit())} of {len(huggingface_vit())}")
        known(folder / "marian.safetensors", "marian-huggingface", f"{len(huggingface_marian())} of {len(huggingface_marian())}")
        known(DATA / "names/torch.npz", "torch-transformer", "86 of 87")
        known(DATA / "names/fairseq.npz", "fairseq-transformer", "103 of 105")
        known(DATA / "names/marian-native.npz", "marian-native", "112 of 113")
        known(DATA / "names/bert-masked.npz", "bert-huggingface", "42 of 42")
        text = said(DATA / "pt/msa_tiny.pt", "--dry-run")
        assert "tensors have the names of msa-esm: --names msa-esm" in text, text
        text = said(folder / "gpt2.safetensors", "--dry-run")
        assert "No built-in names file has most of these" in text, text
        write(folder / "prefixed.safetensors", encoder("module.net.", 0, {}))
        rules = proposed(folder / "prefixed.safetensors", folder, "transformer-encoder", ENCODER, 37,
                         ["missing; closest: module.net.embedding.weight"])
        assert "(\\d+)" in rules and len(rules.splitlines()) < 20, rules  # a rule for all blocks at once
        write(folder / "counted.safetensors", encoder("model.", 1, {"attention": "self_attention"}))
        rules = proposed(folder / "counted.safetensors", folder, "transformer-encoder", ENCODER, 37,
                         ["missing; closest: model.layers.1.self_attention.W_q.weight"])
        assert "{\\1-1}" in rules, rules
        turned = {"net.to_q.weight": [8, 6], "net.to_kv.weight": [6, 16], "net.to_out.weight": [6, 8], "net.to_out.bias": [1, 6]}
        write(folder / "turned.safetensors", turned)
        rules = proposed(folder / "turned.safetensors", folder, "self-attention", {"dim": 6, "heads": 2, "dim_heads": 4}, 4,
                         ["missing; closest: net.to_kv.weight transpose", "missing; closest: net.to_out.bias squeeze"])
        hostile(folder)


if __name__ == "__main__":
    main()
