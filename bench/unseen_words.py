#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Translates words that a training has not seen: by subwords and by whole words, on the phrasebook of `attn demo`.

    unseen_words.py [--attn build/attn] [--choices 6] [--forms]

Each choice leaves out all pairs whose English side has one of some words of middling frequency, trains on the others as
`attn demo` does, with either vocabulary, and translates what was left out.  --forms: only words of which another form stays,
as "works" if "work" is left.  BLEU and chrF are sacreBLEU's, in lower case and with spaces around marks, as words are
written; at the end the means.
"""
import argparse
import collections
import hashlib
import os
import re
import subprocess
import tempfile

import sacrebleu

HERE = os.path.dirname(os.path.abspath(__file__))
AS_DEMO = ["--epochs", "28", "--batch", "64", "--schedule", "cosine", "--rate", "0.0015", "--warmup", "100",
           "--num-hiddens", "128", "--ffn-num-hiddens", "256", "--quiet"]
VOCABULARIES = {"unigram": ["--vocabulary-size", "1000", "--joint-vocabulary"], "word": []}
ENDINGS = ["s", "es", "ed", "d", "ing", "y"]
NO_FORM = "and"  # of "an"
SPACES = str.maketrans({"\u202f": " ", "\u00a0": " "})


def words(text):
    return {word.lower() for word in re.findall(r"[A-Za-z']+", text)}


def divide(pairs, choice, forms):
    """The pairs without the chosen words, and those with them."""
    count = collections.Counter(word for english, _ in pairs for word in words(english))
    known = {word for word in count if count[word] > 15}
    eligible = [word for word in count if 2 <= count[word] <= (60 if forms else 15)
                and (not forms or word != NO_FORM and any(word == stem + ending for stem in known for ending in ENDINGS))]
    order = sorted(eligible, key=lambda word: hashlib.sha1(f"{word} {choice}".encode()).digest())
    chosen = set(order[:8 if forms else 20])
    unseen = [pair for pair in pairs if words(pair[0]) & chosen]
    return [pair for pair in pairs if pair not in unseen], unseen


def as_words(text):
    return " ".join(re.sub(r"([?!.,;:])", r" \1 ", text.lower().translate(SPACES)).split())


def train_and_translate(attn, known, lines, options):
    with tempfile.TemporaryDirectory() as folder:
        data, model = os.path.join(folder, "known.tsv"), os.path.join(folder, "model")
        with open(data, "w", encoding="utf-8") as file:
            file.writelines(f"{english}\t{french}\n" for english, french in known)
        subprocess.run([attn, "train", "translate", "--data", data, "--out", model, *options, *AS_DEMO], check=True,
                       stdout=subprocess.DEVNULL)
        return subprocess.run([attn, "translate", "--quiet", model], check=True, capture_output=True, text=True,
                              input="".join(line + "\n" for line in lines)).stdout.splitlines()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attn", default="build/attn")
    parser.add_argument("--choices", type=int, default=6)
    parser.add_argument("--forms", action="store_true")
    args = parser.parse_args()
    with open(os.path.join(HERE, "..", "data", "phrasebook.tsv"), encoding="utf-8") as file:
        pairs = [line.rstrip("\n").split("\t")[:2] for line in file if "\t" in line]
    scores = collections.defaultdict(list)
    for choice in range(args.choices):
        known, unseen = divide(pairs, choice, args.forms)
        wanted = [as_words(french) for _, french in unseen]
        for vocabulary, options in VOCABULARIES.items():
            said = train_and_translate(args.attn, known, [english for english, _ in unseen],
                                       ["--vocabulary", vocabulary, *options])
            found = [as_words(line) for line in said]
            scores[vocabulary].append((sacrebleu.corpus_bleu(found, [wanted], force=True).score,
                                       sacrebleu.corpus_chrf(found, [wanted]).score))
            print(f"choice {choice}  {len(unseen)} pairs left out  {vocabulary:8} BLEU %.1f  chrF %.1f"
                  % scores[vocabulary][-1], flush=True)
    for vocabulary, all_scores in scores.items():
        print(f"mean  {vocabulary:8} BLEU %.1f  chrF %.1f" % tuple(sum(x) / len(x) for x in zip(*all_scores)))


if __name__ == "__main__":
    main()
