#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-tsan
# A translator's directory as Marian itself leaves it.
set -eu
: "${ATTN_BUILD:?the build directory}"
command -v python3 >/dev/null || { echo "not tried: no python3 here"; exit 77; }
export LSAN_OPTIONS="suppressions=$PWD/tests/support/lsan.txt:print_suppressions=0"
python3 tests/marian_archive.py "$ATTN_BUILD/attn"
