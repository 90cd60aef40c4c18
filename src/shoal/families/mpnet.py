"""MPNet: BERT's layers, with scores that also depend on how far a key is from its query; no segments.

Follows Song et al., arXiv:2004.09297; distances fall into buckets as in Raffel et al., arXiv:1910.10683.
"""

import numpy as np

from shoal.families import Node, Ops, Words
from shoal.families.layers import Layers, Names, check_kind, check_length
from shoal.families.texts import TextFamily
from shoal.families.weights import Checkpoint
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Facts
from shoal.protocol.tensors import Array

_NAMES = Names(
    qkv=("attention.attn.q", "attention.attn.k", "attention.attn.v"),
    mixed="attention.attn.o",
    attention_norm="attention.LayerNorm",
)
_START = 2
"""Position of a text's first token; two rows before it are for padding. config.json has no say in it."""
_BUCKETS, _REACH = 32, 128
"""Distances of `_REACH` and more share a bucket."""


class _MPNet(Layers):
    def __init__(self, ops: Ops, checkpoint: Checkpoint, facts: Facts) -> None:
        say, count = checkpoint.setting, checkpoint.count
        super().__init__(
            ops,
            checkpoint,
            width=count("hidden_size"),
            heads=count("num_attention_heads"),
            eps=say("layer_norm_eps", 1e-12),
            activation=say("hidden_act", "gelu"),
        )
        check_kind(checkpoint, "mpnet", ("mpnet",))
        check_length(facts, count("max_position_embeddings") - _START)
        if (buckets := say("relative_attention_num_buckets", _BUCKETS)) != _BUCKETS:
            raise ModelLoadFailed(f"family mpnet has {_BUCKETS} buckets of distances, this model {buckets}")

    def states(self) -> Node:
        ops = self.ops
        positions = self.table("position", "max_position_embeddings")[_START:]
        x = ops.add(self.words_of_ids(), ops.rows(positions, ops.positions))
        x = self.norm(x, "embeddings.LayerNorm")
        biases = self.checkpoint.weight("encoder.relative_attention_bias.weight", _BUCKETS, self.heads)
        look = ops.relative(biases[buckets(np.arange(-_REACH, _REACH + 1))])
        for i in range(self.checkpoint.count("num_hidden_layers")):
            x = self.post_norm(x, f"encoder.layer.{i}", _NAMES, look)
        return x

    def logits(self, states: Node, labels: int) -> Node:
        first = self.ops.pool(states, "cls")
        return self.classified(first, "classifier.dense", "tanh", "classifier.out_proj", labels)

    def words(self, states: Node) -> Words:
        dense, norm = "lm_head.dense", "lm_head.layer_norm"
        return self.predicted(states, dense, norm, "lm_head.decoder", "lm_head.bias", "gelu")


def buckets(distances: Array) -> Array:
    """The bucket of each distance (key's place − query's): half of them for keys to the right, and of each half
    one for each small distance, the others for ranges that grow by a constant factor."""
    half, exact = _BUCKETS // 2, _BUCKETS // 4
    far = np.abs(distances)
    growth = np.log(np.maximum(far, 1).astype(np.float32) / exact) / np.log(_REACH / exact)
    ranged = np.minimum(exact + (growth * (half - exact)).astype(np.int64), half - 1)
    found: Array = np.where(far < exact, far, ranged) + np.where(distances > 0, half, 0)
    return found


FAMILY = TextFamily(_MPNet, "mpnet", offset_positions=True)
