#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-asan no-tsan
# The phrasebook has the form that data/README.md promises.
set -eu
book=data/phrasebook.tsv
command -v python3 >/dev/null || { echo "skipped: needs python3"; exit 77; }

python3 - "$book" <<'END'
import collections, hashlib, re, sys, unicodedata

text = open(sys.argv[1], encoding="utf-8", newline="").read()
assert text.endswith("\n") and "\r" not in text, "lines end with one newline"
assert unicodedata.is_normalized("NFC", text), "the text is not NFC"
lines = text[:-1].split("\n")
assert len(lines) >= 600, f"only {len(lines)} pairs"
for number, line in enumerate(lines, 1):
    assert line.count("\t") == 1, f"line {number}: not exactly one tab"
    english, french = line.split("\t")
    for side in (english, french):
        assert side == " ".join(side.split()) and side[-1] in ".!?", f"line {number}: spaces or final mark: {side!r}"
        assert side[0].isupper(), f"line {number}: no capital: {side!r}"
        assert len(re.sub("[.,!?]", " ", side).split()) <= 9, f"line {number}: too long: {side!r}"
    assert english[-1] == french[-1], f"line {number}: the final marks differ"
    assert re.search(r"(?<! )[!?]", french) is None, f"line {number}: no space before the mark: {french!r}"
    # A missing elision or contraction.
    missed = re.search(r"\b(je|ne|que|de|le|la|ma|sa|ce) [aeiouyhàâéêîôœ]|\b(à|de) les? ", french.lower())
    assert missed is None or "est-ce " + missed[0][3:] in french.lower(), f"line {number}: {french!r}"
pairs = [line.split("\t") for line in lines]
assert len({english for english, _ in pairs}) == len(pairs), "an English sentence occurs twice"

# A twentieth held out at random holds (nearly) no word that the rest does not have twice.
words = [set("1" + w for w in re.sub("[.,!?]", " ", e.lower()).split()) |
         set("2" + w for w in re.sub("[.,!?]", " ", f.lower()).split()) for e, f in pairs]
for seed in range(20):
    words.sort(key=lambda both: hashlib.sha256(f"{seed} {sorted(both)}".encode()).digest())  # the same in every Python
    held, rest = words[:len(words) // 20], words[len(words) // 20:]
    met = collections.Counter(w for sentence in rest for w in sentence)
    known = sum(all(met[w] >= 2 for w in sentence) for sentence in held)
    assert known >= 0.99 * len(held), f"split {seed}: {known} of {len(held)} sentences have only known words"
print(len(pairs), "pairs")
END
