"""Nomic's and GTE's encoders: BERT with rotary positions and gated layers.

Follows Nussbaum et al., arXiv:2402.01613, and Zhang et al., arXiv:2407.19669, under the names that their authors'
checkpoints have, which transformers keeps when it saves one.
"""

from typing import Any

from shoal.families import Node, Ops, Words
from shoal.families.layers import Layers, check_kind, check_length
from shoal.families.rotary import Rotary
from shoal.families.texts import TextFamily
from shoal.families.weights import Checkpoint
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Facts

_OLD = {
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "max_position_embeddings": "n_positions",
    "layer_norm_eps": "layer_norm_epsilon",
    "rope_theta": "rotary_emb_base",
}
"""What Nomic's own files call a setting."""
_ONLY: dict[str, Any] = {
    "activation_function": "swiglu",
    "causal": False,
    "prenorm": False,
    "parallel_block": False,
    "use_rms_norm": False,
    "qkv_proj_bias": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "num_experts": 0,
    "position_embedding_type": "rope",
    "layer_norm_type": "layer_norm",
    "logn_attention_scale": False,
}
"""The only values computed here of settings that some models of these kinds have."""


class _Rotated(Layers):
    """One layer's parts are told by the two kinds below."""

    kind: str
    theta: float
    embedding_norm: str

    def __init__(self, ops: Ops, checkpoint: Checkpoint, facts: Facts) -> None:
        self.checkpoint = checkpoint
        super().__init__(
            ops,
            checkpoint,
            width=self.count("hidden_size"),
            heads=self.count("num_attention_heads"),
            eps=self.say("layer_norm_eps", 1e-12),
            activation=self.say("hidden_act", "silu" if self.kind == "nomic_bert" else "gelu"),
        )
        check_kind(checkpoint, "nomic", (self.kind,))
        check_length(facts, self.count("max_position_embeddings"))
        for name, only in _ONLY.items():
            if (value := checkpoint.config.get(name)) not in (None, only):
                raise ModelLoadFailed(f"family nomic computes models whose {name} is {only!r}, not {value!r}")
        self._segments: int = checkpoint.count("type_vocab_size", 2, least=0)
        if facts.reads_pairs and self.kind == "nomic_bert" and self._segments < 2:
            raise ModelLoadFailed("a model that scores pairs needs two segments, this one has one")
        self._length = facts.max_tokens

    def say(self, name: str, default: Any = None) -> Any:
        return self.checkpoint.setting(self._known_as(name), default)

    def count(self, name: str) -> int:
        return self.checkpoint.count(self._known_as(name))

    def _known_as(self, name: str) -> str:
        return name if name in self.checkpoint.config else _OLD.get(name, name)

    def states(self) -> Node:
        ops, x = self.ops, self.words_of_ids()
        if self._segments:
            table = self.table("token_type", "type_vocab_size")
            # Where there is one segment both texts of a pair are of it, whatever the tokenizer says.
            x = ops.add(x, ops.rows(table if self._segments > 1 else table.repeat(2, axis=0), ops.segments))
        x = self.norm(x, self.embedding_norm)
        said = self.checkpoint.config
        rope = {"rope_theta": self.say("rope_theta", self.theta)}
        rope |= (said.get("rope_scaling") or {}) | (said.get("rope_parameters") or {})
        rotary = Rotary(self, self._length, rope)
        for i in range(self.count("num_hidden_layers")):
            x = self.layer(x, i, rotary)
        return x

    def layer(self, x: Node, i: int, rotary: Rotary) -> Node:
        raise NotImplementedError

    def logits(self, states: Node, labels: int) -> Node:
        return self.classified(self.ops.pool(states, "cls"), "pooler.dense", "tanh", "classifier", labels)


class _Nomic(_Rotated):
    kind, theta, embedding_norm = "nomic_bert", 1000.0, "emb_ln"

    def layer(self, x: Node, i: int, rotary: Rotary) -> Node:
        ops, name = self.ops, f"encoder.layers.{i}"
        qkv = rotary.turn(self.linear(x, f"{name}.attn.Wqkv", 3 * self.width, bias=False))
        seen = self.linear(ops.attention(qkv, self.heads), f"{name}.attn.out_proj", self.width, bias=False)
        x = self.norm(ops.add(x, seen), f"{name}.norm1")
        up, gate = (self.linear(x, f"{name}.mlp.{part}", bias=False) for part in ("fc11", "fc12"))
        inner = ops.multiply(up, self.activated(gate))
        return self.norm(
            ops.add(x, self.linear(inner, f"{name}.mlp.fc2", self.width, bias=False)), f"{name}.norm2"
        )

    def words(self, states: Node) -> Words:
        head = "cls.predictions"
        dense, norm = f"{head}.transform.dense", f"{head}.transform.layer_norm"
        return self.predicted(states, dense, norm, f"{head}.decoder", f"{head}.bias")


class _Gte(_Rotated):
    kind, theta, embedding_norm = "gte", 160_000.0, "embeddings.LayerNorm"

    def layer(self, x: Node, i: int, rotary: Rotary) -> Node:
        ops, name = self.ops, f"encoder.layer.{i}"
        qkv = rotary.turn(self.linear(x, f"{name}.attention.qkv_proj", 3 * self.width))
        seen = self.linear(ops.attention(qkv, self.heads), f"{name}.attention.o_proj", self.width)
        x = self.norm(ops.add(x, seen), f"{name}.attn_ln")
        up, gate = self.halves(x, f"{name}.mlp.up_gate_proj", bias=False)
        inner = self.linear(ops.multiply(up, self.activated(gate)), f"{name}.mlp.down_proj", self.width)
        return self.norm(ops.add(x, inner), f"{name}.mlp_ln")

    def words(self, states: Node) -> Words:
        return self.predicted(states, "lm_head.dense", "lm_head.norm", "lm_head.decoder", "lm_head.decoder.bias")


def _network(ops: Ops, checkpoint: Checkpoint, facts: Facts) -> _Rotated:
    check_kind(checkpoint, "nomic", ("nomic_bert", "gte"))
    kind = _Gte if checkpoint.setting("model_type") == "gte" else _Nomic
    return kind(ops, checkpoint, facts)


FAMILY = TextFamily(_network, "nomic_bert", "gte", replaces_code=("nomic_bert",))
