# SPDX-License-Identifier: MIT
"""How far results are from the expected ones, as the parity tests count it."""
import numpy as np

TOLERANCE = 1e-5  # of the largest element of each tensor
ROUNDING = 1e-10  # a float64 gradient this small compared to the model's largest one is zero but for rounding


def distance(got, expected, scale):
    """The largest difference over scale; infinite where shapes differ or something is not a number."""
    if got.shape != expected.shape or not np.isfinite(got).all():
        return np.inf
    difference = np.abs(got.astype(np.float64) - expected).max(initial=0.0)
    return difference / scale if difference else 0.0


def peak(array):
    return np.abs(array).max(initial=0.0)


def compare_grads(got, expected):
    """The worst parameter and its error.  The gradient of a bias of the keys is zero: softmax is invariant to it; the
    values of such a tensor are measured against the largest gradient of the model."""
    missing = set(expected) ^ set(got)
    if missing:
        return min(missing), np.inf
    largest = max(peak(array) for array in expected.values())
    errors = {}
    for name, array in expected.items():
        scale = peak(array) if peak(array) > ROUNDING * largest else largest
        errors[name] = distance(got[name], array, scale)
    worst = max(errors, key=errors.get)
    return worst, errors[worst]
