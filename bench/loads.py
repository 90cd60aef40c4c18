"""The loads of the benches, and the texts that vectors are compared on."""

import random

from shoal.lab import mixes
from sides import Load


def make_load(name: str, connections: int, lengths: mixes.Lengths, at_once: int = 1) -> Load:
    texts = mixes.texts_of(lengths, mixes.REQUESTS, seed=1)
    tokens = [len(text.split()) + mixes.MARKERS for text in texts]
    return Load(name=name, connections=connections, texts=texts, tokens=tokens, at_once=at_once)


LOADS = {
    "lognormal": make_load("lognormal", 32, mixes.lognormal),
    "short": make_load("short", 128, mixes.short),
    "alone": make_load("alone", 1, mixes.short),
    "batch": make_load("batch", 1, mixes.short, mixes.BATCH),
}
PROSE = "The shoal's boats, 14 of them, left Zürich early; naïve skippers didn't re-check wind & tide (see §3)! "


def texts_of_all_lengths(count: int = 200) -> list[str]:
    """As many short ones as long ones, up to 250 tokens (vLLM refuses what is over 256), in no order."""
    lengths = [round(mixes.MARKERS + 1 + (mixes.LONGEST - 3) * (i / (count - 1)) ** 3) for i in range(count)]
    texts = [mixes.texts_of(lambda rng, n=length: n, 1, seed)[0] for seed, length in enumerate(lengths)]
    texts[::10] = [PROSE * (1 + i % 5) for i in range(len(texts[::10]))]
    random.Random(7).shuffle(texts)
    return texts
