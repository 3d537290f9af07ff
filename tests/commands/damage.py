#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Everything that is read in addition to a training, damaged: names files, adapters, index files of shards, arrays of
NumPy's and PyTorch's, MarianMT's directories, weights in int8.  A command works, or prints the error in one line, in
20 seconds, and leaves no half of a file.

    damage.py               64 places in each file
    damage.py --each N      N places
    damage.py --only TEXT   files with TEXT in their names
"""
import argparse
import collections
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time

import table

DATA = os.path.join(table.ROOT, "tests", "data")
failed = 0
counts = collections.Counter()


def complain(what, problem):
    global failed
    failed += 1
    print(f"FAILED: {what}: {problem}", flush=True)


# ---------------------------------------------------------------------------------------------------- the fixture

NAMES = r"""attn names 1
arch self-attention
set dim=6 heads=2
to_q\.(weight)   to_q.\1     transpose transpose
to_kv\.weight    to_kv.weight   part 0/2 join 0/2
to_kv\.weight    to_kv.weight   part 1/2 join 1/2
(to_out\..*)     \1
"""


def tensors(path, shapes):
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 4
        for n in shape:
            size *= n
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    values = [((i * 7919) % 61 - 30) / 60 for i in range(at // 4)]
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + struct.pack(f"<{len(values)}f", *values))


def affine(name, out, ins):
    return {name + ".weight": [out, ins], name + ".bias": [out]}


def marian_shapes(v, d=4, ffn=6):
    shapes = {"model.shared.weight": [v, d], "final_logits_bias": [1, v]}
    for half, parts in (("encoder", ["self_attn"]), ("decoder", ["self_attn", "encoder_attn"])):
        b = f"model.{half}.layers.0."
        for part in parts:
            for p in "qkv":
                shapes |= affine(f"{b}{part}.{p}_proj", d, d)
            shapes |= affine(f"{b}{part}.out_proj", d, d) | {f"{b}{part}_layer_norm.{x}": [d] for x in ("weight", "bias")}
        shapes |= affine(b + "fc1", ffn, d) | affine(b + "fc2", d, ffn)
        shapes |= {f"{b}final_layer_norm.{x}": [d] for x in ("weight", "bias")}
    return shapes


def make_marian():
    with open("more.tsv", "w") as f:
        for i in range(60):
            f.write(f"go on here {i} we\tva la {i} you\nstop it who {i}\ta b {i} c\n")
    table.must("train translate --data more.tsv --out pieces --vocabulary unigram --vocabulary-size 300 --epochs 1 "
               "--num-hiddens 8 --ffn-num-hiddens 8 --num-blks 1 --num-heads 2 --warmup 2 -q".split())
    os.makedirs("marian")
    for side in "source", "target":
        shutil.copy(f"pieces/{side}.spm", "marian")
    words = ["</s>", "<unk>", ">>fra<<", "\u2581", *(chr(c) for c in range(97, 123)), "\u2581go", "\u2581on", "<pad>"]
    v = len(words)
    with open("marian/vocab.json", "w") as f:
        json.dump({w: i for i, w in enumerate(words)}, f)
    config = {"model_type": "marian", "vocab_size": v, "d_model": 4, "encoder_layers": 1, "decoder_layers": 1,
              "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 6, "decoder_ffn_dim": 6,
              "max_position_embeddings": 8, "activation_function": "swish", "scale_embedding": True,
              "pad_token_id": v - 1, "decoder_start_token_id": v - 1, "eos_token_id": 0, "forced_eos_token_id": 0,
              "bad_words_ids": [[v - 1]], "max_length": 5}
    with open("marian/config.json", "w") as f:
        json.dump(config, f)
    with open("marian/generation_config.json", "w") as f:
        json.dump({"bad_words_ids": [[v - 1]], "num_beams": 2, "max_length": 7, "eos_token_id": 0, "forced_eos_token_id": 0,
                   "pad_token_id": v - 1, "decoder_start_token_id": v - 1, "length_penalty": 1.0}, f)
    with open("marian/tokenizer_config.json", "w") as f:
        json.dump({"source_lang": "en", "target_lang": "fr", "separate_vocabs": False, "sp_model_kwargs": {}}, f)
    tensors("marian/model.safetensors", marian_shapes(v))


def make_shards():
    os.makedirs("shards")
    tensors("shards/model-00001-of-00002.safetensors", {"to_q.weight": [6, 6]})
    tensors("shards/model-00002-of-00002.safetensors",
            {"to_kv.weight": [12, 6], "to_out.weight": [6, 6], "to_out.bias": [6]})
    where = {"to_q.weight": "model-00001-of-00002.safetensors"}
    where.update({n: "model-00002-of-00002.safetensors" for n in ("to_kv.weight", "to_out.weight", "to_out.bias")})
    with open("shards/model.safetensors.index.json", "w") as f:
        json.dump({"metadata": {"total_size": 600}, "weight_map": where}, f)


def npy(array_bytes, shape):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (117 - len(header)) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + array_bytes


def make():
    table.make_fixture(os.path.join(os.getcwd(), "in"))  # which is written there
    with open("same.names", "w") as f:
        f.write(NAMES)
    with open("x6.npy", "wb") as f:
        f.write(npy(struct.pack("<12f", *[n / 12 for n in range(12)]), (1, 2, 6)))
    for name in "legacy.pt", "old.pth", "self_attention.pt", "nested.pt":
        shutil.copy(os.path.join(DATA, "pt", name), ".")
    for name in "stored.npz", "deflated.npz":
        shutil.copy(os.path.join(DATA, "npz", name), ".")
    table.must(["train", "classify", "--data", "pictures", "--out", "lora", "--from", "classifier", "--lora", "2", "--lora-on",
                r"blks\..*\.W_[qv]", "--epochs", "1", "-q", "--warmup", "0", "--valid", "0.3"])
    make_marian()
    make_shards()
    table.must("convert translator --precision int8 -o int8 -q".split())
    table.must("convert classifier --precision bf16 -o bf16 -q".split())


# The damaged files, and the commands that read them.
RUN = "run --arch self-attention --config {\"dim\":6,\"heads\":2} --input x=x6.npy --output out=out/y.npy --weights".split()
TARGETS = [
    ("same.names", RUN[:1] + RUN[5:] + ["self_attention.pt", "--names", "same.names"]),
    ("same.names", "convert self_attention.pt --names same.names -o out/v -q".split()),
    ("same.names", "convert self_attention.pt --names same.names --dry-run".split()),
    ("same.names", "diff self_attention.pt self_attention.pt --names same.names".split()),
    ("same.names", "translate translator go --names same.names".split()),
    ("lora/adapter_config.json", "eval lora".split()),
    ("lora/adapter_model.safetensors", "eval lora".split()),
    ("lora/adapter_config.json", "convert lora -o out/m -q".split()),
    ("lora/adapter_model.safetensors", "convert lora -o out/m -q".split()),
    ("lora/base.safetensors", "info lora".split()),
    ("shards/model.safetensors.index.json", RUN + ["shards"]),
    ("shards/model.safetensors.index.json", "info shards --values".split()),
    ("shards/model-00001-of-00002.safetensors", RUN + ["shards"]),
    ("shards/model-00002-of-00002.safetensors", "diff shards shards".split()),
    ("stored.npz", "info stored.npz --values".split()),
    ("deflated.npz", "info deflated.npz --values".split()),
    ("deflated.npz", "convert deflated.npz -o out/d.safetensors -q".split()),
    ("legacy.pt", "info legacy.pt --values".split()),
    ("legacy.pt", "convert legacy.pt -o out/l.safetensors -q".split()),
    ("old.pth", "diff old.pth old.pth".split()),
    ("nested.pt", "info nested.pt --values --json".split()),
    ("marian/config.json", "translate marian go".split()),
    ("marian/generation_config.json", "translate marian go".split()),
    ("marian/tokenizer_config.json", "translate marian go".split()),
    ("marian/vocab.json", "translate marian go".split()),
    ("marian/source.spm", "translate marian go".split()),
    ("marian/target.spm", "translate marian go".split()),
    ("marian/model.safetensors", "translate marian go".split()),
    ("marian/config.json", "info marian".split()),
    ("int8/model.safetensors", "translate int8 go --precision int8".split()),
    ("int8/model.safetensors", "convert int8 --precision bf16 -o out/p -q".split()),
    ("int8/config.json", "info int8 --json".split()),
    ("bf16/model.safetensors", "classify bf16 picture.png".split()),
    ("bf16/config.json", "classify bf16 picture.png".split()),
    ("pieces/source.spm", "translate pieces go".split()),
]

DIGITS = "99999999999999999999999999"
WRONG = [None, True, -1, 0, 0.5, 1 << 40, (1 << 63), "", "x", "../../../etc/passwd", "/dev/zero", [], {}, [[1 << 31] * 3], "deep", "long",
         "count", float("inf")]


def spelled(wrong):
    return {"deep": "[" * 100000 + "]" * 100000, "long": '"' + "y" * 1000000 + '"',
            "count": "[" + "1," * 200000 + "1]"}.get(wrong if isinstance(wrong, str) else None) or \
        (json.dumps(wrong) if wrong != float("inf") else "1e999")


def paths(value, at=()):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield at + (key,)
            yield from paths(inner, at + (key,))
    elif isinstance(value, list):
        for i, inner in enumerate(value[:3]):
            yield at + (i,)


def wrong_json(text):
    """(what, text) with each value replaced by what it should not be, each key given twice and each left out."""
    whole = json.loads(text)
    every = list(paths(whole))
    random.Random(1).shuffle(every)
    for path in every[:24]:
        for wrong in WRONG:
            copy = json.loads(text)
            at = copy
            for step in path[:-1]:
                at = at[step]
            at[path[-1]] = "@@@"
            yield f"{'.'.join(map(str, path))} = {str(wrong)[:20]}", json.dumps(copy).replace('"@@@"', spelled(wrong), 1)
        copy = json.loads(text)
        at = copy
        for step in path[:-1]:
            at = at[step]
        del at[path[-1]]
        yield f"without {path}", json.dumps(copy)
    for key in list(whole)[:12] if isinstance(whole, dict) else ():
        yield f"{key} twice", text.rstrip()[:-1] + f", {json.dumps(key)}: {json.dumps(whole[key])}}}"
    yield "nothing but an array", "[" * 100000
    yield "nothing but braces", '{"a":' * 100000


def wrong_names(text):
    lines = text.splitlines()
    for i in range(len(lines)):
        yield f"line {i + 1} twice", "\n".join(lines[:i + 1] + lines[i:])
        yield f"without line {i + 1}", "\n".join(lines[:i] + lines[i + 1:])
    for extra in ["(" * 100000, "a" * 100000 + " b", r"(a*)*(a*)*(a*)*(a*)*b \1", r"(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)x \1\2\3", r".* \9",
                  r"(.*) {\1-9223372036854775808}", r"(\d+) {\1+9223372036854775807}", "to_q.weight a reshape " + DIGITS,
                  "to_q.weight a reshape -1,-1", "to_q.weight a reshape " + "1," * 5000 + "1", "to_q.weight a part 0/0",
                  "to_q.weight a part 1/1 99", "to_q.weight a part -1/2", "to_q.weight a rows 5:1", "to_q.weight a rows 0:" + DIGITS,
                  "to_q.weight a scale nan", "to_q.weight a scale 1e999", "to_q.weight a join 0/" + DIGITS, "to_q.weight a join 0/1000000000",
                  "set dim=" + DIGITS, "set dim", "set =3", "set dim=-1", "size dim to_q.weight 99", "size dim to_q.weight -1", "size",
                  "count heads to_", "when", "arch", "arch " + "z" * 100000, "to_q.weight a" + " transpose" * 100000, "\x00", "a\x00b c",
                  "[", "[]", "[^]", "[z-a]", "a{1000000000}", "\\", "a\\", "*", "a**", "|||", "(|)*", "(()*)*", "\xff \xfe"] + \
            ["((((((((((" * n for n in (1, 10, 1000)] + ["to_q.weight a" + f" reshape {1 << 40},-1", "to_q.weight a append-zero-row" * 3]:
        yield "with " + extra[:40], text + extra + "\n"
        yield "beginning with " + extra[:40], text.replace("set dim", extra + "\nset dim", 1)


def wrong_safetensors(data):
    size, = struct.unpack("<Q", data[:8])
    text, rest = data[8:8 + size].decode(), data[8 + size:]
    for what, header in wrong_json(text):
        header = header.encode()
        yield what, struct.pack("<Q", len(header)) + header + rest
    for claimed in (0, 1, size - 1, size + 1, len(data), 1 << 40, 1 << 63, (1 << 64) - 1):
        yield f"a header of {claimed}", struct.pack("<Q", claimed) + data[8:]


def broken(path, data, each):
    """(what, damaged bytes)."""
    for at in sorted({len(data) * i // each for i in range(each)}):
        yield f"cut off at {at}", data[:at]
    some = random.Random(path)
    for _ in range(each):
        at, bit = some.randrange(len(data)), some.randrange(8)
        yield f"bit {bit} of byte {at}", data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1:]
    head = min(len(data), 2000)
    for _ in range(each):
        at = some.randrange(max(1, head - 8))
        kind = some.choice([b"\xff" * 8, struct.pack("<Q", 1 << 40), struct.pack("<I", 1 << 31), b"\0" * 8, data[:64], b"9" * 20])
        yield f"{kind[:8]} at {at}", data[:at] + kind + data[at + len(kind):]
    more = wrong_json if path.endswith(".json") else wrong_names if path.endswith(".names") else None
    if more:
        for what, text in more(data.decode()):
            yield what, text.encode("latin-1" if path.endswith(".names") else "utf-8")
    if path.endswith(".safetensors"):
        yield from wrong_safetensors(data)


# ---------------------------------------------------------------------------------------------------- the verdict

def judge(what, words, again=False):
    shutil.rmtree("out", ignore_errors=True)
    os.mkdir("out")
    began = time.time()
    try:
        done = table.run(words, timeout=40)
    except subprocess.TimeoutExpired:
        return complain(what, "no end in 40 s") if again else judge(what, words, True)
    lines = done.stderr.decode(errors="replace").splitlines()
    if time.time() - began > 20 and not again:
        return judge(what, words, True)  # a busy machine may have been the reason
    if time.time() - began > 20:
        complain(what, f"took {time.time() - began:.0f} s")
    left = [p for p in table.contents("out") if os.path.basename(p).startswith(".") or ".tmp" in p]
    if left:
        complain(what, f"leaves {left}")
    if done.returncode == 0 or done.returncode == 1 and words[0] == "diff" and not lines:
        counts["works"] += 1
        if any("Sanitizer" in x or "runtime error" in x for x in lines):
            complain(what, lines[:3])
        return None
    counts["refused"] += 1
    # Missing and extra tensors of a file of weights are listed.
    lists = "does not fit" in "".join(lines[:1]) and all(line.startswith("attn: ") for line in lines)
    if done.returncode != 2 or len(lines) != 1 and not lists or not lines[0].startswith("attn: ") or len(lines[0]) < 20:
        return complain(what, f"exit code {done.returncode}: {[x[:300] for x in lines[:6]]}")
    if table.contents("out") or os.listdir("out"):
        complain(what, f"refused, and out/ has {os.listdir('out')}")
    return None


def restore(path, data):
    if os.path.islink(path) or os.path.exists(path):
        if os.path.isdir(path) and not os.path.islink(path):
            os.rmdir(path)
        else:
            os.unlink(path)
    with open(path, "wb") as f:
        f.write(data)


def specials(path):
    """Puts at `path` what is no regular file; gives its name."""
    os.unlink(path)
    yield "missing"
    os.mkfifo(path)
    yield "a FIFO without a writer"
    os.unlink(path)
    for device in "zero", "random", "null", "tty", "full":
        os.symlink("/dev/" + device, path)
        yield "/dev/" + device
        os.unlink(path)
    os.symlink(os.path.basename(path), path)
    yield "a link to itself"
    os.unlink(path)
    os.symlink("nowhere", path)
    yield "a link to nowhere"
    os.unlink(path)
    os.mkdir(path)
    yield "a directory"
    os.rmdir(path)
    open(path, "w").close()
    yield "an empty file"
    with open(path, "wb") as f:
        f.truncate(1 << 40)
    yield "a hole of a TiB"
    os.unlink(path)
    os.symlink("/proc/self/mem", path)
    yield "/proc/self/mem"
    os.unlink(path)
    os.symlink("/proc/self/status", path)
    yield "/proc/self/status"


def attack(path, words, each, share):
    with open(path, "rb") as f:
        data = f.read()
    name = f"{' '.join(words)[:100]}: {path}"
    judge(name + " whole", words)
    for i, (what, damaged) in enumerate(broken(path, data, each)):
        if i % share:
            continue
        with open(path, "wb") as f:
            f.write(damaged)
        judge(f"{name} {what}", words)
    for what in specials(path):
        judge(f"{name} {what}", words)
    restore(path, data)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--each", type=int, default=64)
    parser.add_argument("--share", type=int, default=1, help="one in so many of the damages")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    began = time.time()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make()
        for path, words in TARGETS:
            if options.only in path:
                attack(path, words, options.each, options.share)
        os.chdir("/")
    print(f"{sum(counts.values())} damages, {counts['works']} without effect, {counts['refused']} refused, {time.time() - began:.0f} s, "
          f"{failed} failures")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
