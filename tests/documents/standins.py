# SPDX-License-Identifier: MIT
"""Small stand-ins for the data that the documents speak of, under the names that they have there."""
import argparse
import collections
import gzip
import io
import json
import os
import pickle
import random
import struct
import sys
import types
import zipfile
import zlib

LETTERS = "ACDEFGHIKLMNPQRSTVWY"
NAMES = "ALA CYS ASP GLU PHE GLY HIS ILE LYS LEU MET ASN PRO GLN ARG SER THR VAL TRP TYR".split()


def write(directory, name, data):
    path = os.path.join(directory, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())


def sentences(directory, root):
    """fra.txt.gz, as Tatoeba's files are: the first lines of the phrasebook.  `lines`: sentences to translate."""
    with open(os.path.join(root, "data/phrasebook.tsv"), encoding="utf-8") as file:
        pairs = file.read().split("\n")[:800]
    write(directory, "fra.txt.gz", gzip.compress("\n".join(pairs + [""]).encode()))
    write(directory, "lines", "\n".join(line.split("\t")[0] for line in pairs[:5]) + "\n")


def png(size, channels):
    """A picture of size x size: 1 channel is grey, 3 are colours."""
    rows = b"".join(b"\0" + bytes(7 * x * y % 256 for x in range(size) for _ in range(channels)) for y in range(size))
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 2 if channels == 3 else 0, 0, 0, 0)),
              (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks)


def images(directory, random_numbers):
    """fashion_mnist/ as IDX files of 28 x 28 in ten classes, mnist/ with the test pair alone, emoji/ as folders of PNG
    in colour; shirt.png and half.png."""
    def picture(label):
        return bytes(min(255, 20 * (y * label % 12) + 5 * x + random_numbers.randrange(30))
                     for y in range(28) for x in range(28))

    for folder, part, n in (("fashion_mnist", "train", 150), ("fashion_mnist", "t10k", 40), ("mnist", "t10k", 150)):
        labels = bytes(i % 10 for i in range(n))
        pixels = b"".join(picture(label) for label in labels)
        write(directory, f"{folder}/{part}-images-idx3-ubyte.gz",
              gzip.compress(struct.pack(">IIII", 0x803, n, 28, 28) + pixels))
        write(directory, f"{folder}/{part}-labels-idx1-ubyte.gz", gzip.compress(struct.pack(">II", 0x801, n) + labels))
    for part, n in (("train", 40), ("test", 8)):
        for i in range(n):
            write(directory, f"emoji/{part}/{i}.png", png(32, 3))
    for name, size in (("shirt.png", 28), ("half.png", 14)):
        write(directory, name, png(size, 1))


class Tensor:
    """Pickled as PyTorch pickles a tensor of f32: a call of torch._utils._rebuild_tensor_v2 on a storage."""

    def __init__(self, shape, values):
        self.shape, self.values = shape, values

    def __reduce_ex__(self, protocol):
        strides, n = [], 1
        for length in reversed(self.shape):
            strides.insert(0, n)
            n *= length
        return (sys.modules["torch._utils"]._rebuild_tensor_v2,
                (Storage(self.values), 0, self.shape, tuple(strides), False, collections.OrderedDict()))


class Storage:
    def __init__(self, values):
        self.values = values


def torch_file(path, content):
    """A file as torch.save writes it, without PyTorch: a zip with a pickle and the storages' bytes."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    torch.FloatStorage = type("FloatStorage", (), {"__module__": "torch"})

    def _rebuild_tensor_v2():
        pass

    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2
    kept = {name: sys.modules.get(name) for name in ("torch", "torch._utils")}
    sys.modules.update({"torch": torch, "torch._utils": utils})
    storages, stream = [], io.BytesIO()

    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            if not isinstance(value, Storage):
                return None
            storages.append(struct.pack(f"<{len(value.values)}f", *value.values))
            return "storage", torch.FloatStorage, str(len(storages) - 1), "cpu", len(value.values)

    Pickler(stream, protocol=2).dump(content)
    for name, module in kept.items():
        if module is None:
            del sys.modules[name]
        else:
            sys.modules[name] = module
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", stream.getvalue())
        for i, data in enumerate(storages):
            archive.writestr(f"archive/data/{i}", data)
        archive.writestr("archive/version", "3\n")


def checkpoint(directory, random_numbers, layers=12, width=8, heads=2, positions=128):
    """ESM-MSA-1b's two files with its number of layers, 8 channels instead of 768, and random numbers."""
    def tensor(*shape):
        n = 1
        for length in shape:
            n *= length
        return Tensor(shape, [random_numbers.gauss(0, 0.4) for _ in range(n)])

    state, encoder = collections.OrderedDict(), "encoder.sentence_encoder."

    def linear(name, outputs, inputs):
        state[name + ".weight"], state[name + ".bias"] = tensor(outputs, inputs), tensor(outputs)

    def norm(name):
        state[name + ".weight"], state[name + ".bias"] = Tensor((width,), [1.0] * width), tensor(width)

    state[encoder + "embed_tokens.weight"] = tokens = tensor(33, width)
    state[encoder + "embed_positions.weight"] = tensor(positions + 2, width)
    state[encoder + "msa_position_embedding"] = tensor(1, 1024, 1, width)
    for i in range(layers):
        layer = f"{encoder}layers.{i}."
        for kind in ("row", "column"):
            for name in ("k", "v", "q", "out"):
                linear(f"{layer}{kind}_self_attention.layer.{name}_proj", width, width)
            norm(f"{layer}{kind}_self_attention.layer_norm")
        linear(layer + "feed_forward_layer.layer.fc1", 2 * width, width)
        linear(layer + "feed_forward_layer.layer.fc2", width, 2 * width)
        norm(layer + "feed_forward_layer.layer_norm")
    for name in ("emb_layer_norm_before", "emb_layer_norm_after"):
        norm(encoder + name)
    state["encoder.lm_head.weight"], state["encoder.lm_head.bias"] = tokens, tensor(33)
    linear("encoder.lm_head.dense", width, width)
    norm("encoder.lm_head.layer_norm")
    args = argparse.Namespace(arch="msa_transformer", encoder_layers=layers, encoder_embed_dim=width,
                              ffn_embed_dim=2 * width, attention_heads=heads, dropout=0.1, attention_dropout=0.1,
                              activation_dropout=0.1, max_tokens=16384, max_positions=positions,
                              embed_positions_msa=True)
    path = os.path.join(directory, "esm_msa1b_t12_100M_UR50S")
    torch_file(path + ".pt", {"args": args, "model": state})
    torch_file(path + "-contact-regression.pt", {"model": collections.OrderedDict([
        ("contact_head.regression.weight", tensor(1, layers * heads)),
        ("contact_head.regression.bias", tensor(1))])})


def family(random_numbers, name):
    """Eight sequences of 60; the first has A at 42 and L at 50, which the documents mutate."""
    query = [random_numbers.choice(LETTERS) for _ in range(60)]
    query[41], query[49] = "A", "L"
    rows = [query] + [[random_numbers.choice(LETTERS) if random_numbers.random() < 0.2 else c for c in query]
                      for _ in range(7)]
    return "".join(query), "".join(f">{name}{i}\n{''.join(row)}\n" for i, row in enumerate(rows))


def atoms(query):
    """A hairpin: residue i touches 59 - i."""
    for c, letter in enumerate(query):
        x, y = (3.8 * c, 0) if c < 30 else (3.8 * (59 - c), 5)
        yield c + 1, NAMES[LETTERS.index(letter)], x, y


def proteins(directory, random_numbers):
    """Families in alignments/ and next to it, structures for some, and a checkpoint in ESM's format."""
    for name in ("family", "a", "b", "c", "mine", "query"):
        query, text = family(random_numbers, name)
        write(directory, f"{name}.a3m", text)
        write(directory, f"alignments/{name}.a3m", text)
        write(directory, f"{name}.pdb", "".join(
            f"ATOM  {n:5d}  CA  {r} A{n:4d}    {x:8.3f}{y:8.3f}{0:8.3f}  1.00  0.00\n" for n, r, x, y in atoms(query)))
        columns = ("group_PDB id type_symbol label_atom_id label_alt_id label_comp_id label_asym_id label_seq_id "
                   "pdbx_PDB_ins_code Cartn_x Cartn_y Cartn_z auth_seq_id auth_asym_id pdbx_PDB_model_num").split()
        write(directory, f"{name}.cif", "data_x\nloop_\n" + "".join(f"_atom_site.{c}\n" for c in columns) + "".join(
            f"ATOM {n} C CA . {r} A {n} ? {x:.3f} {y:.3f} 0.000 {n} A 1\n" for n, r, x, y in atoms(query)) + "#\n")
    write(directory, "mutants.csv", "mutant,DMS_score\nA42G,0.5\nA42G:L50P,-1.5\n")
    checkpoint(directory, random_numbers)


def sentence_encoder(directory, random_numbers, width=8, layers=2):
    """all-MiniLM-L6-v2/ as it is published, with 2 layers of 8 channels, a vocabulary of letters and random numbers;
    faq.txt."""
    def tensor(*shape):
        return Tensor(shape, [random_numbers.gauss(0, 0.4) for _ in range(shape[0] * (shape[1] if len(shape) > 1 else 1))])

    letters = [mark + c for mark in ("", "##") for c in "abcdefghijklmnopqrstuvwxyz"] + list(".,?!'0123456789")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + letters
    state = collections.OrderedDict()

    def part(name, *shape):
        state[name + ".weight"] = tensor(*shape)
        state[name + ".bias"] = tensor(shape[0])

    for name, rows in (("word", len(vocabulary)), ("position", 64), ("token_type", 2)):
        state[f"embeddings.{name}_embeddings.weight"] = tensor(rows, width)
    part("embeddings.LayerNorm", width)
    for i in range(layers):
        at = f"encoder.layer.{i}."
        for name in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            part(at + name, width, width)
        part(at + "attention.output.LayerNorm", width)
        part(at + "intermediate.dense", 2 * width, width)
        part(at + "output.dense", width, 2 * width)
        part(at + "output.LayerNorm", width)
    model = "all-MiniLM-L6-v2/"
    write(directory, model + "config.json", json.dumps({"model_type": "bert", "architectures": ["BertModel"],
                                                        "num_attention_heads": 2, "hidden_act": "gelu"}))
    torch_file(os.path.join(directory, model + "pytorch_model.bin"), state)
    write(directory, model + "vocab.txt", "\n".join(vocabulary) + "\n")
    write(directory, model + "tokenizer_config.json", json.dumps({"do_lower_case": True, "tokenizer_class": "BertTokenizer"}))
    write(directory, model + "modules.json", json.dumps(
        [{"idx": i, "name": str(i), "path": path, "type": "sentence_transformers.models." + kind}
         for i, (path, kind) in enumerate((("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")))]))
    write(directory, model + "1_Pooling/config.json", json.dumps({"pooling_mode_mean_tokens": True}))
    write(directory, "faq.txt", "How do I get my money back?\nWhen do you open?\nRefunds take ten days.\nWhere are you?\n")


def esm2(directory, random_numbers, layers=2, width=8, heads=2):
    """ESM-2's two files with 2 layers of 8 channels and random numbers; protein.fasta."""
    def tensor(*shape):
        return Tensor(shape, [random_numbers.gauss(0, 0.4) for _ in range(shape[0] * (shape[1] if len(shape) > 1 else 1))])

    state, encoder = collections.OrderedDict(), "encoder.sentence_encoder."

    def part(name, *shape):
        state[name + ".weight"], state[name + ".bias"] = tensor(*shape), tensor(shape[0])

    state[encoder + "embed_tokens.weight"] = tokens = tensor(33, width)
    for i in range(layers):
        at = f"{encoder}layers.{i}."
        for name in ("k", "v", "q", "out"):
            part(f"{at}self_attn.{name}_proj", width, width)
        part(at + "self_attn_layer_norm", width)
        part(at + "fc1", 2 * width, width)
        part(at + "fc2", width, 2 * width)
        part(at + "final_layer_norm", width)
    part(encoder + "emb_layer_norm_after", width)
    state["encoder.lm_head.weight"], state["encoder.lm_head.bias"] = tokens, tensor(33)
    part("encoder.lm_head.dense", width, width)
    part("encoder.lm_head.layer_norm", width)
    path = os.path.join(directory, "esm2_t6_8M_UR50D")
    settings = argparse.Namespace(encoder_layers=layers, encoder_embed_dim=width, encoder_attention_heads=heads,
                                  token_dropout=True)
    torch_file(path + ".pt", {"cfg": {"model": settings}, "model": state})
    torch_file(path + "-contact-regression.pt", {"model": collections.OrderedDict([
        ("contact_head.regression.weight", tensor(1, layers * heads)), ("contact_head.regression.bias", tensor(1))])})
    write(directory, "proteins.fasta", "".join(
        f">protein{i}\n{''.join(random_numbers.choice(LETTERS) for _ in range(40))}\n" for i in range(3)))
    write(directory, "protein.fasta", ">mine\n" + "".join("A" if i == 41 else random_numbers.choice(LETTERS) for i in range(60)) + "\n")


def lay(directory, root, build):
    random_numbers = random.Random(7)
    for name in ("include", "src", "examples", "scripts", "python", "tests", "bench", "data", "docs"):
        os.symlink(os.path.join(root, name), os.path.join(directory, name))
    os.symlink(build, os.path.join(directory, "build"))
    sentences(directory, root)
    images(directory, random_numbers)
    proteins(directory, random_numbers)
    sentence_encoder(directory, random_numbers)
    esm2(directory, random_numbers)
    shapes = {"to_q.weight": (64, 64), "to_kv.weight": (128, 64), "to_out.weight": (64, 64), "to_out.bias": (64,)}
    torch_file(os.path.join(directory, "model.pt"), collections.OrderedDict(
        (name, Tensor(shape, [0.1] * (shape[0] * shape[-1] if len(shape) > 1 else shape[0])))
        for name, shape in shapes.items()))
