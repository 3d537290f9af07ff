#!/bin/sh
# SPDX-License-Identifier: MIT
# What is too long for `make test`: everything that is done to break the commands, in full.  An hour on a busy machine;
# docs/reliability.md has the figures.
#
#     sh tests/long/break.sh [memory|writing|kills|odd|options|damage|limits|sizes]...
set -eu
cd "$(dirname "$0")/../.."
export ATTN_BUILD="${ATTN_BUILD:-$PWD/build}"
[ $# -gt 0 ] || set -- memory writing kills odd options damage limits sizes
for what; do
    echo "==== $what"
    case $what in
    memory)
        python3 tests/commands/memory.py
        python3 tests/commands/memory.py --slow --sites
        "$ATTN_BUILD/tests/test_models_faults" all
        ;;
    writing | kills | odd | options | damage | limits) python3 "tests/commands/$what.py" ;;
    sizes) "$ATTN_BUILD/tests/test_models_sizes" all ;;
    *)
        echo "$0: there is no $what" >&2
        exit 2
        ;;
    esac
done
