# SPDX-License-Identifier: MIT
# labels: no-isa no-tsan
# The Python package's own tests, with the first Python here that has NumPy; a wheel is built, installed and used.
set -eu
cd "$(dirname "$0")/.."
: "${ATTN_BUILD:?the build directory}"
ATTN_LIBRARY=$ATTN_BUILD/libattn.so
if nm -D "$ATTN_LIBRARY" 2>/dev/null | grep -qE '__(asan|tsan)_'; then
    echo "not tried: Python cannot load a library built with a sanitizer"
    exit 0
fi
python=
for candidate in "${PYTHON:-}" python3 /usr/bin/python3 build/venv/bin/python; do
    [ "$candidate" ] && "$candidate" -c 'import numpy' 2>/dev/null && python=$candidate && break
done
[ "$python" ] || { echo "not tried: no Python here has NumPy (Debian: python3-numpy)"; exit 0; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export ATTN_LIBRARY ATTN_BUILD PYTHONDONTWRITEBYTECODE=1

PYTHONPATH=python "$python" -W error::ResourceWarning -m unittest discover -s python/tests 2>&1
for example in python/examples/*.py; do
    PYTHONPATH=python "$python" "$example" > "$dir/out.txt" || { echo "$example failed"; exit 1; }
done

# The wheel holds the library and the command: both work without PYTHONPATH and ATTN_LIBRARY. Building leaves no file behind.
untracked() { git status --porcelain 2>/dev/null || true; }
untracked > "$dir/before"
code=0
ATTN_OFFLINE=1 PYTHON=$python sh scripts/wheel "$ATTN_BUILD" "$dir/dist" > "$dir/log" 2>&1 || code=$?
[ $code -eq 0 ] || { cat "$dir/log"; [ $code -eq 77 ] && exit 0; exit 1; }
untracked | cmp -s - "$dir/before" || { echo "building the wheel leaves files:"; untracked; exit 1; }
mkdir "$dir/site"
"$python" -m zipfile -e "$dir"/dist/attn-*.whl "$dir/site"
[ -s "$dir/dist/attn-$("$ATTN_BUILD/attn" version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p').tar.gz" ] || { ls "$dir/dist"; echo "no source archive"; exit 1; }
# The source archive has what its documents link, such as pictures.
mkdir "$dir/sources"
tar -xzf "$dir"/dist/attn-*.tar.gz -C "$dir/sources" --strip-components=1
sh tests/support/dead_links.sh "$dir/sources"
for notice in LICENSE data/LICENSE cmake/copyright; do
    [ -s "$(echo "$dir"/site/attn-*.dist-info)/licenses/$notice" ] || { echo "the wheel has no $notice"; exit 1; }
done
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
