# SPDX-License-Identifier: MIT
"""Attention in plain NumPy and float64, written from the formulas, to compare with; and helpers of the tests."""
import os

import numpy as np


def every(problems):
    """Every N-th of a list of large problems, as ATTN_TEST_STEP=N says for emulators; default all."""
    return problems[::max(1, int(os.environ.get("ATTN_TEST_STEP") or 1))]


def softmax(scores, keep=None):
    """Softmax over the last axis; a row without visible keys gives zeros."""
    scores = scores if keep is None else np.where(keep, scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    e = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = e.sum(-1, keepdims=True)
    return np.divide(e, total, out=np.zeros_like(e), where=total > 0)


def attention(q, k, v, keep=None, bias=0.0, scale=None):
    """q [B,T,H,D], k, v [B,S,Hkv,D] -> o [B,T,H,Dv], weights [B,H,T,S], lse [B,H,T]."""
    q, k, v = (np.asarray(x, np.float64).transpose(0, 2, 1, 3) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scores = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale) + bias
    weights = softmax(scores, keep)
    scores = scores if keep is None else np.where(keep, scores, -np.inf)
    with np.errstate(divide="ignore"):
        lse = np.logaddexp.reduce(scores, -1) if scores.shape[-1] else np.full(scores.shape[:-1], -np.inf)
    return (weights @ v).transpose(0, 2, 1, 3), weights, lse


def within(lens, queries, keys):
    """The mask bool [B,1,Tq,Tk] of lengths [B] or [B,Tq]."""
    lens = np.asarray(lens)
    lens = np.broadcast_to(lens[:, None] if lens.ndim == 1 else lens, (len(lens), queries))
    return (np.arange(keys) < lens[..., None])[:, None]


def split(x, heads):
    return x.reshape(*x.shape[:-1], heads, -1)


def layer_norm(x, g, b, eps=1e-5):
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(var + eps) * g + b


def differences(function, x, step=1e-5):
    """d function(x) / dx by central differences; `function` returns one number."""
    x = np.array(x, np.float64)
    grad = np.empty_like(x)
    for at in np.ndindex(*x.shape):
        before = x[at]
        x[at] = before + step
        above = function(x)
        x[at] = before - step
        grad[at] = (above - function(x)) / (2 * step)
        x[at] = before
    return grad


def distance(got, wanted):
    """The largest difference, relative to the largest expected element."""
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert got.shape == wanted.shape, f"{got.shape} for {wanted.shape}"
    if wanted.size == 0:
        return 0.0
    return np.abs(got - wanted).max() / max(np.abs(wanted).max(), 1e-30)
