#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-asan no-tsan
# What the documents point to is there: files that they link, commands of attn that they show, make targets.
set -eu
cd "$(dirname "$0")/.."
: "${ATTN_BUILD:?the build directory}"
bad=0
pages=$(git ls-files '*.md' 2>/dev/null || find . -name '*.md' -not -path './build*')

# The headings of a page as the anchors of a browser.
headings() {
    sed -n 's/^##* //p' "$1" | tr 'A-Z ' 'a-z-' | sed 's/[^a-z0-9_-]//g'
}

for page in $pages; do
    dir=$(dirname "$page")
    for link in $(grep -oE '\]\([^)#]+' "$page" | sed 's/](//' | grep -vE '^(https?:|mailto:)' || true); do
        [ -e "$dir/$link" ] || { echo "$page links $link, which is not there"; bad=1; }
    done
    # [words](page.md#heading) and [words](#heading): the page has that heading
    for link in $(grep -oE '\]\([^):]*#[^)]+' "$page" | sed 's/](//' || true); do
        target=${link%%#*}
        headings "${target:+$dir/}${target:-$page}" | grep -qxF -e "${link#*#}" || { echo "$page links $link: no such heading"; bad=1; }
    done
    awk -v page="$page" '/^```/ { code = !code } !code && /^\|/ && !/\| *$/ { print page ":" NR ": a row of a table does not end with |"; bad = 1 } END { exit bad }' \
        "$page" || bad=1
    # "build/attn train translate --data x" -> the command and its options are known
    grep -oE '(build/|`)attn [a-z][^|#`<]*' "$page" | grep -vF '...' | sort -u > "${TMPDIR:-/tmp}/attn-docs.$$" || true
    while read -r _ first second rest; do
        name=$first
        case "$first $second" in train\ * | bench\ [a-z]* | demo\ detect) name="$first $second" ;; esac
        help=$("$ATTN_BUILD/attn" help $name 2>/dev/null || "$ATTN_BUILD/attn" $name --help 2>/dev/null) || { echo "$page: no command attn $name"; bad=1; continue; }
        for option in $(echo "$second $rest" | grep -oE '(^| )--[a-z0-9-]+' || true); do
            echo "$help" | grep -q -e "$option" || { echo "$page: attn $name has no $option"; bad=1; }
        done
    done < "${TMPDIR:-/tmp}/attn-docs.$$"
    rm -f "${TMPDIR:-/tmp}/attn-docs.$$"
done
# The table that leads from texts to attn: its tests are there, and its names are those of layers, headers, commands or Python.
known=${TMPDIR:-/tmp}/attn-known.$$
{
    for name in $("$ATTN_BUILD/attn" list | sed -n 's/^\([a-z][a-z0-9-]*\)  .*/\1/p'); do
        printf '%s\n' "$name"
        "$ATTN_BUILD/attn" list "$name"
    done
    for command in eval plot show list run generate complete convert translate contacts 'train classify' 'train images' 'train msa' \
        'train translate' 'train contacts'; do
        "$ATTN_BUILD/attn" help $command
    done
    cat include/attn/*.h python/attn/*.py
} > "$known"
grep '^|' docs/seeds.md | while IFS='|' read -r _ _ ours tests _; do
    for name in $(echo "$ours" | grep -oE '`[^`]+`' | tr -c 'A-Za-z0-9_.\n-' ' '); do
        grep -qwF -e "$name" "$known" || echo "docs/seeds.md names $name, which attn does not have"
    done
    for name in $(echo "$tests" | grep -oE '`[^`]+`' | tr -d '`'); do
        [ -e "tests/$name" ] || [ -e "$name" ] || echo "docs/seeds.md names the test $name, which is not there"
    done
done > "$known.bad"
[ ! -s "$known.bad" ] || { cat "$known.bad"; bad=1; }
rm -f "$known" "$known.bad"
for target in $(grep -ohE '^    make [a-z-]+( [a-z-]+)*' $pages | sed 's/ *make //' | tr ' ' '\n' | sort -u); do
    grep -qE "^(define sanitized|$target:)|^$target " Makefile || { echo "the documents name make $target"; bad=1; }
done
exit $bad
