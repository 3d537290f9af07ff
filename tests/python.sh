# SPDX-License-Identifier: MIT
# labels: no-isa no-tsan
# The Python package's own tests and examples, with the first Python here that has NumPy.
set -eu
cd "$(dirname "$0")/.."
: "${ATTN_BUILD:?the build directory}"
ATTN_LIBRARY=$ATTN_BUILD/libattn.so
if nm -D "$ATTN_LIBRARY" 2>/dev/null | grep -qE '__(asan|tsan)_'; then
    echo "not tried: Python cannot load a library built with a sanitizer"
    exit 77
fi
. tests/support/python_with_numpy.sh
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export ATTN_LIBRARY ATTN_BUILD PYTHONDONTWRITEBYTECODE=1

PYTHONPATH=python "$python" -W error::ResourceWarning -m unittest discover -s python/tests 2>&1
for example in python/examples/*.py; do
    PYTHONPATH=python "$python" "$example" > "$dir/out.txt" || { echo "$example failed"; exit 1; }
done
