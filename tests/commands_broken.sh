#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-tsan
# Every command with failing allocations and failing disks, a few places of each, in another language, with clocks that
# run backwards, with strange values and damaged names files; all of it: tests/long/break.sh. Preloaded libraries do not
# work with a sanitizer, whose builds lack them.
[ -e "$ATTN_BUILD/tests/libfailing_memory.so" ] || exit 77
python3 tests/commands/memory.py --each 5 && python3 tests/commands/memory.py --own --each 20 &&
    python3 tests/commands/writing.py --each 3 --quick &&
    python3 tests/commands/odd.py --only language &&
    python3 tests/commands/odd.py --only clock &&
    python3 tests/commands/options.py --each 97 &&
    python3 tests/commands/damage.py --each 4 --share 31 --only names
