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

# The wheel holds the library: it works without PYTHONPATH and ATTN_LIBRARY.
if "$python" -m pip --version >/dev/null 2>&1; then
    "$python" -m pip wheel --quiet --no-deps --no-index --disable-pip-version-check --wheel-dir "$dir" python/
else
    (cd python && "$python" -c "import sys, wheel_backend; wheel_backend.build_wheel(sys.argv[1])" "$dir")
fi
mkdir "$dir/site"
"$python" -m zipfile -e "$dir"/attn-*.whl "$dir/site"
unset ATTN_LIBRARY
cd "$dir"
PYTHONPATH=$dir/site "$python" -c '
import attn, numpy
print("wheel:", attn.__version__, attn.__file__)
x = numpy.ones((1, 3, 2, 4), "f4")
assert abs(attn.attend(x, x, x) - 1).max() < 1e-6
assert attn.build("detr-ffn", {"d": 4})(x[:, :, 0]).shape == (1, 3, 4)'
