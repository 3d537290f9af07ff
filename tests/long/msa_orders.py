# SPDX-License-Identifier: MIT
"""Four small MSA Transformers, tied or not, rows or columns first, trained alike: masked loss and contacts.

    msa_orders.py --data FOLDER [--attn PROGRAM] [--depth N] [--models DIR] [TRAINING OPTION...]

FOLDER holds alignments/ and pdb/, as for msa_contacts.py.  Each model is trained by `attn train msa` with the options
(kept in DIR, and not trained again where it is there).  Contacts: each protein in turn is left out; a logistic
regression from the row attention of all heads, of untied rows their mean, made symmetric and corrected (APC), is fitted
to the others, by the same function for all four models.
"""
import argparse
import os
import tempfile

import numpy as np

import attn
from msa_contacts import PAIRS, precision, read_table, run

LETTERS = "ACDEFGHIKLMNPQRSTVWY-"
TOKENS = [4 + "LAGVSERTIDPKQNFYMHWCXBUZO.-".index(letter) for letter in LETTERS]


def best(folder):
    """Loss and accuracy of the epoch whose validation loss is least."""
    with open(os.path.join(folder, "history.tsv"), encoding="utf-8") as lines:
        rows = [line.split("\t") for line in list(lines)[1:]]
    return min((float(row[2]), float(row[4])) for row in rows)


def truth(options, model, folder):
    """Pairs of each protein, (i, j, probability, contact), as attn contacts judges them by its structure."""
    def at(name):
        return [os.path.join(options.data, *parts) for parts in zip(("alignments", "pdb"), PAIRS[name])]
    fitted = os.path.join(folder, "fitted")
    run(options.attn, "train", "contacts", *("=".join(at(i)) for i in PAIRS), "--model", model, "--out", fitted,
        "--strength", "10", "--depth", "16", "--quiet")
    out = {}
    for name in PAIRS:
        alignment, structure = at(name)
        run(options.attn, "contacts", alignment, "--model", fitted, "--structure", structure, "--least", "0",
            "-o", folder, "--depth", "16", "--quiet")
        stem = os.path.basename(alignment).removesuffix(".gz").removesuffix(".a3m")
        out[name] = read_table(os.path.join(folder, stem + ".contacts.tsv"))
    return out


def features(model, cells, pairs):
    """[pairs, layers * heads]; rows evenly from the alignment, its query among them."""
    tokens = np.zeros((1, len(cells), cells.shape[1] + 1), np.int32)
    tokens[0, :, 1:] = np.array(TOKENS, np.int32)[cells]
    maps = np.asarray(model(tokens, outputs=("row_attentions",)), np.float64)[0]
    if maps.ndim == 5:
        maps = maps.mean(2)
    maps = maps.reshape(-1, *maps.shape[-2:])[:, 1:, 1:]
    maps = maps + maps.swapaxes(1, 2)
    line = maps.sum(2)
    maps -= line[:, :, None] * line[:, None] / line.sum(1)[:, None, None]
    return np.array([maps[:, i, j] for i, j, *_ in pairs])


def regression(x, y, ridge=1.0):
    """Weights behind standardized features, by Newton's method."""
    x = np.c_[x, np.ones(len(x))]
    w, penalty = np.zeros(x.shape[1]), np.r_[np.full(x.shape[1] - 1, ridge), 0]
    for _ in range(30):
        p = 1 / (1 + np.exp(-x @ w))
        w -= np.linalg.solve((x * (p * (1 - p))[:, None]).T @ x + np.diag(penalty), x.T @ (p - y) + penalty * w)
    return w[:-1]


def judge(model, alignments, pairs):
    """Long-range precision at L, L/2, L/5, the mean over the proteins left out."""
    x = {name: features(model, cells, pairs[name]) for name, cells in alignments.items()}
    x = {name: (v - v.mean(0)) / (v.std(0) + 1e-12) for name, v in x.items()}
    found = []
    for name in pairs:
        others = [i for i in pairs if i != name]
        w = regression(np.concatenate([x[i] for i in others]),
                       np.concatenate([[p[3] for p in pairs[i]] for i in others]))
        scored = [(p[0], p[1], s, p[3]) for p, s in zip(pairs[name], x[name] @ w)]
        residues = len({p[0] for p in scored} | {p[1] for p in scored})
        found.append(precision(scored, lambda p: p[2], residues)["long"])
    return np.mean(found, 0)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--attn", default=os.path.join(here, "..", "..", "build", "attn"))
    parser.add_argument("--depth", type=int, default=64)
    parser.add_argument("--models", default="orders")
    options, training = parser.parse_known_args()
    from msa_contacts import read_alignment
    alignments = {}
    for name, (alignment, _) in PAIRS.items():
        cells = read_alignment(os.path.join(options.data, "alignments", alignment))
        alignments[name] = cells[np.linspace(0, len(cells) - 1, min(options.depth, len(cells))).astype(int)]
    pairs = None
    for tied in "true", "false":
        for order in "row-column", "column-row":
            folder = os.path.join(options.models, f"{tied}-{order}")
            if not os.path.exists(os.path.join(folder, "model.safetensors")):
                run(options.attn, "train", "msa", "--out", folder, "--tied=" + tied, "--order", order, *training)
            with tempfile.TemporaryDirectory() as scratch:
                pairs = pairs or truth(options, folder, scratch)
            found = judge(attn.load(folder), alignments, pairs)
            print(f"tied={tied:5} {order:10} loss {best(folder)[0]:.3f} accuracy {best(folder)[1]:.3f} long",
                  *(f"{v:.3f}" for v in found[:3]), f"guessing {found[3]:.3f}", flush=True)


if __name__ == "__main__":
    main()
