# SPDX-License-Identifier: MIT
"""The attentions that PyTorch has no function for, as layers written in it compute them today.

axial256x256c64h8      the sum of the attentions along both axes of an image, heads of 8
window7x7:256x256c64h8 a local window by unfold, borders zero
tied:128x256c768h12    one map for all 128 rows of an alignment
Each starts from projected q, k, v; projections are not in the time.
"""
import torch
from torch.nn import functional as F

import measure


def axis_attention(q, k, v, heads, axis):
    """Attention along one axis of [h,w,c]: the other axis and the heads go to the batch, and copies are made."""
    def to_batch(x):
        x = x.movedim(axis, 1)
        return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2).reshape(-1, x.shape[1], x.shape[2] // heads)

    length, other = q.shape[axis], q.shape[1 - axis]
    q, k, v = map(to_batch, (q, k, v))
    weights = torch.softmax(torch.einsum("bid,bjd->bij", q, k) * q.shape[-1] ** -0.5, dim=-1)
    out = torch.einsum("bij,bjd->bid", weights, v)
    return out.reshape(other, heads, length, -1).transpose(1, 2).flatten(2).movedim(1, axis)


def axial(q, k, v, heads=8):
    return axis_attention(q, k, v, heads, 0) + axis_attention(q, k, v, heads, 1)


def window(q, k, v, heads=8, size=7):
    """[c,h,w]: every pixel's size x size neighbours copied next to it, then a softmax over them."""
    channels, height, width = q.shape

    def unfold(x):
        taps = F.unfold(x[None], size, padding=size // 2)
        return taps.reshape(heads, channels // heads, size * size, height * width)

    q = q.reshape(heads, channels // heads, 1, height * width)
    weights = torch.softmax((q * unfold(k)).sum(1) * (channels // heads) ** -0.5, dim=1)
    return (weights[:, None] * unfold(v)).sum(2).reshape(channels, height, width)


def tied(q, k, v, heads=12):
    """[rows,columns,channels]: scores summed over rows and a head's channels."""
    rows, channels = q.shape[0], q.shape[2] // heads
    q, k, v = (x.unflatten(-1, (heads, channels)) for x in (q, k, v))
    scores = torch.einsum("rihd,rjhd->hij", q * (channels * rows) ** -0.5, k)
    return torch.einsum("hij,rjhd->rihd", torch.softmax(scores, dim=-1), v).flatten(2)


# name: the layer, the operands' shape, and the multiplications and additions of its two products forward.
LAYERS = {
    "axial256x256c64h8": (axial, (256, 256, 64), 2 * 4 * 256 ** 3 * 64),
    "window7x7:256x256c64h8": (window, (64, 256, 256), 4 * 49 * 256 ** 2 * 64),
    "tied:128x256c768h12": (tied, (128, 256, 768), 4 * 256 ** 2 * 128 * 768),
}


def operations(name, direction):
    return {"forward": 1, "backward": 2.5}[direction] * LAYERS[name][2]


def pytorch(name, direction):
    """Milliseconds of a layer, forward or backward."""
    layer, shape, _ = LAYERS[name]
    generator = torch.Generator().manual_seed(1)
    q, k, v, grad = (torch.randn(shape, generator=generator) for _ in range(4))
    if direction == "forward":
        with torch.no_grad():
            return measure.median_ms(lambda: layer(q, k, v), 0.5, warm_up=1)
    inputs = [x.requires_grad_() for x in (q, k, v)]
    out = layer(*inputs)
    return measure.median_ms(lambda: torch.autograd.grad(out, inputs, grad, retain_graph=True), 0.5, warm_up=1)
