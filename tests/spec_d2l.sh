#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-asan no-tsan
# --compat d2l against the book's preparation of the data, written down once more: 641 lines, 9 tokens, words seen
# twice counted after padding, sorted by code point.
. tests/support/cli.sh
command -v python3 > /dev/null || { echo "skipped: no python3"; exit 0; }

"$attn" train translate --data "$root/data/phrasebook.tsv" --compat d2l --epochs 1 --num-hiddens 16 --out model -q > /dev/null
python3 - "$root/data/phrasebook.tsv" << 'END' || failed=1
import collections, sys
text = open(sys.argv[1], encoding="utf-8").read().replace("\u202f", " ").replace("\u00a0", " ").lower()
text = "".join(" " + c if i and c in ",.!?" and text[i - 1] != " " else c for i, c in enumerate(text))
pairs = [line.split("\t") for line in text.split("\n")[:641]]
for side, name in enumerate(("source", "target")):
    count = collections.Counter()
    for pair in pairs:
        words = pair[side].split() + ["<eos>"]
        count.update((words + ["<pad>"] * 9)[:9] + ["<bos>"] * side)
    wanted = sorted({"<unk>"} | {word for word, n in count.items() if n > 1})
    got = open("model/" + name + ".vocab", encoding="utf-8").read().split("\n")[:-1]
    if wanted != got:
        sys.exit("FAILED: %s.vocab: %d words, not %d; %s" % (name, len(got), len(wanted), set(got) ^ set(wanted)))
END

# The pictures of `attn show` have the weights of the translation. The models have the book's choices and attn's, and translations are
# whole and cut, by one hypothesis and by several.
for model in transformer bahdanau; do
    for compat in d2l none; do
        "$attn" train translate --data "$root/data/phrasebook.tsv" --model $model --compat $compat --epochs 3 --num-hiddens 16 \
            $([ $model = transformer ] && echo --ffn-num-hiddens 32 || echo --embed-size 12) --max-tokens 9 --out shown -q > /dev/null
        for beam in 1 4; do
            python3 "$root/tests/shown_weights.py" "$attn" shown $beam 'go .' "i'm home ." 'where is the station ?' \
                'is the door open now , my old friend ?' || fail "$model, compat $compat, beam $beam: attn show draws other weights"
        done
        rm -r shown
    done
done

# The book's split has no test part: a request for it gets a message about the other, and the command's hint names that
# one.
expect 0 'attn eval hinted --part valid' "$attn" train translate --data "$root/data/phrasebook.tsv" --compat d2l --epochs 1 \
    --num-hiddens 16 --out hinted
expect 2 'no test part: use the part "valid"' "$attn" eval model
expect 0 'part *valid' "$attn" eval model --part valid
exit $failed
