# SPDX-License-Identifier: MIT
"""shown_weights.py ATTN DIR BEAM SENTENCE...: the weights in the page of `attn show` are those of the translation.

The model is computed here once more, a token at a time as a translation is, in double precision: the Transformer and the
recurrent model of Dive into Deep Learning, with its choices (9 tokens, every target token at position 0) if the model was trained
with --compat d2l.  Each step's weights are compared with the page, and with the word alignments of `attn translate`."""
import base64
import json
import math
import re
import struct
import subprocess
import sys
import zlib


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def tensors(path):
    with open(path, "rb") as file:
        head = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    found = {}
    for name, about in head.items():
        if name != "__metadata__":
            begin, end = about["data_offsets"]
            flat = struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
            columns = about["shape"][-1]
            found[name] = [flat[i:i + columns] for i in range(0, len(flat), columns)] if len(about["shape"]) > 1 else flat
    return found


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def add(a, b):
    return [x + y for x, y in zip(a, b)]


def softmax(scores):
    most = max(scores)
    powers = [math.exp(s - most) for s in scores]
    return [p / sum(powers) for p in powers]


def mix(weights, rows):
    return [dot(weights, column) for column in zip(*rows)]


class Model:
    def __init__(self, directory):
        self.t = tensors(directory + "/model.safetensors")
        with open(directory + "/config.json", encoding="utf-8") as file:
            self.config = json.load(file)
        self.book = self.config["compat"] == "d2l"

    def linear(self, name, x):
        y = [dot(row, x) for row in self.t[name + ".weight"]]
        return add(y, self.t[name + ".bias"]) if name + ".bias" in self.t else y


class Transformer(Model):
    def embed(self, side, token, position):
        width = self.config["num_hiddens"]
        x = [v * math.sqrt(width) for v in self.t[side + ".embedding.weight"][token]]
        angle = [position / 10000 ** (i // 2 * 2 / width) for i in range(width)]
        return add(x, [math.cos(a) if i % 2 else math.sin(a) for i, a in enumerate(angle)])

    def attend(self, name, query, keys):
        """The output for one query, and a list of weights for each head."""
        q, n = self.linear(name + ".W_q", query), self.config["num_heads"]
        k, v = [self.linear(name + ".W_k", x) for x in keys], [self.linear(name + ".W_v", x) for x in keys]
        size, out, maps = len(q) // n, [], []
        for part in (slice(h * size, (h + 1) * size) for h in range(n)):
            maps.append(softmax([dot(q[part], x[part]) / math.sqrt(size) for x in k]))
            out += mix(maps[-1], [x[part] for x in v])
        return self.linear(name + ".W_o", out), maps

    def norm(self, name, x):
        mean = sum(x) / len(x)
        root = math.sqrt(sum((v - mean) ** 2 for v in x) / len(x) + 1e-5)
        return [(v - mean) / root * g + b for v, g, b in zip(x, self.t[name + ".ln.weight"], self.t[name + ".ln.bias"])]

    def feed(self, name, x):
        return self.linear(name + ".dense2", [max(0, v) for v in self.linear(name + ".dense1", x)])

    def encode(self, tokens, length):
        x, self.maps = [self.embed("encoder", token, i) for i, token in enumerate(tokens)], {}
        for layer in range(self.config["num_blks"]):
            name = f"encoder.blks.block{layer}"
            seen = [self.attend(name + ".attention", row, x[:length]) for row in x]
            self.maps["encoder", layer] = [maps for _, maps in seen]
            x = [self.norm(name + ".addnorm1", add(row, y)) for row, (y, _) in zip(x, seen)]
            x = [self.norm(name + ".addnorm2", add(row, self.feed(name + ".ffn", row))) for row in x]
        self.source, self.step_ = x[:length], 0
        self.past = [[] for _ in range(self.config["num_blks"])]

    def step(self, token):
        x = self.embed("decoder", token, 0 if self.book else self.step_)
        self.step_ += 1
        for layer, past in enumerate(self.past):
            name = f"decoder.blks.block{layer}"
            past.append(x)
            y, own = self.attend(name + ".attention1", x, past)
            x = self.norm(name + ".addnorm1", add(x, y))
            y, cross = self.attend(name + ".attention2", x, self.source)
            x = self.norm(name + ".addnorm2", add(x, y))
            x = self.norm(name + ".addnorm3", add(x, self.feed(name + ".ffn", x)))
            self.maps.setdefault(("decoder", layer), []).append(own)
            self.maps.setdefault(("cross", layer), []).append(cross)
        return self.linear("decoder.dense", x)


class Recurrent(Model):
    def gru(self, side, x, hidden):
        for layer, h in enumerate(hidden):
            n = len(h)
            a, b = ([dot(row, v) + bias for row, bias in zip(self.t[f"{side}.rnn.weight_{kind}_l{layer}"],
                                                             self.t[f"{side}.rnn.bias_{kind}_l{layer}"])]
                    for kind, v in (("ih", x), ("hh", h)))
            r, z = ([1 / (1 + math.exp(-v)) for v in add(a[i * n:i * n + n], b[i * n:i * n + n])] for i in (0, 1))
            new = [math.tanh(u + g * v) for u, g, v in zip(a[2 * n:], r, b[2 * n:])]
            x = hidden[layer] = [(1 - g) * v + g * old for g, v, old in zip(z, new, h)]
        return x

    def encode(self, tokens, length):
        self.hidden = [[0.0] * self.config["num_hiddens"] for _ in range(self.config["num_layers"])]
        states = [self.gru("encoder", self.t["encoder.embedding.weight"][token], self.hidden) for token in tokens]
        self.source, self.maps = states[:length], {("cross", 0): []}
        self.keys = [self.linear("decoder.attention.W_k", state) for state in self.source]

    def step(self, token):
        query = self.linear("decoder.attention.W_q", self.hidden[-1])
        weights = softmax([dot(self.t["decoder.attention.w_v.weight"][0], map(math.tanh, add(query, k))) for k in self.keys])
        self.maps["cross", 0].append([weights])
        x = mix(weights, self.source) + list(self.t["decoder.embedding.weight"][token])
        return self.linear("decoder.dense", self.gru("decoder", x, self.hidden))


def page(path):
    """{(name, layer, head): rows of weights}, in parts of 1."""
    with open(path, encoding="utf-8") as file:
        parts = dict(re.findall(r'<script type="[^"]*" id="([^"]*)">(.*?)</script>', file.read(), re.S))
    found = {}
    for number, m in enumerate(json.loads(parts["attn-page"])["maps"]):
        for layer in range(m["layers"]):
            data = zlib.decompress(base64.b64decode(parts[f"w{number}-{layer}"]))
            for head in range(m["heads"]):
                first, peak = head * m["rows"] * m["cols"], m["peaks"][layer][head]
                found[m["name"], layer, head] = [[data[first + q * m["cols"] + k] / 255 * peak for k in range(m["cols"])]
                                                 for q in range(m["rows"])]
    return found


NAMES = {"encoder": "Encoder self-attention", "decoder": "Decoder self-attention", "cross": "Encoder-decoder attention"}


def words(directory, side):
    with open(f"{directory}/{side}.vocab", encoding="utf-8") as file:
        return {word: i for i, word in enumerate(file.read().split("\n")[:-1])}


def compare(attn, directory, beam, sentence, most_off=0.003):
    model = (Recurrent if "embed_size" in json.load(open(directory + "/config.json", encoding="utf-8")) else Transformer)(directory)
    source, target = words(directory, "source"), words(directory, "target")
    ids = [source.get(word, source["<unk>"]) for word in sentence.split()] + [source["<eos>"]]
    if model.book:
        ids = ids[:9]
    length = len(ids)
    model.encode(ids + [source["<pad>"]] * (9 - length) * model.book, length)
    said, aligned = run(attn, "translate", directory, sentence, "--tokens", "--alignments", "--beam", beam, "-q")[:-1].split("\t")
    most = model.config["max_tokens"] if model.book else max(model.config["max_tokens"], 3 * length)
    outputs = [target[word] for word in said.split()] + [target["<eos>"]] * (len(said.split()) < most)
    for before, token in zip([target["<bos>"], *outputs], outputs):
        logits = model.step(before)
        if beam == "1":
            logits[target["<pad>"]] = logits[target["<bos>"]] = -math.inf
            assert logits[token] > max(logits) - 1e-3, (directory, sentence, said, token)
    run(attn, "show", directory, sentence, "-o", "shown.html", "--beam", beam, "-q")
    shown, compared = page("shown.html"), 0
    for (kind, layer), maps in model.maps.items():
        for head in range(len(maps[0])):
            rows = shown[NAMES[kind], layer, head]
            wanted = [row[head] for row in maps[:len(rows)]]
            assert kind == "encoder" or len(rows) == len(maps), (directory, sentence, len(rows), len(maps))
            for q, row in enumerate(wanted):
                off = max(abs(a - b) for a, b in zip(row + [0] * (len(rows[q]) - len(row)), rows[q]))
                assert off < most_off, (directory, sentence, kind, layer, head, q, row, rows[q])
                compared += 1
    assert len(shown) == sum(len(maps[0]) for maps in model.maps.values()) and compared
    last = model.maps["cross", max(layer for kind, layer in model.maps if kind == "cross")]
    pairs = []
    for j, heads in enumerate(last[:len(said.split())]):
        sums = [sum(weights) for weights in zip(*heads)][:length - (ids[-1] == source["<eos>"])]
        pairs.append(f"{sums.index(max(sums))}-{j}")
    assert aligned.split() == pairs, (directory, sentence, aligned, pairs)


for text in sys.argv[4:]:
    compare(*sys.argv[1:4], text)
