# SPDX-License-Identifier: MIT
"""The grammar of attention problems: b2h8q512k512d64[:causal][,bf16]; `:` and `,` both separate the options."""
import re
from dataclasses import dataclass

GRAMMAR = re.compile(r"b(\d+)h(\d+)q(\d+)k(\d+)d(\d+)((?:[:,](?:causal|bf16))*)")

DEFAULT = [
    "b1h8q1024k1024d64", "b1h8q2048k2048d64", "b1h8q4096k4096d64",
    "b1h8q1024k1024d128", "b1h8q2048k2048d128", "b1h8q4096k4096d128",
    "b8h12q197k197d64", "b1h8q2048k2048d64:causal", "b128h4q10k10d64", "b64h8q32k32d64",
    "b1h8q1024k1024d64,bf16", "b1h8q2048k2048d64,bf16", "b1h8q4096k4096d64,bf16", "b8h12q197k197d64,bf16",
]


@dataclass(frozen=True)
class Problem:
    batch: int
    heads: int
    queries: int
    keys: int
    width: int
    causal: bool
    dtype: str

    def operations(self, direction):
        """Floating-point operations: two products forward, five backward; causal counts the pairs that attend."""
        q, k = self.queries, self.keys
        pairs = sum(min(row + 1, k) for row in range(q)) if self.causal else q * k
        return {"forward": 4, "backward": 10}[direction] * self.batch * self.heads * pairs * self.width


def parse(text):
    """The problem that a text describes; ValueError where it does not fit the grammar."""
    match = GRAMMAR.fullmatch(text)
    if not match:
        raise ValueError(f"{text}: not of the form b2h8q512k512d64[:causal][,bf16]")
    options = re.split("[:,]", match[6])
    return Problem(*map(int, match.groups()[:5]), "causal" in options, "bf16" if "bf16" in options else "f32")
