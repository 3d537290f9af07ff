#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-asan no-tsan
# A Python wheel and the source archive are built; the wheel works without the sources, and both have the files that they need.
set -eu
cd "$(dirname "$0")/.."
: "${ATTN_BUILD:?the build directory}"
. tests/support/python_with_numpy.sh
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export PYTHONDONTWRITEBYTECODE=1

# Building leaves no file behind.
untracked() { git status --porcelain 2>/dev/null || true; }
untracked > "$dir/before"
code=0
ATTN_OFFLINE=1 PYTHON=$python sh scripts/wheel "$ATTN_BUILD" "$dir/dist" > "$dir/log" 2>&1 || code=$?
[ $code -ne 77 ] || { echo "not tried: $(sed 's/^not built: //' "$dir/log") (make wheel installs it in build/wheel-env)"; exit 77; }
[ $code -eq 0 ] || { cat "$dir/log"; exit 1; }
untracked | cmp -s - "$dir/before" || { echo "building the wheel leaves files:"; untracked; exit 1; }
mkdir "$dir/site"
"$python" -m zipfile -e "$dir"/dist/attn-*.whl "$dir/site"
[ -s "$dir/dist/attn-$("$ATTN_BUILD/attn" version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p').tar.gz" ] || { ls "$dir/dist"; echo "no source archive"; exit 1; }
# The source archive has what its documents link, such as pictures.
mkdir "$dir/sources"
tar -xzf "$dir"/dist/attn-*.tar.gz -C "$dir/sources" --strip-components=1
sh tests/support/dead_links.sh "$dir/sources"
# The notices are those of what is in the wheel.
licenses=$(echo "$dir"/site/attn-*.dist-info)/licenses
notices="LICENSE data/LICENSE"
! "$ATTN_BUILD/attn" version --build | grep -q '^libraries .*gemmi ' || notices="$notices gemmi.txt"
found=$(cd "$licenses" && find . -type f | sed 's|^\./||' | sort | tr '\n' ' ')
[ "$found" = "$(printf '%s\n' $notices | sort | tr '\n' ' ')" ] || { echo "the wheel has the notices $found, not $notices"; exit 1; }
# The wheel has the library and the command: both work without PYTHONPATH and ATTN_LIBRARY.
unset ATTN_LIBRARY
cd "$dir"
chmod +x site/attn/bin/attn # which zipfile does not do, and pip does
PYTHONPATH=$dir/site "$python" -m attn version
PYTHONPATH=$dir/site "$python" -c '
import attn, numpy
print("wheel:", attn.__version__, attn.__file__)
x = numpy.ones((1, 3, 2, 4), "f4")
assert abs(attn.attend(x, x, x) - 1).max() < 1e-6
assert attn.build("detr-ffn", {"d": 4})(x[:, :, 0]).shape == (1, 3, 4)'
