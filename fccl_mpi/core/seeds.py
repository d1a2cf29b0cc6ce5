"""Randomness without state: every generator is made anew from what it is for.

A generator depends on (seed, purpose...) alone, never on how many numbers were drawn before it. So a
resumed run draws what the undisturbed one would have drawn, and nothing depends on the number of
ranks or on the order of anything.
"""

import hashlib

import numpy as np


def derive(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for one purpose, such as ``derive(0, "mnist", round, "shuffle")``."""
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """A NumPy generator for one purpose."""
    return np.random.default_rng(derive(seed, *purpose))
