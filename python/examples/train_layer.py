# SPDX-License-Identifier: MIT
"""A layer trained by hand: multi-head attention learns to turn a sequence round, by plain gradient steps."""
import attn
import numpy as np

rng = np.random.default_rng(0)
tokens, width = 6, 16
layer = attn.build("multi-head-attention", {"num_hiddens": width, "num_heads": 4}, seed=1)
parameters = layer.parameters()  # views: writing to them changes the layer
place = np.eye(tokens, width, dtype=np.float32) * 4

first = last = None
for step in range(400):
    x = np.zeros((32, tokens, width), np.float32)
    x[..., tokens:] = rng.standard_normal((32, tokens, width - tokens))
    y = layer(x + place, x + place, x)
    error = y - x[:, ::-1]
    last = float((error**2).mean())
    first = last if first is None else first
    layer.zero_grad()
    layer.backward(2 * error / error.size)
    for name, grad in layer.grads().items():
        parameters[name] -= 2 * grad

print(f"mean square error: {first:.3f} at first, {last:.3f} after 400 steps")
with layer.no_grad():
    _, weights = layer(x[:1] + place, x[:1] + place, x[:1], outputs=("out", "weights"))
print("most attended key of each query, by head:", weights[0].argmax(-1).tolist())
assert last < first / 2
