# SPDX-License-Identifier: MIT
"""Layers written as their users write them, and the same with attn.torch's function: a block of windows that Swin shifts, T5's
attention with a learned bias, neighbourhood attention, axial attention over heads, and tied rows of an alignment."""
import torch
import torch.nn.functional as F

import attn.torch


def leaf(*shape):
    return torch.randn(shape).requires_grad_()


def swin_block(batch=4, size=56, heads=3, channels=32, window=7, shift=3):
    """Between the projections of a stage's first block that shifts: [B,Y,X,H,D] rolled, cut into windows, a learned bias and the
    mask of the seam.  attn's side leaves the picture where it is."""
    n, cells = size // window, window * window
    at = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij"), -1).flatten(0, 1)
    far = at[:, None] - at[None] + window - 1
    index = far[..., 0] * (2 * window - 1) + far[..., 1]
    strip = torch.cat((torch.zeros(size - window), torch.ones(window - shift), torch.full((shift,), 2.0)))
    region = (strip[:, None] * 3 + strip).reshape(n, window, n, window).transpose(1, 2).reshape(n * n, cells)
    seam = torch.zeros(n * n, cells, cells).masked_fill(region[:, :, None] != region[:, None], -100.0)

    def cut(x):  # [B,Y,X,H,D] to windows [B*W,H,N,D]
        x = x.roll((-shift, -shift), (1, 2)).reshape(batch, n, window, n, window, heads, channels)
        return x.permute(0, 1, 3, 5, 2, 4, 6).reshape(batch * n * n, heads, cells, channels)

    def joined(o):
        o = o.reshape(batch, n, n, heads, window, window, channels).permute(0, 1, 4, 2, 5, 3, 6)
        return o.reshape(batch, size, size, heads, channels).roll((shift, shift), (1, 2))

    def theirs(q, k, v, table):
        q, k, v = cut(q), cut(k), cut(v)
        scores = q * channels**-0.5 @ k.mT + table[index.flatten()].reshape(cells, cells, heads).permute(2, 0, 1)
        scores = scores.reshape(batch, n * n, heads, cells, cells) + seam[:, None]
        return joined(scores.reshape(-1, heads, cells, cells).softmax(-1) @ v)

    def ours(q, k, v, table):
        return attn.torch.shifted_window_attention(q, k, v, window, shift, table)

    shape = (batch, size, size, heads, channels)
    return theirs, ours, (leaf(*shape), leaf(*shape), leaf(*shape), leaf((2 * window - 1) ** 2, heads))


def t5_attention(n=2048, heads=8, channels=64):
    index = attn.torch.t5_buckets(n, n)
    pairs = index[torch.arange(n) - torch.arange(n)[:, None] + n - 1].long()

    def theirs(q, k, v, table):
        return F.scaled_dot_product_attention(q, k, v, table[pairs].permute(2, 0, 1)[None], scale=1.0)

    def ours(q, k, v, table):
        return attn.torch.flex_attention(q, k, v, relative_bias=(table, index), scale=1.0)

    q, k, v = (leaf(1, heads, n, channels) for _ in range(3))
    return theirs, ours, ((q.detach() / 8).requires_grad_(), k, v, leaf(32, heads))


def neighbourhood(batch=1, size=56, heads=4, channels=32, taps=7, dilation=1):
    """NATTEN's na2d, and windows that are gathered and multiplied."""
    start = torch.arange(size)
    residue = start % dilation
    count = (size - residue + dilation - 1) // dilation
    first = (start // dilation - taps // 2).clamp(min=0).minimum(count - taps)
    near = (first[:, None] + torch.arange(taps)) * dilation + residue[:, None]  # [X,T]
    flat = (near[:, None, :, None] * size + near[None, :, None, :]).reshape(size * size, taps * taps)

    def theirs(q, k, v):
        q, k, v = (x.flatten(1, 2) for x in (q, k, v))
        scores = torch.einsum("bnhd,bnthd->bhnt", q, k[:, flat]) * channels**-0.5
        return torch.einsum("bhnt,bnthd->bnhd", scores.softmax(-1), v[:, flat]).reshape(batch, size, size, heads, channels)

    def ours(q, k, v):
        return attn.torch.na2d(q, k, v, taps, dilation=dilation)

    return theirs, ours, tuple(leaf(batch, size, size, heads, channels) for _ in range(3))


def axial(batch=2, size=96, heads=8, channels=16):
    """Rows and columns of a picture, added, as axial attention's modules do: heads join the batch, an einsum each way."""
    def along(q, k, v, axis):
        q, k, v = (x.movedim(axis, -2).flatten(0, 2) for x in (q, k, v))  # [B*other*H,N,D]
        scores = torch.einsum("bie,bje->bij", q, k) * channels**-0.5
        o = torch.einsum("bij,bje->bie", scores.softmax(-1), v)
        return o.reshape(batch, size, heads, size, channels).movedim(-2, axis)

    def theirs(q, k, v):
        return along(q, k, v, 1) + along(q, k, v, 2)

    def ours(q, k, v):
        return attn.torch.axial_attention(q, k, v, 1) + attn.torch.axial_attention(q, k, v, 2)

    return theirs, ours, tuple(leaf(batch, size, size, heads, channels) for _ in range(3))


def tied_rows(batch=1, rows=32, columns=128, heads=8, channels=32):
    def theirs(q, k, v):
        scores = torch.einsum("brihd,brjhd->bhij", q * (channels * rows) ** -0.5, k)
        return torch.einsum("bhij,brjhd->brihd", scores.softmax(-1), v)

    def ours(q, k, v):
        return attn.torch.tied_row_attention(q, k, v)

    return theirs, ours, tuple(leaf(batch, rows, columns, heads, channels) for _ in range(3))


LAYERS = {"Swin's block with shifted windows, 56 x 56": swin_block, "T5's learned bias, 2,048 tokens": t5_attention,
          "neighbourhoods 7 x 7, 56 x 56": neighbourhood,
          "neighbourhoods 7 x 7, dilation 2, 56 x 56": lambda: neighbourhood(dilation=2),
          "axial attention, 96 x 96": axial, "tied rows, 32 x 128": tied_rows}
