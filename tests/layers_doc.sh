# SPDX-License-Identifier: MIT
# labels: no-isa no-tsan
# The tables of docs/layers.md name every architecture, with the sources and settings of the registry.
set -eu
cd "$(dirname "$0")/.."
command -v python3 >/dev/null || { echo "not tried: no python3 here"; exit 0; }
python3 scripts/layers-table --strict
