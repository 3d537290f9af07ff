# SPDX-License-Identifier: MIT
"""One model in Hugging Face's MarianMT form and as Marian leaves it (decoder.yml, an .npz, vocabularies in YAML): both
must give the same, and errors in the second must be refused by name.

    marian_archive.py COMMAND
"""
import json
import math
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile

ATTN, DATA = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(__file__).parent.resolve().parent / "data"
# Characters that yaml-cpp leaves as they are, and libyaml takes for line ends or refuses.
RAW = ["\x85", "a\x85b", "\x7f", "\x9bc", "x\u2028y", "\u2029", "\ufeffz", "\x01"]
D, FFN, LAYERS = 16, 24, 2
failures = 0


def complain(what):
    global failures
    failures += 1
    print("FAILED:", what, flush=True)


def run(*words, stdin=None):
    return subprocess.run([ATTN, *map(str, words)], input=stdin, capture_output=True, text=True, timeout=120)


def well(*words, stdin=None):
    done = run(*words, stdin=stdin)
    if done.returncode:
        complain(f"attn {' '.join(map(str, words))}: {done.returncode}, {done.stderr[:300]}")
    return done.stdout


# ------------------------------------------------------------------------------------------------- two forms

def pieces_of(folder):
    """source.spm and target.spm, learned by attn from the phrasebook, and the pieces of both."""
    lines = [line.split("\t")[:2] for line in (DATA / "phrasebook.tsv").read_text(encoding="utf-8").splitlines() if "\t" in line][:400]
    (folder / "pairs.tsv").write_text("\n".join("\t".join(pair) for pair in lines) + "\n", encoding="utf-8")
    well("train", "translate", "--data", folder / "pairs.tsv", "--out", folder / "trained", "--epochs", 1, "--num-hiddens", 8,
         "--ffn-num-hiddens", 8, "--num-blks", 1, "--num-heads", 1, "--vocabulary", "unigram", "--vocabulary-size", 450, "--quiet")
    pieces = []
    for side in ("source", "target"):
        done = spm_pieces((folder / "trained" / f"{side}.spm").read_bytes())
        pieces += [piece for piece in done if not piece.startswith("<")]
    return lines, ["</s>", "<unk>", *dict.fromkeys(pieces), *RAW]


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def spm_pieces(data):
    """Field 1 of each field 1: a .spm is a protobuf."""
    at, pieces = 0, []
    while at < len(data):
        tag, at = varint(data, at)
        size, at = varint(data, at)
        if tag == 0x0a:
            length, begin = varint(data, at + 1)
            pieces.append(data[begin:begin + length].decode())
        at += size
    return pieces


def weights(n, seed):
    """Marian's tensors, matrices as (in, out); embeddings without <pad>."""
    draw = random.Random(seed)

    def normal(scale, *shape):
        count = 1
        for size in shape:
            count *= size
        return shape, [draw.gauss(0, scale) for _ in range(count)]

    found = {"Wemb": normal(0.9, n, D), "decoder_ff_logit_out_b": normal(0.5, 1, n)}
    found["decoder_ff_logit_out_b"][1][0] = 1.5  # so that some sentences end
    for side in ("encoder", "decoder"):
        for i in range(1, LAYERS + 1):
            for part in ("self",) if side == "encoder" else ("self", "context"):
                for letter in "qkvo":
                    found[f"{side}_l{i}_{part}_W{letter}"] = normal(0.3, D, D)
                    found[f"{side}_l{i}_{part}_b{letter}"] = normal(0.1, 1, D)
                norm(found, f"{side}_l{i}_{part}_Wo", normal)
            found[f"{side}_l{i}_ffn_W1"], found[f"{side}_l{i}_ffn_b1"] = normal(0.3, D, FFN), normal(0.1, 1, FFN)
            found[f"{side}_l{i}_ffn_W2"], found[f"{side}_l{i}_ffn_b2"] = normal(0.3, FFN, D), normal(0.1, 1, D)
            norm(found, f"{side}_l{i}_ffn_ffn", normal)
    return found


def norm(found, name, normal):
    shape, scale = normal(0.1, 1, D)
    found[name + "_ln_scale"] = shape, [1 + x for x in scale]
    found[name + "_ln_bias"] = normal(0.1, 1, D)


def transposed(tensor):
    (rows, columns), values = tensor
    return (columns, rows), [values[r * columns + c] for c in range(columns) for r in range(rows)]


def huggingface_names(native):
    """The same tensors as transformers' conversion names and turns them."""
    found = {}
    for name, (shape, values) in native.items():
        words = name.split("_")
        if name == "Wemb":
            found["model.shared.weight"] = (shape[0] + 1, D), values + [0.0] * D
        elif name == "decoder_ff_logit_out_b":
            found["final_logits_bias"] = (1, shape[1] + 1), values + [0.0]
        else:
            at = f"model.{words[0]}.layers.{int(words[1][1:]) - 1}."
            kind = "weight" if words[-1] in ("scale",) or words[-1].startswith("W") else "bias"
            if words[-2] == "ln":
                own = {"self": "self_attn_layer_norm", "context": "encoder_attn_layer_norm", "ffn": "final_layer_norm"}[words[2]]
            elif words[2] == "ffn":
                own = "fc" + words[3][1:]
            else:
                part = {"self": "self_attn", "context": "encoder_attn"}[words[2]]
                own = f"{part}.{'out' if words[3][1:] == 'o' else words[3][1:]}_proj"
            tensor = transposed((shape, values)) if words[-1].startswith("W") else (shape[-1:], values)
            found[at + own + "." + kind] = tensor
    return found


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + 4 * len(values)]}
        data += struct.pack(f"<{len(values)}f", *values)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def npy(kind, shape, data):
    head = repr({"descr": kind, "fortran_order": False, "shape": tuple(shape)}).encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data


def write_npz(path, tensors, settings):
    with zipfile.ZipFile(path, "w") as file:
        for name, (shape, values) in tensors.items():
            file.writestr(name + ".npy", npy("<f4", shape, struct.pack(f"<{len(values)}f", *values)))
        text = settings.encode() + b"\0"
        file.writestr("special:model.yml.npy", npy("|i1", [len(text)], text))


def quoted(piece):
    return '"' + piece.replace("\\", "\\\\").replace('"', '\\"') + '"'


MODEL = """type: transformer
dim-emb: {D}
dim-vocabs:
  - {n}
  - {n}
enc-depth: {LAYERS}
dec-depth: {LAYERS}
transformer-heads: 2
transformer-dim-ffn: {FFN}
transformer-decoder-dim-ffn: 0
transformer-ffn-activation: swish
transformer-ffn-depth: 2
transformer-preprocess: ""
transformer-postprocess: dan
transformer-postprocess-emb: d
transformer-train-position-embeddings: false
transformer-decoder-autoreg: self-attention
transformer-tied-layers:
  []
tied-embeddings-all: true
right-left: false
version: v1.10.0; 1789a
"""
DECODER = """relative-paths: true
models:
  - opus.npz
vocabs:
  - opus.vocab.yml
  - opus.vocab.yml
beam-size: 3
normalize: 1
word-penalty: 0
mini-batch: 1
allow-unk: true
"""


def write_forms(folder, tokens, tensors):
    hf, native = folder / "hf", folder / "native"
    hf.mkdir()
    native.mkdir()
    n = len(tokens)
    for side in ("source", "target"):
        for to in (hf, native):
            shutil.copy(folder / "trained" / f"{side}.spm", to)
    (hf / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(tokens + ["<pad>"])}))
    (hf / "config.json").write_text(json.dumps({
        "model_type": "marian", "vocab_size": n + 1, "d_model": D, "encoder_layers": LAYERS, "decoder_layers": LAYERS,
        "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": FFN, "decoder_ffn_dim": FFN,
        "max_position_embeddings": 512, "activation_function": "swish", "scale_embedding": True, "pad_token_id": n,
        "decoder_start_token_id": n, "eos_token_id": 0, "forced_eos_token_id": 0, "bad_words_ids": [[n]], "max_length": 512,
        "renormalize_logits": True, "max_length_factor": 3.0, "layer_norm_eps": 1e-6}))
    write_safetensors(hf / "model.safetensors", huggingface_names(tensors))
    # Ids in no order, keys plain where YAML allows it, quoted, and on a line of their own.
    order = list(enumerate(tokens))
    random.Random(3).shuffle(order)
    lines = [f"? {quoted(piece)}\n: {i}" if i % 5 == 0 or piece == "a\x85b" else f"{quoted(piece)}: {i}" if i % 2 or not piece.isalpha() else
             f"{piece}: {i}" for i, piece in order]
    (native / "opus.vocab.yml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (native / "decoder.yml").write_text(DECODER)
    write_npz(native / "opus.npz", tensors, MODEL.format(n=n, **globals()))
    return hf, native


# --------------------------------------------------------------------------------------------------- the same

def compare(folder, hf, native, lines):
    text = "\n".join(pair[0] for pair in lines[:30]) + "\n"
    for beam in (1, 4):
        wanted, found = (well("translate", form, "--beam", beam, "--scores", "--max-length", 24, "--quiet", stdin=text) for form in (hf, native))
        texts = {line.rpartition("\t")[0] for line in wanted.splitlines()}
        if wanted != found or len(texts) < 20 or min(map(len, texts)) == 0:
            complain(f"beam {beam}: the archive's sentences differ, or are alike or empty: {len(texts)} texts")
    well("convert", native, "-o", folder / "converted")
    found = well("translate", folder / "converted", "--beam", 4, "--scores", "--max-length", 24, "--quiet", stdin=text)
    if found != well("translate", native, "--beam", 4, "--scores", "--max-length", 24, "--quiet", stdin=text):
        complain("the converted directory's sentences differ")
    config = json.loads((folder / "converted" / "config.json").read_text())
    search = json.loads((folder / "converted" / "generation_config.json").read_text())
    pad = config["vocab_size"] - 1
    if config["architectures"] != ["MarianMTModel"] or config["pad_token_id"] != pad or "bad_words_ids" in config:
        complain(f"converted config.json: {config}")
    if search["bad_words_ids"] != [[pad]] or search["renormalize_logits"] is not True or search["pad_token_id"] != pad:
        complain(f"converted generation_config.json: {search}")
    for name, words in {"eval": ("eval", native, "--data", folder / "few.tsv", "--part", "all"), "info": ("info", native),
                        "show": ("show", native, lines[0][0], "-o", folder / "map.svg")}.items():
        if not well(*words) and name != "show":
            complain(f"attn {name} says nothing of an archive")
    well("train", "translate", "--data", folder / "few.tsv", "--out", folder / "tuned", "--from", native, "--epochs", 1, "--rate",
         0.001, "--warmup", 1, "--quiet")
    if not (folder / "tuned" / "vocab.json").exists() or not well("translate", folder / "tuned", lines[0][0]):
        complain("a fine-tuned archive is no MarianMT directory")


def vocabulary_of(folder, name="vocab.json"):
    return json.loads((folder / name).read_text(encoding="utf-8"))


def vocabularies(folder, native, tokens):
    """Each form of a vocabulary gives the same, whatever is in it."""
    wanted = {piece: i for i, piece in enumerate([*tokens, "<pad>"])}
    if vocabulary_of(folder / "converted") != wanted:
        complain("the pieces of the YAML vocabulary are others")
    plain = folder / "plain"
    shutil.copytree(native, plain)
    (plain / "opus.vocab.txt").write_bytes("".join(piece + "\n" for piece in tokens).encode())
    (plain / "decoder.yml").write_text(DECODER.replace("opus.vocab.yml", "opus.vocab.txt"))
    well("convert", plain, "-o", folder / "from-plain")
    if vocabulary_of(folder / "from-plain") != wanted:
        complain("the pieces of the plain vocabulary are others")
    for new, *patterns in (("</s>\n<unk>\n\n", "id 2", "empty"), ("\n".join([*tokens[:-1], tokens[5]]) + "\n", f"id {len(tokens) - 1}"), ("<unk>\n</s>\n", "ids 0 and 1"),
                           ("</s>\n<unk>\na\n", "3 pieces, so ")):
        (plain / "opus.vocab.txt").write_text(new, encoding="utf-8")
        refused(new[-20:], plain, "opus.vocab.txt", *patterns)


def counted(text):
    """Tokens of each translation as JSON has it, its end among them."""
    return [len(json.loads(line)["tokens"].split(" ")) + 1 for line in text.splitlines()]


def settings(folder, native, lines):
    """The search settings of decoder.yml."""
    text = "\n".join(pair[0] for pair in lines[:30]) + "\n"

    def with_settings(more, *options, stdin=text):
        (native / "decoder.yml").write_text(DECODER + more)
        done = run("translate", native, *options, stdin=stdin)
        if done.returncode:
            complain(f"{more!r}: {done.stderr[:300]}")
        return done.stdout, done.stderr

    own, said = with_settings("")
    if own != with_settings("", "--beam", 3)[0] or own == with_settings("", "--beam", 1)[0] or "keeps 3 hypotheses" not in said:
        complain(f"beam-size is not the default, or not said: {said[:200]!r}")
    if "hypotheses" in with_settings("", "--beam", 3)[1] or with_settings("", "--quiet")[1]:
        complain("a note of the beam where it was asked for, or with --quiet")
    whole, half = (counted(with_settings(more, "--json", "--beam", 1)[0]) for more in ("max-length-factor: 40\n", "max-length-factor: 0.5\n"))
    pieces = with_settings("", "--json", "--beam", 1)[0].splitlines()
    limits = [math.ceil(0.5 * (json.loads(line)["words"] + 1)) for line in pieces]
    if not all(a <= limit for a, limit in zip(half, limits)) or max(whole) <= max(limits) or min(map(int.__sub__, limits, half)) != 0:
        complain(f"max-length-factor: {whole}, {half}, at most {limits}")
    word = with_settings("", "--tokens", "--beam", 1, "--quiet")[0].split()[0]
    forced, said = with_settings("force-decode: true\n", "--tokens", stdin=f"{lines[0][0]}\t{lines[5][1]}\n")
    asked, _ = with_settings("", "--tokens", "--prefix", stdin=f"{lines[0][0]}\t{lines[5][1]}\n")
    if forced != asked or "force-decode" not in said or forced == with_settings("", "--tokens", stdin=f"{lines[0][0]}\n")[0]:
        complain(f"force-decode: {forced!r}, not {asked!r}: {said!r}")
    (native / "lex.s2t").write_text(f"{word} {word} 0.5\n", encoding="utf-8")
    limited, said = with_settings("shortlist:\n  - lex.s2t\n  - 60\n  - 5\n  - 0\n")
    asked, _ = with_settings("", "--shortlist", native / "lex.s2t", "--shortlist-first", 60, "--shortlist-best", 5)
    if limited != asked or limited == own or "lex.s2t" not in said:
        complain(f"shortlist: {said!r}")
    if with_settings("shortlist: [lex.s2t, 60, 5, 0]\n", "--shortlist", "off")[0] != own:
        complain("--shortlist off")
    with_settings("shortlist: [lex.s2t, 60, 5, 0]\n")
    drawn = run("show", native, lines[0][0], "-o", native / "shown.svg", "-q")
    if drawn.stdout.split("\n")[0] != limited.split("\n")[0]:
        complain(f"show draws {drawn.stdout!r}, translate says {limited!r}: {drawn.stderr[:300]}")
    if with_settings("max-length-crop: false\nmaxi-batch-sort: src\nshortlist: []\n")[0] != own:
        complain("settings that change no translation changed one")
    for more in ("max-length: 50", "no-spm-decode: true", "best-deep: true", "beam-sise: 3"):
        (native / "decoder.yml").write_text(DECODER + more + "\n")
        done = run("translate", native, stdin=text)
        if done.returncode == 0 or f'"{more.split(":")[0]}"' not in done.stderr:
            complain(f"{more!r} is passed over: {done.stderr[:200]!r}")
    (native / "decoder.yml").write_text(DECODER)


def constant(native, tensors, lines):
    """Marian's softmax has no <pad>: what is added to all biases changes no probability."""
    text = "\n".join(pair[0] for pair in lines[:40]) + "\n"
    own = well("translate", native, "--beam", 4, "--scores", "--quiet", stdin=text).splitlines()
    shape, bias = tensors["decoder_ff_logit_out_b"]
    write_npz(native / "opus.npz", {**tensors, "decoder_ff_logit_out_b": (shape, [x - 12 for x in bias])},
              MODEL.format(n=shape[1], **globals()))
    moved = well("translate", native, "--beam", 4, "--scores", "--quiet", stdin=text).splitlines()
    write_npz(native / "opus.npz", tensors, MODEL.format(n=shape[1], **globals()))
    for a, b in zip(own, moved):
        (a, x), (b, y) = a.rsplit("\t", 1), b.rsplit("\t", 1)
        if a != b or abs(float(x) - float(y)) > 1e-4:
            complain(f"a constant in the biases changes {a!r} {x} to {b!r} {y}")
            break


def two_vocabularies(folder, tokens, tensors):
    """An archive whose sides have vocabularies of unlike size; returns it."""
    two, n = folder / "two", [len(tokens), len(tokens) - 40]
    shutil.copytree(folder / "native", two)
    (two / "decoder.yml").write_text(DECODER.replace("  - opus.vocab.yml\nbeam", "  - target.vocab.yml\nbeam"))
    (two / "target.vocab.yml").write_text("".join(f"{quoted(piece)}: {i}\n" for i, piece in enumerate(tokens[:n[1]])), encoding="utf-8")
    found = {**tensors, "encoder_Wemb": tensors["Wemb"], "decoder_Wemb": ((n[1], D), weights(n[1], 8)["Wemb"][1]),
             "decoder_ff_logit_out_b": ((1, n[1]), tensors["decoder_ff_logit_out_b"][1][:n[1]])}
    del found["Wemb"]
    model = MODEL.format(n=n[0], **globals()).replace(f"  - {n[0]}\nenc", f"  - {n[1]}\nenc")
    write_npz(two / "opus.npz", found, model.replace("tied-embeddings-all: true", "tied-embeddings: true"))
    return two


def compare_two(folder, tokens, tensors, lines):
    text = "\n".join(pair[0] for pair in lines[:30]) + "\n"
    two = two_vocabularies(folder, tokens, tensors)
    wanted = well("translate", two, "--scores", "--quiet", stdin=text)
    if len(set(wanted.splitlines())) < 20:
        complain("two vocabularies: the sentences are alike")
    well("convert", two, "-o", folder / "two-converted")
    if well("translate", folder / "two-converted", "--scores", "--quiet", stdin=text) != wanted:
        complain("two vocabularies: the converted directory's sentences differ")
    well("train", "translate", "--data", folder / "few.tsv", "--out", folder / "two-tuned", "--from", two, "--epochs", 1, "--rate",
         0.001, "--warmup", 1, "--quiet")
    for made in ("two-converted", "two-tuned"):
        config = json.loads((folder / made / "config.json").read_text())
        sides = vocabulary_of(folder / made), vocabulary_of(folder / made, "target_vocab.json")
        pads = config["pad_token_id"], config["decoder_start_token_id"], sides[0]["<pad>"], sides[1]["<pad>"]
        if set(pads) != {len(tokens) - 40} or [config["vocab_size"], config["decoder_vocab_size"]] != [len(side) for side in sides]:
            complain(f"{made}: <pad> is {pads}")


# ---------------------------------------------------------------------------------------------------- refusals

def refused(what, native, *patterns):
    done = run("translate", native, "x")
    lines = done.stderr.splitlines()
    if done.returncode not in (1, 2) or len(lines) != 1 or not all(pattern in done.stderr for pattern in patterns):
        complain(f"{what}: {done.returncode}, {done.stderr[:400]!r}, where {patterns} were expected")


def refusals(native, tensors, n):
    model, decoder = MODEL.format(n=n, **globals()), DECODER

    def with_model(settings):
        write_npz(native / "opus.npz", tensors, settings)

    for old, new, *patterns in (
            ("type: transformer", "type: s2s", '"type"', "transformer"),
            ("type: transformer\n", "", '"type" is missing'),
            ('preprocess: ""', 'preprocess: "n"', "transformer-preprocess"),
            ("autoreg: self-attention", "autoreg: rnn", "transformer-decoder-autoreg"),
            ("right-left: false", "right-left: true", "right-left"),
            ("dim-emb: 16", "dim-emb: x", "dim-emb"),
            ("dim-emb: 16", "dim-emb: 18", "opus.npz"),
            (f"  - {n}\n  - {n}", f"  - {n}", "dim-vocabs"),
            (f"  - {n}\n  - {n}", f"  - {n}\n  - {n + 1}", "tied-embeddings-all"),
            (f"  - {n}\n  - {n}", f"  - {n + 1}\n  - {n + 1}", "pieces"),
            ("activation: swish", "activation: mish", "transformer-ffn-activation"),
            ("version: v1", "x: *a\nversion: v1", "alias"),
            ("version: v1", "x: &a [*a]\nversion: v1", "alias"),
            ("version: v1", "<<: *a\nversion: v1", "merge key"),
            ("version: v1", "type: transformer\nversion: v1", "given twice"),
            ("version: v1", "x: [[[[[[[[[[1]]]]]]]]]]\nversion: v1", "too deep"),
            ("version: v1", "x: !!python/object y\nversion: v1", "tag"),
            ("version: v1", "---\nversion: v1", "second document"),
            ("version: v1", "\t\"version: v1", "special:model.yml")):
        if old not in model:
            complain(f"{old!r} is not in the settings")
        with_model(model.replace(old, new))
        refused(new, native, *patterns)
    with zipfile.ZipFile(native / "opus.npz", "w") as file:
        file.writestr("Wemb.npy", npy("<f4", [1], b"\0\0\0\0"))
    refused("no settings", native, "special:model.yml")
    with_model(model)
    vocabulary = (native / "opus.vocab.yml").read_text(encoding="utf-8")
    for old, new, *patterns in (("word-penalty: 0", "word-penalty: 0.5", "word-penalty"),
                                ("normalize: 1", "normalize: much", "normalize"),
                                ("  - opus.npz", "  - opus.npz\n  - two.npz", "several models"),
                                ("models:\n  - opus.npz", "models: []", '"models"'),
                                ("normalize: 1", "max-length-factor: 0", "max-length-factor"),
                                ("normalize: 1", "shortlist: [lex.s2t, 0]", "shortlist"),
                                ("  - opus.npz", "  - /etc/../x/none.npz", "native/none.npz"),
                                ("relative-paths", "a: &x 1\nrelative-paths", '"a"')):
        (native / "decoder.yml").write_text(decoder.replace(old, new))
        refused(new, native, *patterns)
    (native / "decoder.yml").write_text(decoder)
    for new, *patterns in (("[]\n", "expected a mapping"), ("", "expected a mapping"), ('"</s>": 0\n"<unk>": 0\n', "same id"),
                           ('"</s>": 1\n"<unk>": 0\n', "ids 0 and 1"), ('"</s>": zero\n', "an integer"),
                           (vocabulary.replace(f": {n - 1}\n", f": {n + 7}\n"), "an integer from 0"), ("a\0b: 1\n", "opus.vocab.yml")):
        (native / "opus.vocab.yml").write_text(new, encoding="utf-8")
        refused(new[:20], native, *patterns)
    (native / "opus.vocab.yml").write_text(vocabulary, encoding="utf-8")
    os.remove(native / "source.spm")
    refused("no source.spm", native, "source.spm")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        lines, tokens = pieces_of(folder)
        (folder / "few.tsv").write_text("\n".join("\t".join(pair) for pair in lines[:40]) + "\n", encoding="utf-8")
        tensors = weights(len(tokens), 9)
        hf, native = write_forms(folder, tokens, tensors)
        done = run("translate", native, "x")
        if "without libyaml" in done.stderr or "without SentencePiece" in done.stderr:
            print("not tried:", done.stderr)
            sys.exit(77)
        compare(folder, hf, native, lines)
        vocabularies(folder, native, tokens)
        settings(folder, native, lines)
        constant(native, tensors, lines)
        compare_two(folder, tokens, tensors, lines)
        refusals(native, tensors, len(tokens))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
