#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-asan no-tsan
# The demo: each sentence that the README, the demo's output and the help texts show or suggest is translated rightly.
. tests/support/cli.sh

"$attn" demo -o demo -q > shown.txt || fail "the demo fails: $(cat shown.txt)"

# ---- the held-out sentences that it shows: a reference is printed where the translation differs
same "sentences shown" 8 "$(grep -cE '  [01]\.[0-9][0-9]$' shown.txt)"
same "sentences translated like their reference" 8 "$(grep -c '  1\.00$' shown.txt)"

# ---- the sentences that are suggested
cat > known.tsv <<'END'
Where is the station?	Où est la gare ?
The window is closed.	La fenêtre est fermée.
Is the door open?	Est-ce que la porte est ouverte ?
END
for command in demo translate show; do "$attn" "$command" --help; done | grep 'attn [a-z]* [^ ]*demo "' > commands.txt
cat shown.txt "$root/README.md" | grep -E 'attn (translate|show) [^ ]+ "' >> commands.txt
sed 's/[^"]*"\([^"]*\)".*/\1/' commands.txt | sort -u > suggested.txt
[ -s suggested.txt ] || fail "no sentence is suggested"
while read -r sentence; do
    want=$(awk -F '\t' -v of="$sentence" '$1 == of { print $2 }' known.tsv)
    [ -n "$want" ] || fail "this test has no translation of: $sentence"
    same "the translation of $sentence" "$want" "$("$attn" translate demo "$sentence" 2>&1)" # no note: not doubtful
done < suggested.txt

# ---- what it cannot translate is doubtful
grep -q '"I love you." it gets wrong, and calls doubtful' shown.txt || fail "the demo does not say what it cannot translate"
expect 0 'note: sentence 1: doubtful' "$attn" translate demo 'I love you.'
exit $failed
