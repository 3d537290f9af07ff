#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-tsan
# Settings, inputs and parameters of every architecture have the names and shapes of its original.
set -eu
: "${ATTN_BUILD:?the build directory}"
command -v python3 >/dev/null || { echo "not tried: no python3 here"; exit 77; }
python3 tests/names.py "$ATTN_BUILD/attn"
