# SPDX-License-Identifier: MIT
"""Contacts of a small MSA Transformer, fitted and judged on different proteins, and mutual information.

    msa_contacts.py --model DIR --data FOLDER [--attn PROGRAM] [--depth N] [--select HOW] [--strength C]

FOLDER holds alignments/ and pdb/.  Each protein in turn is left out: the contact regression is fitted to the structures
of the others, and the share of true contacts among the best L, L/2 and L/5 pairs of the one left out is printed, L being
its residues with known places.  For comparison, of the same alignment, all sequences of it: mutual information of two
columns, sequences weighted at 80 % identity, with the average product correction (Dunn, Wahl and Gloor 2008,
doi:10.1093/bioinformatics/btm604); and what guessing gives.
"""
import argparse
import gzip
import os
import re
import subprocess
import tempfile

import numpy as np

PAIRS = {"1a3aA": ("colors_1a3aA.a3m", "1a3aA.pdb"), "1atzA": ("ccmgen_1atzA.a3m", "1atzA.pdb"),
         "toxd": ("conkit_toxd.a3m.gz", "toxd.pdb"), "T0866": ("dncon2_T0866.a3m", "T0866-D1.pdb")}
RANGES = {"short": (6, 12), "medium": (12, 24), "long": (24, 10 ** 6)}


def read_alignment(path):
    text = (gzip.open if path.endswith(".gz") else open)(path, "rt").read()
    rows = [re.sub("[a-z.*\\s]", "", record.split("\n", 1)[1]) for record in text.split(">")[1:]]
    letters = np.frombuffer("".join(rows).encode(), np.uint8).reshape(len(rows), -1)
    table = np.full(256, 20, np.uint8)
    for i, letter in enumerate("ACDEFGHIKLMNPQRSTVWY"):
        table[ord(letter)] = i
    return table[letters]


def weights_of(cells):
    return np.array([1.0 / ((cells == row).mean(1) >= 0.8).sum() for row in cells])


def mutual_information(cells, pseudo=0.5):
    """[L,L], from weighted counts with a pseudocount, gaps as a 21st letter, corrected."""
    weights, (_, length) = weights_of(cells), cells.shape
    onehot = (cells[:, :, None] == np.arange(21)).astype(np.float32).reshape(len(cells), -1)
    pair = (onehot * weights[:, None].astype(np.float32)).T @ onehot
    pair = (pair.reshape(length, 21, length, 21) + pseudo / 21) / (weights.sum() + pseudo * 21)
    single = pair[:, :, 0, :].sum(2)
    expected = single[:, :, None, None] * single[None, None]
    mi = (pair * np.log(pair / expected)).sum((1, 3))
    np.fill_diagonal(mi, 0)
    mean = mi.sum(0) / (length - 1)
    return mi - mean[:, None] * mean / (mi.sum() / length / (length - 1))


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def read_table(path):
    with open(path) as lines:
        rows = [line.rstrip("\n").split("\t") for line in list(lines)[1:]]
    return [(int(r[0]) - 1, int(r[1]) - 1, float(r[6]), int(r[8])) for r in rows if r[8]]


def precision(pairs, score, residues):
    out = {}
    for name, (least, most) in RANGES.items():
        chosen = [(score(p), p[3]) for p in pairs if least <= p[1] - p[0] < most]
        hits = [hit for _, hit in sorted(chosen, key=lambda x: -x[0])]
        out[name] = [np.mean(hits[:max(residues // part, 1)]) for part in (1, 2, 5)] + [np.mean(hits)]
    return out


def show(name, method, found):
    print(f"{name:7} {method:12}", "   ".join(f"{kind} " + " ".join(f"{v:.2f}" for v in values[:3])
                                              for kind, values in found.items()), flush=True)


def judge(name, options, folder, means):
    def at(i):
        alignment, structure = PAIRS[i]
        return os.path.join(options.data, "alignments", alignment), os.path.join(options.data, "pdb", structure)
    fitted, how = os.path.join(folder, "fitted-" + name), ["--depth", str(options.depth), "--select", options.select, "--quiet"]
    run(options.attn, "train", "contacts", *("=".join(at(i)) for i in PAIRS if i != name), "--model", options.model,
        "--out", fitted, "--strength", str(options.strength), *how)
    alignment, structure = at(name)
    run(options.attn, "contacts", alignment, "--model", fitted, "--structure", structure, "--least", "0", "-o", folder, *how)
    stem = os.path.basename(alignment).removesuffix(".gz").removesuffix(".a3m")
    pairs = read_table(os.path.join(folder, stem + ".contacts.tsv"))
    residues = len({p[0] for p in pairs} | {p[1] for p in pairs})
    mi = mutual_information(read_alignment(alignment))
    for method, score in ("model", lambda p: p[2]), ("MI with APC", lambda p: mi[p[0], p[1]]):
        found = precision(pairs, score, residues)
        show(name, method, found)
        means.setdefault(method, []).append([found["long"][i] for i in range(3)])
    show(name, "guessing", {kind: [values[3]] * 3 for kind, values in found.items()})


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--attn", default=os.path.join(here, "..", "..", "build", "attn"))
    parser.add_argument("--depth", type=int, default=128)
    parser.add_argument("--select", default="diverse")
    parser.add_argument("--strength", type=float, default=0.15)
    options = parser.parse_args()
    print("precision at L, L/2, L/5; L: residues with known places")
    means = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in PAIRS:
            judge(name, options, folder, means)
    for method, values in means.items():
        print(f"mean    {method:12} long", " ".join(f"{v:.2f}" for v in np.mean(values, 0)))


if __name__ == "__main__":
    main()
