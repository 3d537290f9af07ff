#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-tsan
# The commands about alignments, from a folder of small families to contacts: training and going on, the regression,
# contacts, embeddings, scores, and their errors.
. tests/support/cli.sh

# ---- three families of 8 sequences of 30 columns, and a hairpin for the first: residue i touches 29 - i
mkdir families
awk 'BEGIN { srand(7); letters = "ACDEFGHIKLMNPQRSTVWY";
    for (f = 1; f <= 3; f++) {
        file = "families/f" f ".a3m";
        for (r = 0; r < 8; r++) {
            row = "";
            for (c = 0; c < 30; c++) {
                if (r == 0) base[c] = substr(letters, int(rand() * 20) + 1, 1);
                row = row (rand() < 0.2 && r > 0 ? substr(letters, int(rand() * 20) + 1, 1) : base[c]);
            }
            printf ">f%d_%d\n%s\n", f, r, row > file;
            if (r == 0) query[f] = row;
        }
    }
    split("ALA CYS ASP GLU PHE GLY HIS ILE LYS LEU MET ASN PRO GLN ARG SER THR VAL TRP TYR", names, " ");
    for (c = 0; c < 30; c++) {
        name = names[index(letters, substr(query[1], c + 1, 1))];
        x = c < 15 ? 3.8 * c : 3.8 * (29 - c);
        y = c < 15 ? 0 : 5;
        printf "ATOM  %5d  CA  %s A%4d    %8.3f%8.3f%8.3f  1.00  0.00\n", c + 1, name, c + 1, x, y, 0 > "f1.pdb";
    } }'
small="--layers 2 --embed-dim 16 --ffn-embed-dim 32 --attention-heads 2 --steps 4 --epochs 2 --max-tokens 200 --warmup 100 --threads 1"

# ---- training, and going on to the same bits
"$attn" train msa --data families --out whole $small --quiet >/dev/null
[ "$(wc -l < whole/history.tsv)" -eq 3 ] || fail "history.tsv has not a line an epoch"
"$attn" train msa --data families --out parts $small --epochs 1 --quiet >/dev/null
cmp -s whole/model.safetensors parts/model.safetensors && fail "the second epoch changed nothing"
head -2 whole/history.tsv | cmp -s - parts/history.tsv || fail "the first epochs differ"
expect 2 "exists already" "$attn" train msa --data families --out whole $small --quiet
expect 2 "train msa needs --data" "$attn" train msa --out nothing --quiet
mkdir empty
: > bad.a3m
expect 2 "empty: the folder has no files" "$attn" train msa --data empty --out nothing --quiet
expect 2 "No such file" "$attn" train msa --data missing --out nothing --quiet
expect 2 "bad.a3m: expected a directory" "$attn" train msa --data bad.a3m --out nothing --quiet
cp -r families broken
printf '>a\nAC1\n' > broken/g.a3m
expect 2 "broken/g.a3m:2: '1' at column 3 is not a residue" "$attn" train msa --data broken --out nothing --quiet
[ ! -e nothing ] || fail "a run that could not begin left a directory"

# ---- what is no alignment is passed over and counted; .A3M and a file without an ending count by what they are
cp -r families mixed
mv mixed/f2.a3m mixed/f2.A3M
gzip -c mixed/f3.a3m > mixed/f3 && rm mixed/f3.a3m
printf '# Families\n\nThree of them.\n' > mixed/README.md
cp f1.pdb mixed/f1.pdb
printf 'Query         f1\nMatch_columns 30\n' > mixed/f1.hhr
: > mixed/notes
# shellcheck disable=SC2086
expect 0 '4 files are skipped, not an alignment by name or content: the first is mixed/' \
    "$attn" train msa --data mixed --out with-others $small --epochs 1
same "alignments beside other files" "2 alignments to train on, 1 for validation; 24 sequences" \
    "$(sed -n 's/^attn: \(.* sequences\)$/\1/p' err.txt)"
mkdir others
cp mixed/README.md mixed/f1.hhr others
expect 2 "others: none of its 2 files is an alignment; the first file is others/" \
    "$attn" train msa --data others --out nothing --quiet
printf 'Query         f1\n' > others/f1.a3m
expect 2 "others/f1.a3m:1: expected '>', " "$attn" train msa --data others --out nothing --quiet
[ ! -e nothing ] || fail "a run without alignments left a directory"

# ---- --depth limits the rows of a step: two rows cost less than eight
# shellcheck disable=SC2086
"$attn" train msa --data families --out shallow $small --depth 2 --quiet >/dev/null
# shellcheck disable=SC2086
"$attn" train msa --data families --out shallow-too $small --max-tokens 62 --quiet >/dev/null
cmp -s shallow/model.safetensors shallow-too/model.safetensors || fail "--depth 2 is not two rows of 31 tokens"
cmp -s shallow/model.safetensors whole/model.safetensors && fail "--depth 2 changes nothing"

# ---- a model with random weights, to try things with
# shellcheck disable=SC2086
expect 0 'The model is in random' "$attn" train msa --data families --out random $small --epochs 0
expect 0 '^msa-transformer: ' "$attn" info random

# ---- contacts need a regression; it is fitted to a structure
if ! "$attn" version --build | grep -q '^libraries .*gemmi'; then
    expect 2 "f1.pdb: structures need gemmi" "$attn" train contacts families/f1.a3m=f1.pdb --model whole \
        --out fitted --quiet
    echo "built without gemmi: what needs a structure is left out"
    exit $failed
fi
expect 2 "contact regression" "$attn" contacts families/f1.a3m --model whole --quiet
expect 2 "is not ALIGNMENT=STRUCTURE" "$attn" train contacts families/f1.a3m --model whole --out fitted --quiet
expect 2 "does not match the query" "$attn" train contacts families/f2.a3m=f1.pdb --model whole --out fitted --quiet
expect 2 "uses none of the [0-9]* attention maps.*--strength 1e-05" "$attn" train contacts families/f1.a3m=f1.pdb \
    --model whole --out fitted --strength 1e-6 --quiet
[ ! -e fitted ] || fail "a fit without a map was written"
# Maps of a model that has learnt nothing, fitted as closely as they let: hardly better than guessing, with a warning.
expect 0 "warning: of the 36 likeliest pairs [0-9.]* % touch.*guessing finds 12.0 %: the maps say next to nothing" \
    "$attn" train contacts families/f1.a3m=f1.pdb --model whole --out weak --strength 100
"$attn" train contacts families/f1.a3m=f1.pdb --model whole --out fitted --strength 100 --quiet --json > fitted.json
grep -q '"chain": "A"' fitted.json && grep -q '"identity": 1' fitted.json && grep -q '"coverage": 1' fitted.json ||
    fail "the structure's chain is not named: $(cat fitted.json)"
expect 0 "chain A: 30 of the query's 30 residues aligned (coverage 100 %), 100 % of them identical; 30 have places" \
    "$attn" train contacts families/f1.a3m=f1.pdb --model whole --out again --strength 100
grep -q '"contacts": 3' fitted.json || grep -q '"contacts": [1-9]' fitted.json || fail "no contacts: $(cat fitted.json)"

# ---- what is in the directories
expect 0 '^msa-transformer: ' "$attn" info whole
expect 0 'none: attn train contacts' "$attn" info whole
expect 0 'regression  *fitted' "$attn" info fitted
expect 0 '"contact_regression": true' "$attn" info fitted --json
expect 0 'layers.1.row_self_attention' "$attn" info fitted
same "trained numbers of both" "$("$attn" info whole | grep 'trained numbers')" "$("$attn" info fitted | grep 'trained numbers')"

# ---- contacts, with a structure in the alignment's folder
cp families/f1.a3m f1.a3m
"$attn" contacts f1.a3m --model fitted -o out --least 0 --quiet > said
grep -q "out/f1.contacts.tsv" said || fail "the table is not named"
# A structure in the folder that is another protein, damaged, or compressed; and none at all.
mkdir beside
cp families/f2.a3m beside
cp f1.pdb beside/f2.pdb
expect 0 "^attn: warning: beside/f2.pdb: chain A does not match the query: .*; no distances are given" \
    "$attn" contacts beside/f2.a3m --model fitted -o beside/out --least 0
head -1 beside/out/f2.contacts.tsv | grep -q distance && fail "distances of another protein"
expect 2 "beside/f2.pdb: chain A does not match the query" "$attn" contacts beside/f2.a3m --model fitted -o beside/out \
    --structure beside/f2.pdb --quiet
expect 2 "beside/f2.pdb: there is no chain 'Q'" "$attn" contacts beside/f2.a3m --model fitted -o beside/out --chain Q --quiet
printf 'ATOM  damaged\n' > beside/f2.pdb
expect 0 "^attn: warning: beside/f2.pdb:1: an atom's record has less than 54 columns; no distances" \
    "$attn" contacts beside/f2.a3m --model fitted -o beside/out
gzip -c f1.pdb > beside/f1.pdb.gz
cp families/f1.a3m beside/f1.A3M
expect 0 "chain A: 30 of the query's 30 residues aligned" "$attn" contacts beside/f1.A3M --model fitted -o beside/out
head -1 beside/out/f1.contacts.tsv | grep -q distance || fail "f1.pdb.gz was not found beside f1.A3M"
"$attn" contacts beside/f1.A3M --model fitted -o beside/out --structure none > out.txt 2> err.txt
grep -q "chain A\|precision" out.txt err.txt && fail "--structure none reads a structure"
mkdir -p blocked/f1.contacts.tsv
expect 2 'blocked/f1.contacts.tsv' "$attn" contacts f1.a3m --model fitted -o blocked --quiet
grep -q "precision" said || fail "f1.pdb was not found beside f1.a3m"
[ "$(head -c 6 out/f1.contacts.npy | tail -c 5)" = NUMPY ] || fail "no array"
head -c 4 out/f1.contacts.png | grep -q PNG || fail "no picture"
# 30 residues: 24 * 25 / 2 pairs at least 6 apart, sorted, and i < j; residues 1 and 30 are 5 angstrom apart
awk -F'\t' 'NR == 1 { next } { n++; if ($2 - $1 < 6 || $5 != $2 - $1) bad = 1; if (n > 1 && $7 > last) bad = 2; last = $7;
    if ($1 == 1 && $2 == 30 && ($8 != "5.00" || $9 != 1)) bad = 3
    if ($6 != ($5 < 12 ? "short" : $5 < 24 ? "medium" : "long")) bad = 4 } END { exit !(n == 300 && !bad) }' out/f1.contacts.tsv ||
    fail "the table is not what it should be"
# a regression of zeros gives every pair the same probability: that is no result
if command -v python3 > /dev/null; then
    cp -r fitted zeros
    python3 - zeros/model.safetensors << 'END' || fail "the regression is not where it was"
import json, struct, sys
file = open(sys.argv[1], "r+b")
size = struct.unpack("<Q", file.read(8))[0]
names = [(k, v["data_offsets"]) for k, v in json.loads(file.read(size)).items() if "regression.weight" in k]
assert len(names) == 1, names
begin, end = names[0][1]
file.seek(8 + size + begin)
file.write(bytes(end - begin))
END
    expect 2 'f1.a3m: every pair has the same probability, ' "$attn" contacts f1.a3m --model zeros -o same --quiet
    [ ! -e same ] || fail "equal probabilities were written"
fi
# the memory allowed changes nothing but rounding
"$attn" contacts f1.a3m --model fitted -o less --least 0 --memory 100M --quiet >/dev/null
paste out/f1.contacts.tsv less/f1.contacts.tsv | awk -F'\t' 'NR > 1 && ($7 - $16 > 1e-5 || $16 - $7 > 1e-5) && $1 == $10 && $2 == $11 { exit 1 }' ||
    fail "--memory changed the result"
expect 2 "the limit of memory is 10240 bytes, but" "$attn" contacts f1.a3m --model fitted --memory 10K --quiet
expect 2 "is not a size" "$attn" contacts f1.a3m --model fitted --memory much --quiet
expect 2 "no chain 'Z'" "$attn" contacts f1.a3m --model fitted --chain Z --quiet
# without a name the chain that fits best; residues absent from the file have no places, whatever their numbers
sed 's/ A / B /' f1.pdb | sed '10,14d' > complex.pdb
awk '{ print substr($0, 1, 17) "ALA" substr($0, 21) }' f1.pdb | cat - complex.pdb > mixed.pdb
expect 0 "chain B: 25 of the query's 30 residues aligned (coverage 83 %), 100 % of them identical; 25 have places" \
    "$attn" contacts f1.a3m --model fitted -o out --structure mixed.pdb
"$attn" contacts f1.a3m --model fitted -o out --structure mixed.pdb --json --quiet |
    grep -q '"chain":"B","resolved":25,"identity":1[.0]*,"coverage":0.833' || fail "--json does not name the chain"
expect 2 "mixed.pdb: chain A does not match the query" "$attn" contacts f1.a3m --model fitted -o out --structure mixed.pdb --chain A --quiet

# of the likeliest L, L/2 and L/5 pairs of each range those that touch: L is the residues that have places, 25
"$attn" contacts f1.a3m --model fitted -o out --least 0 --structure mixed.pdb --quiet |
    awk '/^  (short|medium|long) / { print $1, $2, $3, $4 }' > said
awk -F'\t' 'NR > 1 && $8 != "" { n[$6]++; for (d = 1; d <= 5; d += d < 2 ? 1 : 3) if (n[$6] <= int(25 / d)) { all[$6 d]++; touch[$6 d] += $9 } }
    END { split("short medium long", r, " "); for (i = 1; i <= 3; i++) printf "%s %.3f %.3f %.3f\n", r[i],
        touch[r[i] 1] / all[r[i] 1], touch[r[i] 2] / all[r[i] 2], touch[r[i] 5] / all[r[i] 5] }' out/f1.contacts.tsv > wanted
cmp -s wanted said || fail "precision: $(cat said), not $(cat wanted)"

# ---- numbers are those of the query's residues: gaps have no rows, and lower case counts
awk '/^>/ { print; next } { print substr($0, 1, 4) (NR == 2 ? "-" : "W") substr($0, 5) }' f1.a3m > gaps.fasta
awk 'NR == 2 { print substr($0, 1, 4) tolower(substr($0, 5, 3)) substr($0, 8); next } /^>/ { print; next }
    { print substr($0, 1, 4) substr($0, 8) }' f1.a3m > lower.a3m
"$attn" contacts gaps.fasta lower.a3m --model fitted -o numbered --least 0 2> said > /dev/null
grep -q 'lower.a3m: a3m, 8 sequences of 27 columns' said || fail "lower case was no insertion: $(cat said)"
grep -q 'warning: 3 of the 30 residues of the first sequence are insertions (lower case in an a3m)' said ||
    fail "no warning for lower case in the query"
query=$(sed -n 2p f1.a3m)
for pairs in gaps:300 lower:242; do
    awk -F'\t' -v query="$query" -v n=${pairs#*:} 'NR > 1 { k++; if ($5 != $2 - $1 || $5 < 6 || $2 > 30 ||
        $3 != substr(query, $1, 1) || $4 != substr(query, $2, 1) || (n < 300 && (($1 > 4 && $1 < 8) || ($2 > 4 && $2 < 8)))) bad = 1 }
        END { exit !(k == n && !bad) }' numbered/${pairs%:*}.contacts.tsv || fail "${pairs%:*}: pairs are not numbered by residues"
    head -c 120 numbered/${pairs%:*}.contacts.npy | grep -q '(30, 30)' || fail "${pairs%:*}: the map is not of residues"
done
for file in gaps.fasta lower.a3m; do
    "$attn" embed $file --model fitted -o numbered --json --quiet | grep -q '"shape":\[30,16\]' || fail "$file: vectors of other things than residues"
    "$attn" score $file "$(echo "$query" | cut -c 20)20W" --model fitted --quiet > out.txt || fail "$file: score counts otherwise"
    "$attn" show fitted $file --depth 2 --layer 1 --kinds rows -o numbered/$file.html --quiet > out.txt
    grep -q "\"$(echo "$query" | cut -c 20)20\"" numbered/$file.html || fail "$file: show counts otherwise"
done
expect 2 "residue 6 of the query is an insertion" "$attn" score lower.a3m "$(echo "$query" | cut -c 6)6W" --model fitted --quiet

head -2 f1.a3m > single.a3m
"$attn" contacts single.a3m --model fitted -o out 2>said >/dev/null
grep -q "warning: the alignment has only one sequence" said || fail "no warning for one sequence"

# ---- weights of sequences: the eight of a family differ in a fifth of their columns and count singly, copies together
"$attn" weights families/f1.a3m -o out --identity 0.99 --json | grep -q '"effective_sequences":8' || fail "Neff is not 8"
cat f1.a3m f1.a3m > twice.a3m
expect 0 "16 sequences of 30 columns, Neff 8.0 at 99 % identity" "$attn" weights twice.a3m -o out --identity 0.99
awk -F'\t' 'NR == 1 { if ($3 != "identity_weight") bad = 1; next } $3 != 0.5 { bad = 1 } { sum += $4; n++ }
    END { exit !(n == 16 && !bad && sum > 15.99 && sum < 16.01) }' out/twice.weights.tsv || fail "weights are not as they should be"
"$attn" contacts twice.a3m --model fitted -o out --depth 4 --select weighted 2>said >/dev/null
grep -q "16 sequences of 30 columns, Neff [1-8]; 4 used" said || fail "contacts does not say Neff: $(cat said)"
expect 2 "cannot be 1.5" "$attn" weights f1.a3m --identity 1.5
# where counting would take long, a note says that nothing was counted
awk 'BEGIN { srand(3); for (r = 0; r < 54000; r++) { printf ">%d\n", r; for (c = 0; c < 14; c++) printf "%s",
    substr("ACDEFGHIKLMNPQRSTVWY", int(rand() * 20) + 1, 1); print "" } }' > many.fasta
expect 0 "54,000 sequences of 14 columns, Neff not counted (attn weights counts it); 4 used" \
    "$attn" contacts many.fasta --model fitted --depth 4 -o out

# ---- usual mistakes: what is wrong, and what would be right
expect 2 "f1.a3m is not a model" "$attn" contacts f1.a3m --model f1.a3m
expect 2 "empty is not a model" "$attn" contacts f1.a3m --model empty
expect 2 "nowhere: no such file or directory" "$attn" contacts f1.a3m --model nowhere
expect 2 "the contact regression alone; give the model's file" \
    "$attn" contacts f1.a3m --model "$root/tests/data/pt/msa_tiny-contact-regression.pt"
printf '>a\nACDEFG\n>b\nACDE\n' > ragged.fasta
expect 2 "ragged.fasta:3: sequence 'b' has 4 columns, but the first sequence has 6; in a3m" "$attn" contacts ragged.fasta --model fitted
# one bad file of several: the others are done, and the end names it; --strict stops there
for command in weights "contacts --model fitted" "embed --model fitted"; do
    for strict in "" --strict; do
        rm -rf batch
        # shellcheck disable=SC2086
        "$attn" $command f1.a3m ragged.fasta families/f2.a3m missing.a3m -o batch --quiet $strict > out.txt 2> err.txt
        same "exit code of $command $strict with bad files" 2 $?
        same "results of $command $strict" "$([ $strict ] && echo f1 || echo f1 f2)" "$(ls batch | cut -d. -f1 | uniq | paste -sd ' ' -)"
        same "last words of $command $strict" "$([ $strict ] && head -1 err.txt || echo 'attn: 2 of 4 files failed: ragged.fasta, missing.a3m')" "$(tail -1 err.txt)"
        [ "$(wc -l < err.txt)" = $([ $strict ] && echo 1 || echo 3) ] || fail "$command $strict: $(cat err.txt)"
    done
done
printf '>a\nacdefg\n>b\nacdefh\n' > lower.a3m
expect 2 "lower.a3m:1: sequence 'a' has only lower-case residues, which are insertions in a3m" "$attn" contacts lower.a3m --model fitted
expect 0 "lower.contacts.tsv" "$attn" contacts lower.a3m --model fitted --format fasta -o out
printf 'CLUSTAL W\n\na ACDEFGHIK\nb ACDEFGHIR\n  ********.\n' > clustal.aln
expect 0 "clustal.aln: Clustal, 2 sequences of 9 columns" "$attn" contacts clustal.aln --model fitted -o out
printf '>P1;a\na description\nACDEFGHIK*\n>P1;b\n\nACDEFGHIR*\n' > made.pir
expect 0 "made.pir: FASTA, 2 sequences of 9 columns" "$attn" contacts made.pir --model fitted -o out
[ -s out/made.contacts.tsv ] || fail "the names of results of made.pir: $(ls out)"
printf 'a ACDEF\n' > none.aln
expect 2 "a3m, FASTA, a2m, Stockholm and Clustal are supported" "$attn" contacts none.aln --model fitted
cat f1.a3m f1.a3m > named.a3m
expect 0 "warning: [0-9]* of the sequences have the same name as another, such as" "$attn" contacts named.a3m --model fitted -o out
sed 's/^>.*/>/' families/f1.a3m > nameless.a3m
expect 0 "warning: $(grep -c '>' nameless.a3m) of the sequences have no name" "$attn" contacts nameless.a3m --model fitted -o out
expect 0 "1 sequence of" "$attn" contacts single.a3m --model fitted -o out
cp f1.a3m f1.contacts.tsv
expect 2 'the output ./f1.a3m would overwrite the input f1.a3m' "$attn" score f1.a3m --every --model fitted -o ./f1.a3m
mkdir -p taken && ln f1.a3m taken/f1.names.txt
expect 2 'the output taken/f1.names.txt would overwrite the input f1.a3m' "$attn" embed f1.a3m --model fitted --what all -o taken
[ ! -e taken/f1.all.npy ] && cmp -s f1.a3m f1.contacts.tsv || fail "an output was begun that would overwrite an input"
cp f1.a3m f1.fasta
for command in weights "contacts --model fitted" "embed --model fitted"; do # shellcheck disable=SC2086
    expect 2 'the results of families/f1.a3m and f1.fasta would both be written to clash/f1\.' \
        "$attn" $command families/f1.a3m f1.fasta -o clash
done
[ ! -e clash ] || fail "results that would overwrite one another were begun"
expect 0 'clash/f1.weights.tsv' "$attn" weights f1.a3m f1.a3m -o clash
expect 0 'out/f1.names.txt' "$attn" embed f1.a3m --model fitted --what all -o out --quiet
printf '>a\r\nACDEFGHIKLMNPQRSTVWY\r\n>b\r\nACDEFGHIKLMNPQRSTVWF\r\n' > windows.fasta
expect 0 "2 sequences of 20 columns" "$attn" contacts windows.fasta --model fitted -o out
printf '>a\nACGTACGTAACCGGTTNACG\n>b\nACGTACGTAACCGGTTACGA\n' > dna.fasta
expect 0 "warning: .*looks like DNA" "$attn" contacts dna.fasta --model fitted -o out
gzip -c f1.a3m | head -c 150 > cut.a3m.gz
expect 2 "cut.a3m.gz: .*damaged or cut off" "$attn" contacts cut.a3m.gz --model fitted
# 1,023 columns are the most, with <cls> 1,024 tokens
awk 'BEGIN { for (r = 0; r < 3; r++) { print ">" r; for (c = 0; c < 1023; c++) printf "%s", substr("ACDEFGHIKLMNPQRSTVWY", (c * 7 + r * c) % 20 + 1, 1); print "" } }' > most.fasta
# Long work prints how much is left: here nobody reads its output, so that it takes eight seconds anywhere. The end looks at it.
"$attn" score most.fasta --every --model fitted 2> left.txt | sleep 8 &
scoring=$!
expect 0 "most.contacts.tsv" "$attn" contacts most.fasta --model fitted --memory 60M -o out
sed 's/^[A-Z]*$/&A/' most.fasta > over.fasta
expect 2 "a row has 1025 tokens, but the model has positions for at most 1024: <cls> and 1023 residues" "$attn" contacts over.fasta --model fitted --quiet
expect 2 "cannot be 1025; it must be between 1 and 1024" "$attn" contacts f1.a3m --model fitted --depth 1025

# ---- pictures of attention
"$attn" show fitted f1.a3m --depth 3 --kinds rows,columns -o maps.svg --quiet > said || fail "no picture of attention"
[ "$(grep -c '' said)" -eq 1 ] && [ -s maps.svg ] || fail "show does not name its picture"
"$attn" show fitted f1.a3m --layer 2 -o maps.html --quiet > said || fail "no page of attention"
grep -q '"layers":1,"heads":2,"rows":31,"cols":31,"first":2' maps.html || fail "the page does not hold layer 2"
if command -v python3 > /dev/null; then
    "$attn" show fitted f1.a3m --depth 3 --kinds rows,columns -o both.html --quiet > said
    python3 - both.html << 'END' || fail "the weights of a query in the page do not add up to 1"
import base64, json, re, sys, zlib
page = open(sys.argv[1], encoding="utf-8").read()
maps = json.loads(re.search('id="attn-page">(.*?)</script>', page).group(1))["maps"]
assert [(m["rows"], m["cols"]) for m in maps] == [(31, 31), (3, 3)], maps
for i, m in enumerate(maps):
    for layer in range(m["layers"]):
        weights = zlib.decompress(base64.b64decode(re.search(f'id="w{i}-{layer}">(.*?)</script>', page).group(1)))
        for row in range(m["heads"] * m["rows"]):
            peak, shares = m["peaks"][layer][row // m["rows"]], weights[row * m["cols"]:][:m["cols"]]
            assert abs(sum(shares) * peak / 255 - 1) <= m["cols"] * peak / 510 + 1e-5, (i, layer, row, peak, list(shares))
END
fi
expect 2 "the model has only 2 layers" "$attn" show fitted f1.a3m --layer 3 --quiet
expect 2 "expected rows or columns for an alignment" "$attn" show fitted f1.a3m --kinds cross --quiet

# ---- embeddings and scores
"$attn" embed f1.a3m --model fitted --what sequences --depth 5 -o out --json --quiet | grep -q '"shape":\[5,16\]' ||
    fail "embeddings of another shape"
[ "$(wc -l < out/f1.names.txt)" -eq 5 ] || fail "names.txt has not a line a sequence"
residue=$(sed -n 2p f1.a3m | cut -c3)
other=A
[ "$residue" = A ] && other=G
fourth=$(sed -n 2p f1.a3m | cut -c 4)
second=A
[ "$fourth" = A ] && second=C
"$attn" score f1.a3m "${residue}3$other" "${fourth}4$second" "${residue}3$other:${fourth}4$second" --model fitted --quiet > scores
awk -F'\t' 'NR > 1 { d += NR < 4 ? $2 : -$2 } END { exit !(NR == 4 && d < 1e-5 && d > -1e-5) }' scores || fail "scores do not add up"
# The same mutations from files: a list, and tables in the form of ProteinGym.
printf '%s\r\n\n%s \n%s' "${residue}3$other" "${fourth}4$second" "${residue}3$other:${fourth}4$second" > list.txt
printf 'mutant,mutated_sequence,DMS_score\n%s,AC,0.5\n"%s","A,C",0\n%s,AC,-1\n' "${residue}3$other" \
    "${fourth}4$second" "${residue}3$other:${fourth}4$second" > table.csv
awk -F'\t' '{ print "x\t" $1 "\t" $2 }' scores | sed 's/mutation/Mutant/' > table.tsv
gzip -c table.csv > table.csv.gz
for file in list.txt table.csv table.tsv table.csv.gz; do
    "$attn" score f1.a3m --mutations $file --model fitted --quiet | cmp -s - scores || fail "--mutations $file: other scores"
done
same "words come before the file's mutations" 5 "$("$attn" score f1.a3m "${fourth}4$second" --mutations list.txt \
    --model fitted --quiet | wc -l)"
printf '%s3%s\nA3\n' "$residue" "$other" > odd.txt
expect 2 'odd.txt:2: "A3" is not a mutation' "$attn" score f1.a3m --mutations odd.txt --model fitted --quiet
printf '%s3%s\n%s3%s\n' "$residue" "$other" "$other" "$residue" > odd.txt
expect 2 "odd.txt:2: ${other}3$residue: residue 3 of the query is $residue" "$attn" score f1.a3m --mutations odd.txt \
    --model fitted --quiet
printf 'variant,score\nA3C,1\n' > odd.txt
expect 2 'odd.txt:1: the line has several fields, but the first line has no column "mutant"' "$attn" score f1.a3m \
    --mutations odd.txt --model fitted --quiet
printf 'score,mutant\n1\n' > odd.txt
expect 2 'odd.txt:2: the line has no field 2' "$attn" score f1.a3m --mutations odd.txt --model fitted --quiet
printf 'mutant\n' > odd.txt
expect 2 'odd.txt: the file has no mutations' "$attn" score f1.a3m --mutations odd.txt --model fitted --quiet
expect 2 'No such file' "$attn" score f1.a3m --mutations absent.txt --model fitted --quiet
expect 2 "replaces residue 3 twice" "$attn" score f1.a3m "${residue}3$other:${residue}3$other" --model fitted --quiet
expect 2 "is not a mutation" "$attn" score f1.a3m "${residue}3$other:" --model fitted --quiet
expect 2 '"S1Z": Z is not one of the 20 amino acids' "$attn" score f1.a3m S1Z --model fitted --quiet
expect 2 'write capitals' "$attn" score f1.a3m a1S --model fitted --quiet
expect 2 "is not a mutation" "$attn" score f1.a3m A3 --model fitted --quiet
expect 2 "the query has the residues 1 to 30" "$attn" score f1.a3m A31G --model fitted --quiet
expect 2 "residue 3 of the query is $residue" "$attn" score f1.a3m "${other}3$residue" --model fitted --quiet
expect 2 "score needs a MUTATION" "$attn" score f1.a3m --model fitted --quiet
[ "$("$attn" score f1.a3m --every --model fitted --quiet | wc -l)" -eq 571 ] || fail "--every is not 30 times 19 lines"
# the query's first residue may have another number: the scores stay what they are
"$attn" score f1.a3m --every --offset 100 --model fitted --quiet | awk 'NR > 1 { n = substr($1, 2, length($1) - 2); sub(n, n - 100, $1) } { print }' OFS='\t' > moved
"$attn" score f1.a3m --every --model fitted --quiet | cmp -s - moved || fail "--every --offset 100: $(head -2 moved)"
same "a mutation by its number there" "$(sed -n '4p' scores | cut -f 2)" "$("$attn" score f1.a3m \
    "${residue}103$other:${fourth}104$second" --offset 100 --model fitted --quiet | sed -n '2s/.*	//p')"
expect 2 "the query has the residues 101 to 130" "$attn" score f1.a3m A131G --offset 100 --model fitted --quiet
wait $scoring
grep -q '^attn: [0-9]* of 1023 residues, .* left$' left.txt || fail "score --every does not say how much is left: $(cat left.txt)"
exit $failed
