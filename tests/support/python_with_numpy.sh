# SPDX-License-Identifier: MIT
# Read by tests in the sources' folder: `python` becomes the first Python here that has NumPy. Where none has, the test is skipped.
python=
for candidate in "${PYTHON:-}" python3 /usr/bin/python3 build/venv/bin/python; do
    [ "$candidate" ] && "$candidate" -c 'import numpy' 2>/dev/null && python=$candidate && break
done
[ "$python" ] || { echo "not tried: no Python here has NumPy (Debian: python3-numpy)"; exit 77; }
