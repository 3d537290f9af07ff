# SPDX-License-Identifier: MIT
"""attn inside PyTorch: attention and linear layers on the CPU, with gradients.

    import attn.torch
    attn.torch.enable()              # F.scaled_dot_product_attention and linear layers are attn's on the CPU
    attn.torch.optimize(model)       # a copy for inference, with packed weights
    attn.torch.register()            # transformers' models take attn_implementation="attn"
"""
from ._enable import calls, disable, enable
from ._flash import (flash_attn_func, flash_attn_kvpacked_func, flash_attn_qkvpacked_func, flash_attn_varlen_func,
                     flash_attn_varlen_kvpacked_func, flash_attn_varlen_qkvpacked_func, flash_attn_with_kvcache)
from ._flash_install import install_flash_attn
from ._layer import Layer
from ._optimize import optimize, report
from ._sdpa import scaled_dot_product_attention
from ._transformers import register
from ._variants import (axial_attention, flex_attention, na1d, na2d, na3d, neighborhood_attention,
                        shifted_window_attention, t5_buckets, tied_row_attention, varlen_attention)
from ._weights import record_weights

__all__ = ["Layer", "axial_attention", "calls", "disable", "enable", "flash_attn_func", "flash_attn_kvpacked_func",
           "flash_attn_qkvpacked_func", "flash_attn_varlen_func", "flash_attn_varlen_kvpacked_func",
           "flash_attn_varlen_qkvpacked_func", "flash_attn_with_kvcache", "flex_attention", "install_flash_attn",
           "na1d", "na2d", "na3d", "neighborhood_attention", "optimize", "record_weights", "register", "report",
           "scaled_dot_product_attention", "shifted_window_attention", "t5_buckets", "tied_row_attention", "varlen_attention"]
