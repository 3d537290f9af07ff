# SPDX-License-Identifier: MIT
"""attn inside PyTorch: attention on the CPU, with gradients.

    import attn.torch
    attn.torch.enable()              # F.scaled_dot_product_attention is attn's where attn is faster
"""
from ._enable import calls, disable, enable
from ._sdpa import scaled_dot_product_attention

__all__ = ["calls", "disable", "enable", "scaled_dot_product_attention"]
