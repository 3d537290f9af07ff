# SPDX-License-Identifier: MIT
"""The engine: attention over views of one packed matrix, its gradients, and a check of one of them."""
import attn
import numpy as np

rng = np.random.default_rng(0)
batch, tokens, heads, channels = 2, 128, 4, 32
packed = rng.standard_normal((batch, tokens, 3, heads, channels)).astype(np.float32)
q, k, v = packed[:, :, 0], packed[:, :, 1], packed[:, :, 2]  # views: the engine follows their strides

o, lse = attn.attend(q, k, v, causal=True, return_lse=True)
dout = rng.standard_normal(o.shape).astype(np.float32)
grads = attn.attend_backward(dout, q, k, v, o, lse, causal=True)

# o is linear in v: its gradient along v itself is the sum of dout * o.
along_v, wanted = float((grads["v"] * v).sum()), float((dout * o).sum())
print(f"o {o.shape}, <dv, v> = {along_v:.3f}, <dout, o> = {wanted:.3f}")
assert abs(along_v - wanted) < 1e-2
