# SPDX-License-Identifier: MIT
"""`python -m attn` is the command attn."""
from ._command import main

main()
