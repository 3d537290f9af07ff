# SPDX-License-Identifier: MIT
"""The axial image transformer of lucidrains/axial-attention (Ho et al. 2019) in plain PyTorch, written afresh: what its
users run, with its permuted copies, its duplicated input and its reversible backward pass (Gomez et al. 2017)."""
import torch
from torch import nn


class ChanLayerNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.g = nn.Parameter(torch.ones(1, dim, 1, 1))
        self.b = nn.Parameter(torch.zeros(1, dim, 1, 1))

    def forward(self, x):
        deviation = torch.var(x, dim=1, unbiased=False, keepdim=True).sqrt()
        return (x - x.mean(dim=1, keepdim=True)) / (deviation + self.eps) * self.g + self.b


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_kv = nn.Linear(dim, 2 * dim, bias=False)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x):
        def heads_first(t):
            return t.reshape(len(t), -1, self.heads, t.shape[-1] // self.heads).transpose(1, 2).flatten(0, 1)
        q, k, v = map(heads_first, (self.to_q(x), *self.to_kv(x).chunk(2, dim=-1)))
        maps = (torch.bmm(q, k.mT) * q.shape[-1] ** -0.5).softmax(-1)
        out = torch.bmm(maps, v).unflatten(0, (-1, self.heads)).transpose(1, 2).flatten(2)
        return self.to_out(out)


class AlongAxis(nn.Module):
    """Norm, then attention along one axis of (b,c,h,w), on a permuted copy."""

    def __init__(self, dim, heads, axis):
        super().__init__()
        self.order = (0, 3, 2, 1) if axis == 2 else (0, 2, 3, 1)
        self.norm = nn.LayerNorm(dim)
        self.fn = SelfAttention(dim, heads)

    def forward(self, x):
        lines = x.permute(self.order).contiguous()
        y = self.fn(self.norm(lines.flatten(0, 1))).reshape(lines.shape)
        return y.permute([self.order.index(i) for i in range(4)]).contiguous()


def feed_forward(dim):
    return nn.Sequential(ChanLayerNorm(dim), nn.Conv2d(dim, 4 * dim, 3, padding=1), nn.LeakyReLU(inplace=True),
                         nn.Conv2d(4 * dim, dim, 3, padding=1))


class Reversible(torch.autograd.Function):
    """y1 = x1 + f(x2), y2 = x2 + g(y1) for each block; keeps the last outputs only."""

    @staticmethod
    def forward(ctx, x, blocks, *parameters):
        del parameters
        x1, x2 = x.chunk(2, 1)
        with torch.no_grad():
            for f, g in blocks:
                x1 = x1 + f(x2)
                x2 = x2 + g(x1)
        ctx.blocks, ctx.ends = blocks, (x1.detach(), x2.detach())
        return torch.cat((x1, x2), 1)

    @staticmethod
    def undo(function, at, behind, dat, dbehind):
        with torch.enable_grad():
            at = at.detach().requires_grad_()
            step = function(at)
        step.backward(dbehind)
        return behind - step.detach(), dat + at.grad

    @staticmethod
    def backward(ctx, dy):
        y1, y2 = ctx.ends
        d1, d2 = dy.chunk(2, 1)
        for f, g in reversed(ctx.blocks):
            y2, d1 = Reversible.undo(g, y1, y2, d1, d2)
            y1, d2 = Reversible.undo(f, y2, y1, d2, d1)
        return torch.cat((d1, d2), 1), None, *(None for _ in ctx.needs_input_grad[2:])


class AxialImageTransformer(nn.Module):
    def __init__(self, dim, depth, heads=8, reversible=True):
        super().__init__()
        pairs = []
        for _ in range(depth):
            pairs.append(nn.ModuleList([AlongAxis(dim, heads, 2), AlongAxis(dim, heads, 3)]))
            pairs.append(nn.ModuleList([feed_forward(dim), feed_forward(dim)]))
        self.blocks = nn.ModuleList(pairs)
        self.reversible = reversible

    def forward(self, x):
        if self.reversible:
            y = Reversible.apply(torch.cat((x, x), 1).requires_grad_(), list(self.blocks), *self.parameters())
            return torch.stack(y.chunk(2, 1)).mean(0)
        for f, g in self.blocks:
            x = x + f(x)
            x = x + g(x)
        return x
