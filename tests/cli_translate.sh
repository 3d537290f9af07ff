#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-tsan
# The whole way with a tiny model: train, translate, eval, show, info, and what they print.
. tests/support/cli.sh

# shellcheck disable=SC2086
"$attn" train translate $tiny --out model --epochs 3 > out.txt 2> err.txt || fail "training: $(cat err.txt)"
same "lines of progress" 3 "$(grep -c '^epoch [123]/3: loss .* tokens/s' err.txt)"
grep -q 'pairs to train on' err.txt || fail "training does not say what it read"
grep -q 'translator is in model' out.txt || fail "training does not say where the translator is"
# ... as they can be typed
printf 'Try:  %s translate model "..."\n      %s eval model\n      %s show model "..." -o attention.png\n' "$attn" "$attn" "$attn" > try.txt
tail -n 3 out.txt | cmp -s - try.txt || fail "training suggests other commands: $(cat out.txt)"
for file in config.json model.safetensors source.vocab target.vocab training.json checkpoint.safetensors history.tsv; do
    [ -s "model/$file" ] || fail "model/$file is not there"
done
same "lines of history.tsv" 4 "$(wc -l < model/history.tsv)"

# ---- weights of foreign names with the vocabularies: settings from shapes, and from the names file
mkdir foreign && cp model/source.vocab model/target.vocab foreign
printf '{"max_tokens": %s}\n' "$(sed -n 's/.*"max_tokens": *\([0-9]*\).*/\1/p' model/config.json)" > foreign/config.json
LC_ALL=C sed 's/encoder\./ENCODER./g' model/model.safetensors > foreign/model.safetensors
{
    printf 'attn names 1\narch transformer\nset'
    sed -n 's/^ *"\([a-z_]*\)": "*\([^",]*\)"*,*$/ \1=\2/p' model/config.json | grep -v ' architecture=\| src_\| compat\| max_tokens' | tr -d '\n'
    printf '\nsize src_vocab_size encoder.embedding.weight 0\nENCODER(.*) encoder\\1\n([^E]*) \\1\n'
} > words.names
"$attn" translate model 'Is the door open?' 'Where is the station?' > own.txt
"$attn" translate foreign 'Is the door open?' 'Where is the station?' --names words.names > its.txt || fail "translate --names fails: $(cat words.names)"
cmp -s own.txt its.txt || fail "translate by a names file says something else"
"$attn" show model 'Is the door open?' -o own.svg > /dev/null && "$attn" show foreign 'Is the door open?' -o its.svg --names words.names > /dev/null ||
    fail "show --names fails"
cmp -s own.svg its.svg || fail "show by a names file draws something else"
# The picture shows the translation, with a forced prefix too.
line=$(printf 'Where is the station?\tla')
same "shown and translated behind a prefix" "$("$attn" translate model --prefix "$line" -q)" \
    "$("$attn" show model --prefix "$line" -o prefixed.svg -q | head -n 1)"
# The largest weight has the darkest colour, unless --range sets another end of the scale.
darkest() { tr -d ' ' < "$1" | grep -c 'rgb(33%,2%,14%)'; }
expect 0 'ranged.svg' "$attn" show model 'Is the door open?' --kinds cross --range 0,2 -o ranged.svg
expect 0 'cross.svg' "$attn" show model 'Is the door open?' --kinds cross -o cross.svg
[ "$(darkest cross.svg)" -ge 1 ] && [ "$(darkest ranged.svg)" = 0 ] || fail "the scale of show does not follow the weights, or not --range"
"$attn" eval model --data phrasebook --part all --json | grep -v second > own.txt
"$attn" eval foreign --data phrasebook --part all --json --names words.names | grep -v second > its.txt
cmp -s own.txt its.txt || fail "eval by a names file says something else: $(diff own.txt its.txt)"
# ---- models of other programs are named for what they are
mkdir t5 ct2 bergamot
printf '{"model_type": "t5"}' > t5/config.json
printf '{"bos_token": "<s>"}' > ct2/config.json
touch ct2/model.bin ct2/shared_vocabulary.json bergamot/model.enfr.intgemm.alphas.bin bergamot/vocab.enfr.spm
printf 'PK\3\4' > m.zip && cp m.zip m.argosmodel
expect 2 't5: this is a model of Hugging Face of the type "t5"' "$attn" translate t5 a
expect 2 'ct2: this is a model of CTranslate2' "$attn" translate ct2 a
expect 2 'bergamot: this is a model of bergamot' "$attn" show bergamot a -o a.svg
expect 2 'm.zip: this is a zip archive; ' "$attn" translate m.zip a
expect 2 'm.argosmodel: this is a package of Argos Translate' "$attn" translate m.argosmodel a
# shellcheck disable=SC2086
"$attn" train translate $tiny --out tuned --from model --epochs 1 --quiet > /dev/null || fail "train translate --from fails"
# shellcheck disable=SC2086
"$attn" train translate $tiny --out named --from foreign --names words.names --epochs 1 --quiet > /dev/null || fail "train translate --names fails"
cmp -s tuned/model.safetensors named/model.safetensors || fail "train translate by a names file ends elsewhere"
expect 0 . "$attn" translate named 'Is the door open?'
expect 2 'the setting "architecture" is missing' "$attn" translate foreign 'Is it?'
expect 2 'no rule' "$attn" translate foreign 'Is it?' --names torch-transformer

# ---- errors inside are printed whole, for one batch as for several on several threads
mkdir short
cp model/source.vocab model/target.vocab model/model.safetensors short
sed 's/"max_len": *[0-9]*/"max_len": 5/; s/"compat": *"none"/"compat": "d2l"/' model/config.json > short/config.json
for threads in 1 2; do
    expect 2 'max_len is 5' "$attn" translate short 'Where is the station?' 'Is the door open?' --batch 1 --threads $threads
done

# ---- lines are as long as the model has positions, whatever the training took; what is cut is said, with --quiet too
long=$(yes 'open door' | head -n 60 | tr '\n' ' ')
printf '%s is the station?\n%s is the door open?\n' "$long" "$long" > long.txt
"$attn" translate model --quiet --json < long.txt > found.txt 2> err.txt || fail "long lines: $(cat err.txt)"
same "cut lines of 124 words" 0 "$(grep -c '"truncated": *true' found.txt)"
[ -s err.txt ] && fail "long lines: $(cat err.txt)"
same "translations of two long lines" 2 "$(sed 's/.*"score": *\([^,]*\),.*/\1/' found.txt | sort -u | wc -l)"
sed 's/"max_len": *[0-9]*/"max_len": 6/' model/config.json > short/config.json
for how in '' --quiet '--json --quiet'; do
    # shellcheck disable=SC2086
    "$attn" translate short $how 'Where is the old station?' 'Go.' > out.txt 2> err.txt || fail "a line that is cut: $(cat err.txt)"
    grep -q 'sentence 1 is longer than the translator supports' err.txt || fail "a cut line is not said ($how)"
    grep -q 'sentence 2' err.txt && fail "a whole line is said to be cut"
done
# five words and the end are left: nothing is linked to a word that was cut
"$attn" translate short --quiet --alignments < long.txt 2> err.txt | cut -f 2 | tr ' ' '\n' > links.txt
[ -s links.txt ] && ! grep -v '^[0-4]-[0-9]*$' links.txt > out.txt || fail "links of a cut line: $(cat out.txt)"
expect 0 . "$attn" eval short --data phrasebook --part all --quiet
grep -q 'sentences are longer than the translator supports' err.txt || fail "eval does not say what is cut"

# ---- what is no text is left out, its line stays empty, and the end says which; --strict stops
printf 'Go.\na\0b\n\377\nIs the door open?\n' > bad.txt
{ head -c 200000 /dev/zero | tr '\0' x; printf ' end\nWhere is the station?\n'; } >> bad.txt
printf 'Go.\n\n\nIs the door open?\n\nWhere is the station?\n' | "$attn" translate model --quiet > whole.txt
for how in '' --stream; do
    # shellcheck disable=SC2086
    "$attn" translate model --quiet $how < bad.txt > found.txt 2> err.txt
    same "exit status of bad lines ($how)" 2 $?
    cmp -s whole.txt found.txt || fail "bad lines change the others ($how): $(cat found.txt)"
    same "complaints ($how)" 4 "$(wc -l < err.txt)"
    grep -q '3 of 6 sentences failed: 2, 3, 5' err.txt || fail "bad lines are not listed ($how): $(cat err.txt)"
done
"$attn" translate model --quiet --strict < bad.txt > found.txt 2> err.txt && fail "--strict goes on"
same "lines with --strict" 1 "$(wc -l < found.txt)"
"$attn" translate model --quiet 'Go.' "$(printf 'a\377')" 'Is the door open?' > found.txt 2> err.txt
same "exit status of a bad sentence" 2 $?
same "lines of a bad sentence" 3 "$(wc -l < found.txt)"
printf 'Go.\tzyxw\nIs the door open?\n' | "$attn" translate model --quiet --prefix > found.txt 2> err.txt
same "exit status of a bad beginning" 2 $?
grep -q '1 of 2 sentences failed: 1$' err.txt || fail "the sentence of a bad beginning is not named: $(cat err.txt)"
same "the translation behind a bad beginning" "$("$attn" translate model --quiet 'Is the door open?')" "$(sed -n 2p found.txt)"

# ---- pairs with an empty side are left out of a training, of an evaluation and of a lexicon, and listed
printf 'Go.\t\nno tab\n\tVa.\na\tb\0c\n' | cat - "$root/data/phrasebook.tsv" > holes.tsv
"$attn" train translate --data holes.tsv --out holes --epochs 1 --max-examples 300 --num-hiddens 8 --num-blks 1 --num-heads 1 --ffn-num-hiddens 8 --quiet > out.txt 2> err.txt
same "exit status of a training with holes" 2 $?
grep -q 'holes.tsv:1: the sentence after the tab is missing: left out' err.txt || fail "an empty side is not named: $(cat err.txt)"
grep -q '4 of .* sentence pairs failed: line 1, line 2, line 3, line 4' err.txt || fail "holes are not listed: $(cat err.txt)"
grep -q 'translator is in holes' out.txt || fail "a training with holes does not end"
"$attn" eval holes --data holes.tsv --part all --quiet > out.txt 2> err.txt
same "exit status of an evaluation with holes" 2 $?
grep -q BLEU out.txt && grep -q '4 of .* failed: line 1, line 2, line 3, line 4' err.txt || fail "eval with holes: $(cat out.txt err.txt)"
expect 2 'holes.tsv:1' "$attn" train translate --data holes.tsv --out strict --strict
expect 2 'holes.tsv:1' "$attn" eval holes --data holes.tsv --part all --strict
[ -e strict ] && fail "--strict makes a directory"

# ---- translate: a line for a line, the same from arguments, a file and a pipe
expect 0 . "$attn" translate model 'Is the door open?' '' 'Where is the station?'
same "lines" 3 "$(wc -l < out.txt)"
same "the empty line's translation" "" "$(sed -n 2p out.txt)"
cp out.txt arguments.txt
printf 'Is the door open?\r\n\nWhere is the station?' > in.txt
"$attn" translate model < in.txt > out.txt 2> err.txt || fail "translate from a file: $(cat err.txt)"
cmp -s out.txt arguments.txt || fail "a file is not translated as arguments are"
cat in.txt | "$attn" translate model --threads 1 > out.txt 2> err.txt
cmp -s out.txt arguments.txt || fail "a pipe is not translated as arguments are"
same "lines from an empty file" 0 "$("$attn" translate model < /dev/null | wc -l)"

# Each line's translation comes before the next line does.
mkfifo question answer
env -u OMP_NUM_THREADS -u GOMP_SPINCOUNT BEGUN=once "$attn" translate model < question > answer &
exec 3> question 4< answer
echo 'Is the door open?' >&3
IFS= read -r first <&4
# It runs in the environment that it was given: it sets nothing and does not begin again.
if [ -r /proc/$$/environ ] && [ -r "/proc/$!/environ" ]; then
    tr '\0' '\n' < "/proc/$!/environ" | grep -q '^BEGUN=once$' || fail "the command's environment is not looked at"
    same "settings of OpenMP in the command's environment" "" "$(tr '\0' '\n' < "/proc/$!/environ" | grep -E '^(GOMP|OMP)_')"
fi
echo >&3
IFS= read -r second <&4
exec 3>&- 4<&-
wait $!
same "the first answer while the input is open" "$(sed -n 1p arguments.txt)" "$first"
same "the answer to an empty line" "" "$second"

# At a terminal it prints what it waits for; a pipe gets nothing but translations.
if command -v script > /dev/null; then
    printf 'Go.\n\004' | timeout 30 script -qec "'$attn' translate model" typed.txt > /dev/null 2>&1
    grep -q 'type a sentence a line; Ctrl-D ends' typed.txt || fail "nothing is said at a terminal: $(cat typed.txt)"
fi

# The totals come before the list of tensors.
"$attn" info model | sed -n '/^Memory/,/^Tensors/p' | grep -q 'training with Adam' || fail "info: the list is before the totals"

# ---- a run that ends inside its warm-up
# shellcheck disable=SC2086
expect 0 'warning: the rate rises for 1,000 steps and the run has 9: .* --warmup 1 ' "$attn" train translate $tiny \
    --epochs 1 --warmup 1000 --out cold

expect 0 'unknown word: zyzzyva' "$attn" translate model 'The zyzzyva is here.'
expect 0 . "$attn" translate model --quiet 'The zyzzyva is here.'
same "notes under --quiet" 0 "$(wc -c < err.txt)"
expect 0 '"unknown_words":"zyzzyva"' "$attn" translate model --json 'The zyzzyva is here.'
same "objects on lines of their own" 2 "$("$attn" translate model --json 'Go.' '' 2> /dev/null | wc -l)"
expect 0 '' "$attn" translate model --beam 3 --length-penalty=0.6 --tokens -- 'Is the door open?'

# ---- doubtful translations: a score per token below the limit of the directory, or unknown words
limit() { printf '{"score_per_token": %s, "sentences": 9}\n' "$1" > limited/low_score.json; }
grep -q '"score_per_token": -[0-9]' model/low_score.json || fail "a training writes no limit of scores: $(cat model/low_score.json)"
cp -r model limited && limit 0
expect 0 'note: sentence 2: doubtful: the translation has a low score' "$attn" translate limited 'Is the door open?' 'Go.'
same "translations beside notes" "$("$attn" translate model 'Is the door open?' -q 2> /dev/null)" \
    "$("$attn" translate limited 'Is the door open?' 2> /dev/null)"
expect 0 '"doubtful":true' "$attn" translate limited --json 'Is the door open?'
yes 'Is the door open?' | head -n 12 | "$attn" translate limited 2> err.txt > /dev/null
[ ! -s err.txt ] || fail "the lines of a file are judged without --scores: $(cat err.txt)"
yes 'Is the door open?' | head -n 12 | "$attn" translate limited --scores 2> err.txt > /dev/null
same "doubtful sentences named" 10 "$(grep -c ': doubtful: ' err.txt)"
grep -q 'note: 2 more translations have a low score' err.txt || fail "low scores are not summed up: $(cat err.txt)"
limit -1e9
expect 0 '"doubtful":false' "$attn" translate limited --json 'Is the door open?'
expect 0 '"doubtful":true' "$attn" translate limited --json 'The zyzzyva is here.'
limit '"low"'
expect 2 'limited/low_score.json: "score_per_token" is not a number' "$attn" translate limited 'Go.'

# ---- a vocabulary of pieces: nothing is unknown, case is kept, a model goes on from its checkpoint
# shellcheck disable=SC2086
"$attn" train translate $tiny --out pieces --epochs 1 --vocabulary unigram --vocabulary-size 400 > out.txt 2> err.txt
if grep -q 'subwords need SentencePiece' err.txt; then
    echo "built without SentencePiece: pieces are left out"
else
    [ -s pieces/source.spm ] && [ -s pieces/target.spm ] || fail "no pieces: $(cat err.txt)"
    [ ! -e pieces/source.vocab ] || fail "a model of pieces has words too"
    expect 0 '"unknown":0' "$attn" translate pieces --json 'The ZYZZYVA is here \342\230\203.'
    expect 0 'BLEU' "$attn" eval pieces
    expect 0 'attention.svg' "$attn" show pieces 'Is the door open?' -o attention.svg --kinds cross
    expect 0 . "$attn" train translate --out pieces --resume --epochs 16
    expect 0 'fine.html' "$attn" show pieces 'Is the door open?' -o fine.html
    expect 0 'words.html' "$attn" show pieces 'Is the door open?' --words -o words.html
    ! command -v python3 > /dev/null || python3 "$root/tests/word_maps.py" fine.html words.html 'Is the door open?' ||
        fail "show --words does not join pieces"
    expect 0 'pieces.html' "$attn" show pieces 'Go.' -o pieces.html
    grep -q '"title":"[^"]*▁' pieces.html && fail "the title of a page holds pieces: $(grep -o '"title":"[^"]*' pieces.html)"
    # a pair for each word of the translation, whose source word is one of the line's
    "$attn" translate pieces --quiet --alignments 'Is the door open?' 'Go.' '' > aligned.txt
    awk -F '\t' 'BEGIN { words[1] = 4; words[2] = 1; words[3] = 0 }
        { if (split($2, pairs, " ") != split($1, said, " ")) bad = 1
          for (j in pairs) { split(pairs[j], p, "-"); if (p[2] != j - 1 || p[1] < 0 || p[1] >= words[NR]) bad = 1 } }
        END { exit bad || NR != 3 }' aligned.txt || fail "alignments: $(cat aligned.txt)"
    printf 'Is the door open?\tLa porte\nGo.\n' | "$attn" translate pieces --quiet --prefix > begun.txt
    grep -q '^La porte' begun.txt || fail "a translation does not begin as it must: $(cat begun.txt)"
    same "a line without a beginning" "$("$attn" translate pieces --quiet 'Go.')" "$(sed -n 2p begun.txt)"
    head -c 1000 pieces/source.spm > half.spm && mv half.spm pieces/source.spm
    expect 2 'pieces/source.spm' "$attn" translate pieces 'Go.'
fi

# ---- eval
expect 0 'BLEU (d2l)' "$attn" eval model --samples 2
same "samples" 2 "$(grep -c '^reference' out.txt)"
for part in train valid all; do
    expect 0 "part  *$part" "$attn" eval model --part $part --data phrasebook
done
printf 'Is the door open?\tLa porte est-elle ouverte ?\nA zyzzyva.\tUn zyzzyva.\n' > own.tsv
expect 0 '"sentences": 2' "$attn" eval model --data own.tsv --part all --json --samples 2
said=$("$attn" translate model 'Is the door open?' --json -q | sed -n 's/.*"translation":"\(.*\)","tokens".*/\1/p')
same "the first sample" "is the door open ?|la porte est-elle ouverte ?|$said" \
    "$(sed -n 's/^ *"\(source\|reference\|prediction\)": "\(.*\)",*$/\2/p' out.txt | head -3 | paste -s -d '|')"

# ---- show: of the kind that the file's name selects
for kind in png svg pdf; do
    expect 0 "attention.$kind" "$attn" show model 'Is the door open?' -o attention.$kind --kinds cross
done
head -c 8 attention.png | od -An -tx1 | grep -q '89 50 4e 47' || fail "attention.png is no PNG"
grep -q '<svg' attention.svg || fail "attention.svg is no SVG"
head -c 5 attention.pdf | grep -q '%PDF-' || fail "attention.pdf is no PDF"

# ---- at most so many tokens, and reading ahead keeps the order of more lines than a batch has
"$attn" translate model --tokens --max-length 1 --quiet 'Is the door open?' > out.txt
[ "$(wc -w < out.txt)" -le 1 ] || fail "--max-length 1 gave $(cat out.txt)"
expect 2 'the minimum number of tokens is 3, but a translation can have at most 2' \
    "$attn" translate model --min-length 3 --max-length 2 'Is the door open?'
expect 2 'the minimum number of tokens is 5000, but a translation can have at most 1000' \
    "$attn" translate model --min-length 5000 'Is the door open?'
"$attn" translate model --quiet 'Is the door open?' 'Go.' '' > three.txt
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    printf 'Is the door open?\nGo.\n\n'
    cat three.txt >> wanted.txt
done > many.txt
"$attn" translate model --quiet < many.txt > found.txt
cmp -s wanted.txt found.txt || fail "60 lines read ahead are not translated as each alone"
# A line alone has the words that it has among others, whose translations end sooner or later.
printf '%s\n' 'Go.' 'Is the door open?' 'I lost.' 'Where is the station, please?' 'Thank you very much.' > mixed.txt
for beam in 1 4; do
    "$attn" translate model --quiet --tokens --beam $beam < mixed.txt > together.txt
    while read -r line; do "$attn" translate model --quiet --tokens --beam $beam "$line"; done < mixed.txt > alone.txt
    cmp -s together.txt alone.txt || fail "with --beam $beam a line alone is not translated as among others"
done
# ---- n-best, scores, line by line; lines have the numbers that arguments have
"$attn" translate model --beam 2 --nbest 2 'Go.' '' 'Is zyxw open?' > nbest.txt 2> notes.txt
grep -q 'sentence 3: unknown word: zyxw' notes.txt || fail "an unknown word is not noted: $(cat notes.txt)"
printf 'Go.\n\nIs zyxw open?\n' | "$attn" translate model --beam 2 --nbest 2 > found.txt 2> err.txt
cmp -s nbest.txt found.txt && cmp -s notes.txt err.txt || fail "lines have other numbers than arguments: $(cat found.txt err.txt)"
"$attn" translate model --quiet --beam 4 'Is the door open?' '' 'Go.' > best.txt
"$attn" translate model --quiet --beam 4 --nbest 4 'Is the door open?' '' 'Go.' > nbest.txt
for i in 0 1 2; do
    same "the first of the four of sentence $i" "$(sed -n "$((i + 1))p" best.txt)" \
        "$(sed -n "s/^$i ||| \(.*\) ||| [^|]*$/\1/p" nbest.txt | head -n 1)"
done
same "what an empty line gives" "1 |||  ||| 0" "$(grep '^1 ' nbest.txt)"
same "translations of a sentence" 4 "$(grep -c '^0 ||| ' nbest.txt)"
awk -F ' [|][|][|] ' '$1 == last && $3 + 0 > score + 0 { bad = 1 } { last = $1; score = $3 } END { exit bad }' nbest.txt ||
    fail "the translations of a sentence are not in the order of their scores: $(cat nbest.txt)"
"$attn" translate model --quiet --beam 4 --scores 'Is the door open?' '' 'Go.' > scores.txt
for i in 0 1 2; do
    same "the score of sentence $i" "$(sed -n "s/^$i ||| .* ||| //p" nbest.txt | head -n 1)" \
        "$(sed -n "$((i + 1))p" scores.txt | cut -f 2)"
done
expect 0 '"index":1' "$attn" translate model --json --beam 2 --nbest 2 'Go.' 'Wait.'
same "objects of two sentences" 4 "$(wc -l < out.txt)"
expect 2 '--nbest is 3, more than the beam, 2; give --beam 3 or more' "$attn" translate model --beam 2 --nbest 3 'Go.'
for beam in 1 3; do
    "$attn" translate model --quiet --scores --beam $beam < many.txt > found.txt
    "$attn" translate model --quiet --scores --beam $beam --stream < many.txt > wanted.txt
    cmp -s wanted.txt found.txt || fail "a sentence in a batch has other bits than by itself, with a beam of $beam"
done

# ---- minimum Bayes risk: the same translations in another order, their expected chrF as scores
"$attn" translate model --quiet --beam 6 --nbest 6 < mixed.txt | sed 's/ ||| [^|]*$//' | sort > likeliest.txt
"$attn" translate model --quiet --beam 6 --nbest 6 --mbr < mixed.txt > mbr.txt
same "translations to choose from" "$(cat likeliest.txt)" "$(sed 's/ ||| [^|]*$//' mbr.txt | sort)"
awk -F ' [|][|][|] ' 'NR > 1 && $1 == last && $3 + 0 > score + 0 || $3 + 0 < 0 || $3 + 0 > 100 { bad = 1 } { last = $1; score = $3 } END { exit bad }' \
    mbr.txt || fail "not in the order of their expected chrF: $(cat mbr.txt)"
same "the choice alone" "$(awk -F ' [|][|][|] ' 'NR == 1 || $1 != last { print $2 } { last = $1 }' mbr.txt)" \
    "$("$attn" translate model --quiet --beam 6 --mbr < mixed.txt)"
"$attn" translate model --quiet --beam 6 --mbr --scores --alignments --threads 1 < mixed.txt > wanted.txt
"$attn" translate model --quiet --beam 6 --mbr --scores --alignments --threads 2 --stream < mixed.txt > found.txt
cmp -s wanted.txt found.txt || fail "a choice by minimum Bayes risk has other bits by itself"
expect 2 'mbr needs a beam of 2 or more; the beam is 1' "$attn" translate model --mbr 'Go.'

for batch in 0 1025; do
    expect 2 "--batch cannot be $batch; it must be between 1 and 1024" "$attn" translate model --batch $batch 'Go.'
done

# ---- batches are divided among several threads, with the bits of one
cat many.txt mixed.txt many.txt mixed.txt > more.txt
for beam in 1 3; do
    "$attn" translate model --quiet --scores --alignments --beam $beam --threads 1 --batch 5 < more.txt > wanted.txt
    for threads in 2 3; do
        "$attn" translate model --quiet --scores --alignments --beam $beam --threads $threads < more.txt > found.txt
        cmp -s wanted.txt found.txt || fail "$threads threads have other bits than one, with a beam of $beam"
    done
done

# ---- a lexicon from the pairs of the training, and translations made of its tokens
expect 0 'lex.s2t: .* entries from .* sentence pairs' "$attn" align model --lexicon lex.s2t
expect 2 'give --lexicon FILE or --alignments FILE' "$attn" align model
expect 2 'nowhere.* No such file' "$attn" align nowhere --lexicon none.s2t
[ -e none.s2t ] && fail "a failed attn align left a file"
same "fields of each line" 3 "$(awk '{ print NF }' lex.s2t | sort -u)"
expect 0 '"entries": [1-9]' "$attn" align model --data phrasebook --part all --lexicon all.s2t --best 2 --iterations 2 --json
for precision in f32 bf16 int8; do
    for beam in 1 3; do
        how="--quiet --scores --precision $precision --beam $beam"
        # shellcheck disable=SC2086
        "$attn" translate model $how < more.txt > wanted.txt
        # shellcheck disable=SC2086
        "$attn" translate model $how --shortlist lex.s2t --shortlist-first 1000000 < more.txt > found.txt || fail "--shortlist fails"
        cmp -s wanted.txt found.txt || fail "a shortlist of all tokens changes translations ($how)"
        # shellcheck disable=SC2086
        "$attn" translate model $how --shortlist lex.s2t --shortlist-first 4 --shortlist-best 1 --threads 1 < more.txt > wanted.txt
        # shellcheck disable=SC2086
        "$attn" translate model $how --shortlist lex.s2t --shortlist-first 4 --shortlist-best 1 --threads 3 < more.txt > found.txt
        cmp -s wanted.txt found.txt || fail "translations with a shortlist depend on the threads ($how)"
        # shellcheck disable=SC2086
        "$attn" translate model $how --shortlist lex.s2t --shortlist-first 4 --shortlist-best 1 --stream < more.txt > found.txt
        cmp -s wanted.txt found.txt || fail "translations with a shortlist depend on their batch ($how)"
    done
done
printf 'va door 1\n. ? 0.5\n' > few.s2t
"$attn" translate model --quiet --tokens --shortlist few.s2t --shortlist-first 4 'Is the door open?' > few.txt
tr ' ' '\n' < few.txt | grep -qvxE 'va|\.|<unk>|' && fail "words that the shortlist lacks: $(cat few.txt)"
printf 'Is the door open?\tje\n' | "$attn" translate model --quiet --tokens --prefix --shortlist few.s2t --shortlist-first 4 > few.txt
grep -q '^je' few.txt || fail "a prefix is not added to the shortlist: $(cat few.txt)"
expect 0 BLEU "$attn" eval model --data phrasebook --part all --shortlist lex.s2t
expect 2 'need --shortlist FILE' "$attn" translate model --shortlist-best 5 'Go.'
expect 2 'none.s2t' "$attn" translate model --shortlist none.s2t 'Go.'
# Each refused in one line: nothing, two fields, unknown tokens, no probability, damaged UTF-8, a line of 1 MB.
refuse_lexicon() {
    expect 2 "$1" "$attn" translate model --shortlist bad.s2t 'Go.'
    same "lines about a lexicon ($1)" 1 "$(wc -l < err.txt)"
}
: > bad.s2t && refuse_lexicon 'the lexicon has no entries'
printf 'va go\n' > bad.s2t && refuse_lexicon 'bad.s2t:1: expected three fields'
printf 'va go 1\nzyzzyva go 1\n' > bad.s2t && refuse_lexicon 'bad.s2t:2: "zyzzyva" is not a token of the target vocabulary'
printf 'va go nan\n' > bad.s2t && refuse_lexicon 'bad.s2t:1: "nan" is not a probability from 0 to 1'
printf 'v\303 go 1\n' > bad.s2t && refuse_lexicon 'bad.s2t:1: invalid UTF-8 at byte 2'
head -c 1000000 /dev/zero | tr '\0' x > bad.s2t && refuse_lexicon 'bad.s2t:1: the line has 1000000 bytes'

# ---- alignments and given beginnings
"$attn" translate model --quiet --beam 4 --alignments --scores 'Is the door open?' '' 'Go.' > aligned.txt
same "translations beside alignments" "$(cat scores.txt)" "$(cut -f 1,2 aligned.txt)"
same "pairs of a translation" "$(cut -f 1 best.txt | sed -n 1p | sed 's/[?.,!]/ &/g' | wc -w)" \
    "$(sed -n 1p aligned.txt | cut -f 3 | wc -w)"
"$attn" translate model --quiet --beam 4 --nbest 4 --alignments 'Is the door open?' '' 'Go.' > nbest.txt
same "the alignment of the first of the four" "$(cut -f 3 aligned.txt | sed -n 1p)" "$(sed -n '1s/.* ||| //p' nbest.txt)"
same "fields of an empty line" "1 |||  ||| 0 ||| " "$(grep '^1 ' nbest.txt)"
printf 'Is the door open?\t%s\nGo.\t\n' "$("$attn" translate model --quiet --tokens 'Is the door open?')" > begun.tsv
"$attn" translate model --quiet --scores --prefix < begun.tsv > begun.txt
same "what begins as it is" "$("$attn" translate model --quiet --scores 'Is the door open?' 'Go.')" "$(cat begun.txt)"
expect 2 'cannot begin with "zyzzyva"' "$attn" translate model --prefix "$(printf 'Go.\tzyzzyva')"
# With --strict, the sentences after a bad one are not translated, not even those that are read later.
{ printf 'Go.\tzyzzyva\n'; yes Go. | head -1100; } > strict.tsv
expect 2 'line 1: .*cannot begin with "zyzzyva"' sh -c "'$attn' translate model --strict --prefix < strict.tsv"
same "lines after a bad one" 0 "$(wc -l < out.txt)"
expect 2 'the translation has more than 2 tokens, the limit' "$attn" translate model --max-length 3 --prefix "$(printf 'Go.\tva va va')"

# ---- unknown words of many sentences are summed up; empty lines cost nothing; bad lines are refused
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13; do echo 'The zyzzyva qqq.'; done | "$attn" translate model > out.txt 2> err.txt
same "sentences named" 10 "$(grep -c ': unknown words: zyzzyva, qqq' err.txt)"
grep -q '3 more sentences have unknown words: 6 in all' err.txt || fail "unknown words are not summed up: $(cat err.txt)"
same "empty lines" 100000 "$(yes '' | head -n 100000 | "$attn" translate model | grep -c '^$')"
head -c 1000000 /dev/zero | tr '\0' a > long.txt
expect 2 'standard input:1: the sentence is longer than 65536 bytes' sh -c "'$attn' translate model < long.txt"
printf 'Go.\n\355\240\200\n' > surrogate.txt
expect 2 'standard input:2' sh -c "'$attn' translate model --strict < surrogate.txt"
same "translations before the bad line" 1 "$(wc -l < out.txt)"

# A word that the vocabulary lacks is labelled as it was written.
expect 0 'attention.html' "$attn" show model 'The zyzzyva is here.' -o attention.html
grep -q '"zyzzyva"' attention.html || fail "an unknown word is not labelled by itself"
same "labels <unk> of the source" 0 "$(grep -o '"queries":\["the"[^]]*<unk>' attention.html | wc -l)"

damaged model show damaged 'Is the door open?'
damaged model translate damaged 'Is the door open?'

# Another word of the source has other weights.
for word in door window; do
    "$attn" show model "Is the $word open?" -o "$word.html" --kinds encoder > said.txt 2>&1 || fail "show $word: $(cat said.txt)"
    grep -o '"peaks":.*\]\]' "$word.html" > "$word.peaks" || fail "$word.html holds no weights"
done
cmp -s door.peaks window.peaks && fail "show does not tell two words of the source apart"

# ---- info, list, run
expect 0 'encoder.embedding.weight .* x 32' "$attn" info model
expect 0 '"num_hiddens": 32' "$attn" info model --json
expect 0 transformer "$attn" list
expect 0 'num_hiddens' "$attn" list transformer
expect 0 'arXiv' "$attn" list transformer --json
expect 0 'decoder.blks.block1.addnorm3.ln.bias' "$attn" list --all
for name in $("$attn" list | sed -n 's/^\([a-z][a-z0-9-]*\) .*/\1/p'); do
    grep -q "^$name: " out.txt || fail "list --all leaves out $name"
done
if command -v python3 > /dev/null; then
    "$attn" info model --json | python3 -m json.tool > /dev/null || fail "info --json is not JSON"
    "$attn" list --json | python3 -m json.tool > /dev/null || fail "list --json is not JSON"
    "$attn" eval model --json -n 3 | python3 -m json.tool > /dev/null || fail "eval --json is not JSON"
fi

# ---- a demo does not take another translator's place
expect 2 "attn demo did not make" sh -c "sed -i 's/\"phrasebook\"/\"mine.tsv\"/' model/training.json && '$attn' demo -o model"
[ -s model/model.safetensors ] || fail "the demo removed a translator that is not its own"
exit $failed
