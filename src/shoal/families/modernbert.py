"""ModernBERT: rotary positions, gated layers, norms before each part, and most layers see near tokens only.

Follows Warner et al., arXiv:2412.13663.
"""

from typing import Any

from shoal.families import Node, Ops, Words
from shoal.families.layers import Layers, check_kind, check_length
from shoal.families.rotary import Rotary
from shoal.families.texts import TextFamily
from shoal.families.weights import Checkpoint
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Facts

_FULL, _NEAR = "full_attention", "sliding_attention"
_THETA = {_FULL: ("global_rope_theta", 160_000.0), _NEAR: ("local_rope_theta", 10_000.0)}


class _ModernBert(Layers):
    def __init__(self, ops: Ops, checkpoint: Checkpoint, facts: Facts) -> None:
        say, count = checkpoint.setting, checkpoint.count
        super().__init__(
            ops,
            checkpoint,
            width=count("hidden_size"),
            heads=count("num_attention_heads"),
            eps=say("norm_eps", 1e-5),
            activation=say("hidden_activation", "gelu"),
        )
        check_kind(checkpoint, "modernbert", ("modernbert",))
        check_length(facts, count("max_position_embeddings"))
        self._length = facts.max_tokens
        self._biased = {part: say(f"{part}_bias", False) for part in ("norm", "attention", "mlp", "classifier")}
        depth, every = count("num_hidden_layers"), count("global_attn_every_n_layers", 3)
        usual = [_NEAR if i % every else _FULL for i in range(depth)]
        self._kinds: list[str] = say("layer_types", usual)
        if len(self._kinds) != depth or not set(self._kinds) <= set(_THETA):
            raise ModelLoadFailed(f"layer_types has to say {_FULL} or {_NEAR} of each of {depth} layers")

    def states(self) -> Node:
        ops, biased = self.ops, self._biased
        x = self._normed(self.words_of_ids("embeddings.tok_embeddings.weight"), "embeddings.norm")
        turns = {kind: Rotary(self, self._length, self._theta(kind)) for kind in sorted(set(self._kinds))}
        near = ops.within(self.checkpoint.count("local_attention", 128) // 2)
        for i, kind in enumerate(self._kinds):
            name = f"layers.{i}"
            seen = self._normed(x, f"{name}.attn_norm") if i else x
            qkv = turns[kind].turn(
                self.linear(seen, f"{name}.attn.Wqkv", 3 * self.width, bias=biased["attention"])
            )
            seen = ops.attention(qkv, self.heads, near if kind == _NEAR else None)
            x = ops.add(x, self.linear(seen, f"{name}.attn.Wo", self.width, bias=biased["attention"]))
            x = ops.add(x, self._gated(self._normed(x, f"{name}.mlp_norm"), f"{name}.mlp"))
        return self._normed(x, "final_norm")

    def logits(self, states: Node, labels: int) -> Node:
        over = self.checkpoint.setting("classifier_pooling", "cls")
        if over not in ("cls", "mean"):
            raise ModelLoadFailed(f"family modernbert pools for its classifier by cls or mean, not by {over}")
        return self.linear(
            self._head(self.ops.pool(states, over), of_texts=True), "classifier", labels, of_texts=True
        )

    def words(self, states: Node) -> Words:
        table, size = "embeddings.tok_embeddings.weight", self.checkpoint.count("vocab_size")
        own = "decoder.weight" in self.checkpoint
        biased = self.checkpoint.setting("decoder_bias", True)
        return Words(
            states=self._head(states),
            weight=self.checkpoint.weight("decoder.weight" if own else table, size, self.width),
            bias=self.checkpoint.weight("decoder.bias", size) if biased else None,
        )

    def _head(self, x: Node, *, of_texts: bool = False) -> Node:
        x = self.linear(x, "head.dense", self.width, bias=self._biased["classifier"], of_texts=of_texts)
        return self._normed(
            self.activated(x, self.checkpoint.setting("classifier_activation", "gelu")), "head.norm"
        )

    def _gated(self, x: Node, name: str) -> Node:
        bias = self._biased["mlp"]
        value, gate = self.halves(x, f"{name}.Wi", bias=bias)
        inner = self.ops.multiply(self.activated(value), gate)
        return self.linear(inner, f"{name}.Wo", self.width, bias=bias)

    def _normed(self, x: Node, name: str) -> Node:
        return self.norm(x, name, bias=self._biased["norm"])

    def _theta(self, kind: str) -> dict[str, Any]:
        """The rotary settings of one kind of layer, where transformers 5 keeps them or where 4 did."""
        old, usual = _THETA[kind]
        said = self.checkpoint.config.get("rope_parameters") or {}
        return {"rope_theta": self.checkpoint.setting(old, usual), **(said.get(kind) or {})}


FAMILY = TextFamily(_ModernBert, "modernbert")
