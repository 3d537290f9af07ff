# SPDX-License-Identifier: MIT
"""The attentions that PyTorch has no function for, as layers written in it compute them today.

axial256x256c64h8      the sum of the attentions along both axes of an image, heads of 8
window7x7:256x256c64h8 a local window by unfold, borders zero
tied:128x256c768h12    one map for all 128 rows of an alignment
relative:4x8x256x64    a table of relative positions in the scores: batch x heads x tokens x channels
additive:4x8x64x64x64  Bahdanau's scores: batch x heads x queries x keys x channels
gaussian:1x8x512x64    softmax of the negative squared distance by 2
mean:3x1x784x64        dot products over the number of keys, as non-local blocks have them
Each starts from projected q, k, v; projections are not in the time.  `,f64` behind a name: in float64.
"""
import torch
from torch.nn import functional as F

import measure


def axis_attention(q, k, v, heads, axis):
    """Attention along one axis of [h,w,c]: the other axis and the heads join the batch, and copies are made."""
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


def relative(q, k, v, table):
    """[b,h,n,c] with a table [2n-1,c] by distance, spread out to [n,n,c]."""
    n = torch.arange(q.shape[2])
    near = table[n - n[:, None] + len(n) - 1]
    weights = torch.softmax((q @ k.mT + torch.einsum("bhic,ijc->bhij", q, near)) * q.shape[-1] ** -0.5, dim=-1)
    return weights @ v


def additive(q, k, v, w):
    return torch.softmax(torch.tanh(q[:, :, :, None] + k[:, :, None]) @ w, dim=-1) @ v


def gaussian(q, k, v):
    return torch.softmax(-torch.cdist(q, k).square() / 2, dim=-1) @ v


def mean(q, k, v):
    return (q @ k.mT / k.shape[-2]) @ v


# name: the layer, the shapes of q, k, v and what else it has, and the multiplications and additions of its two products
# forward.  The gradients of all of these are computed.
LAYERS = {
    "axial256x256c64h8": (axial, [(256, 256, 64)] * 3, 2 * 4 * 256 ** 3 * 64),
    "window7x7:256x256c64h8": (window, [(64, 256, 256)] * 3, 4 * 49 * 256 ** 2 * 64),
    "tied:128x256c768h12": (tied, [(128, 256, 768)] * 3, 4 * 256 ** 2 * 128 * 768),
    "window7x7:64x64c64h8": (window, [(64, 64, 64)] * 3, 4 * 49 * 64 ** 2 * 64),
    "relative:64x8x64x8": (relative, [(64, 8, 64, 8)] * 3 + [(127, 8)], 4 * 64 * 8 * 64 ** 2 * 8),
    "relative:4x8x256x64": (relative, [(4, 8, 256, 64)] * 3 + [(511, 64)], 4 * 4 * 8 * 256 ** 2 * 64),
    "additive:4x8x64x64x64": (additive, [(4, 8, 64, 64)] * 3 + [(64,)], 4 * 4 * 8 * 64 ** 2 * 64),
    "additive:128x1x1x10x256": (additive, [(128, 1, 1, 256)] + [(128, 1, 10, 256)] * 2 + [(256,)], 4 * 128 * 10 * 256),
    "additive:64x1x1x30x1024": (additive, [(64, 1, 1, 1024)] + [(64, 1, 30, 1024)] * 2 + [(1024,)],
                                4 * 64 * 30 * 1024),
    "gaussian:1x8x512x64": (gaussian, [(1, 8, 512, 64)] * 3, 4 * 8 * 512 ** 2 * 64),
    "mean:3x1x784x64": (mean, [(3, 1, 784, 64)] * 3, 4 * 3 * 784 ** 2 * 64),
}


def layer_of(name):
    """(the layer's row of LAYERS, its dtype), or None."""
    plain = name.removesuffix(",f64")
    return (LAYERS[plain], torch.float64 if plain != name else torch.float32) if plain in LAYERS else None


def operations(name, direction):
    return {"forward": 1, "backward": 2.5}[direction] * layer_of(name)[0][2]


def pytorch(name, direction):
    """Milliseconds of a layer, forward or backward."""
    (layer, shapes, _), dtype = layer_of(name)
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]
    with torch.no_grad():
        if direction == "forward":
            return measure.median_ms(lambda: layer(*inputs), measure.SECONDS, warm_up=1)
        grad = torch.randn(layer(*inputs).shape, generator=generator, dtype=dtype)
    out = layer(*(x.requires_grad_() for x in inputs))
    return measure.median_ms(lambda: torch.autograd.grad(out, inputs, grad, retain_graph=True), measure.SECONDS, warm_up=1)
