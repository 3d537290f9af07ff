#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-asan no-tsan
# The table of docs/engine.md says of each solver and feature what the solvers say.
set -eu
cd "$(dirname "$0")/.."
: "${ATTN_BUILD:?the build directory}"
command -v python3 >/dev/null || exit 77
exec python3 scripts/solver-table
