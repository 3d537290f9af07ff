#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-tsan
# attn embed, contacts and score with encoders: a directory of sentence-transformers and a checkpoint of ESM-2, both small.
. tests/support/cli.sh
python3 - "$root" <<'END' || fail "the stand-ins cannot be written"
import random, sys
sys.path.insert(0, sys.argv[1] + "/tests/documents")
import standins
standins.sentence_encoder(".", random.Random(7))
standins.esm2(".", random.Random(7))
END
model=all-MiniLM-L6-v2 esm=esm2_t6_8M_UR50D.pt

# shape FILE: the shape that its header has
shape() {
    head -c 128 "$1" | LC_ALL=C sed -n "s/.*'shape': (\(.*\)), }.*/\1/p"
}

# ---- texts: one row a line, in order, from files and from standard input
expect 0 '^v.npy: 4 x 8$' "$attn" embed faq.txt --model $model -o v.npy
same "shape of v.npy" "4, 8" "$(shape v.npy)"
"$attn" embed --model $model -o w.npy < faq.txt > /dev/null 2>&1
cmp -s v.npy w.npy || fail "standard input gives another array than the file"
"$attn" embed faq.txt --model $model --batch 1 --threads 1 -o w.npy > /dev/null 2>&1
cmp -s v.npy w.npy || fail "texts depend on those that are computed with them, or on the threads"
expect 0 '"text":4,"vector":\[' "$attn" embed faq.txt --model $model --json
expect 0 '"shape":\[4,8\],"texts":4,"cut":0' "$attn" embed faq.txt --model $model --json -o w.npy
printf 'one\n\none two' | "$attn" embed --model $model -o w.npy > out.txt 2>&1
same "lines with an empty one" "w.npy: 3 x 8" "$(cat out.txt)"
expect 0 ': 0 x 8$' "$attn" embed --model $model -o w.npy /dev/null

# ---- pools, length, prompts
"$attn" embed faq.txt --model $model --pool none -o all.npy > /dev/null 2>&1
same "offsets" "5," "$(shape all.offsets.npy)"
"$attn" embed faq.txt --model $model --pool cls -o cls.npy > /dev/null 2>&1
cmp -s v.npy cls.npy && fail "--pool cls gives means"
"$attn" embed faq.txt --model $model --unnormalized -o raw.npy > /dev/null 2>&1
cmp -s v.npy raw.npy && fail "--unnormalized changes nothing"
"$attn" embed faq.txt --model $model --prompt "query: " -o prompted.npy > /dev/null 2>&1
sed 's/^/query: /' faq.txt | "$attn" embed --model $model -o w.npy > /dev/null 2>&1
cmp -s prompted.npy w.npy || fail "--prompt is not what stands before each text"
expect 0 'had more than 5 tokens and were cut' "$attn" embed faq.txt --model $model --max-length 5 -o w.npy
expect 2 'no prompt has the name "title"' "$attn" embed faq.txt --model $model --prompt-name title
expect 2 'positions for only 64' "$attn" embed faq.txt --model $model --max-length 65
expect 2 'cannot be used together' "$attn" embed faq.txt --model $model --normalize --unnormalized
expect 2 'models of alignments' "$attn" embed faq.txt --model $model --depth 3
expect 2 'cannot be read' "$attn" embed missing.txt --model $model

# ---- ids
printf '2 5 6 3\n2 9 3\n' > ids.txt
expect 0 ': 2 x 8$' "$attn" embed ids.txt --ids --model $model -o w.npy
printf '2 5\n2 999 3\n' > ids.txt
expect 2 "ids.txt:2: \"999\" is not a token's id; expected 0 to" "$attn" embed ids.txt --ids --model $model -o never.npy
[ -e never.npy ] && fail "an array is left of a run that failed"
printf '2 5\n\n' > ids.txt
expect 2 'ids.txt:2: the line has no ids' "$attn" embed ids.txt --ids --model $model -o never.npy

# ---- ranking: the query itself is the most similar
expect 0 '^1.000000	2	When do you open?$' "$attn" embed faq.txt --model $model --similar "When do you open?" --top 2
same "texts that --top 2 prints" 2 "$(wc -l < out.txt | tr -d ' ')"
expect 0 '"number":2,"text":"When do you open?"' "$attn" embed faq.txt --model $model --similar "When do you open?" --json
expect 2 '\-\-pool none gives several' "$attn" embed faq.txt --model $model --similar a --pool none
expect 2 'writes no file' "$attn" embed faq.txt --model $model --similar a -o never.npy

# ---- attn run reads the same directory
python3 - <<'END'
data = bytes(b for i in (2, 5, 6, 3) for b in i.to_bytes(4, "little"))
header = "{'descr': '<i4', 'fortran_order': False, 'shape': (1, 4), }".ljust(117) + "\n"
open("tokens.npy", "wb").write(b"\x93NUMPY\x01\x00\x76\x00" + header.encode() + data)
END
expect 0 'out  *1 x 4 x 8' "$attn" run --weights $model --input tokens=tokens.npy --output out=o.npy

# ---- what is not followed is refused by name
cp -r $model other && printf '[{"type": "x.Dense", "path": "2_Dense"}]' > other/modules.json
expect 2 'x.Dense' "$attn" embed faq.txt --model other
cp $model/modules.json other && printf '{"pooling_mode_weightedmean_tokens": true}' > other/1_Pooling/config.json
expect 2 'weightedmean' "$attn" embed faq.txt --model other
printf '{"model_type": "mpnet"}' > other/config.json
expect 2 'mpnet' "$attn" embed faq.txt --model other
rm other/modules.json other/vocab.txt && cp $model/config.json other
expect 2 'the directory has no tokenizer.json, no vocab.txt' "$attn" embed faq.txt --model other

# ---- proteins
expect 0 '^p.npy: 3 x 8$' "$attn" embed proteins.fasta --model $esm -o p.npy
same "names" "protein0 protein1 protein2" "$(tr '\n' ' ' < p.names.txt | sed 's/ $//')"
expect 0 ': 120 x 8$' "$attn" embed proteins.fasta --model $esm --pool none -o w.npy
grep -v '>' proteins.fasta | "$attn" embed --model $esm -o w.npy > /dev/null 2>&1
cmp -s p.npy w.npy || fail "a protein in a line differs from the protein in FASTA"
printf '>a\nMK-T\n' | expect 2 "'-', is no residue" "$attn" embed --model $esm -o never.npy
expect 0 '3 of 3 proteins had more than 38 residues and were computed in windows' \
    "$attn" embed proteins.fasta --model $esm --max-length 40 -o w.npy
same "vectors of windows" "3, 8" "$(shape w.npy)"
expect 0 'protein.contacts.tsv' "$attn" contacts protein.fasta --model $esm -o contacts
same "contacts" "60, 60" "$(shape contacts/protein.contacts.npy)"
expect 0 'proteins.fasta: the first sequence is used, and the 2 after it are not' \
    "$attn" contacts proteins.fasta --model $esm -o contacts
expect 0 'and the 2 after it are not' "$attn" score proteins.fasta --every --model $esm
"$attn" contacts protein.fasta --model $esm -o contacts 2>&1 | grep 'after it' && fail "one protein has further ones"
expect 0 'windows of 38 that overlap by half' "$attn" contacts protein.fasta --model $esm -o windows --max-length 40
expect 0 '^A42G	' "$attn" score protein.fasta A42G --model $esm
expect 0 'windows of 38' "$attn" score protein.fasta A42G --model $esm --max-length 40
expect 2 'at least 4' "$attn" score protein.fasta A42G --model $esm --max-length 3
expect 2 'models of alignments' "$attn" contacts protein.fasta --model $esm --depth 3
expect 2 'an encoder of texts' "$attn" contacts protein.fasta --model $model
mv esm2_t6_8M_UR50D-contact-regression.pt away.pt
expect 2 'contact-regression.pt' "$attn" contacts protein.fasta --model $esm -o contacts
expect 0 'protein.contacts.tsv' "$attn" contacts protein.fasta --model $esm --regression away.pt -o contacts
exit $failed
