"""DistilBERT: BERT's layers under other names, without segments. Follows Sanh et al., arXiv:1910.01108."""

from shoal.families import Node, Ops, Words
from shoal.families.layers import Layers, Names, check_kind, check_length
from shoal.families.texts import TextFamily
from shoal.families.weights import Checkpoint
from shoal.protocol.facts import Facts

_NAMES = Names(
    qkv=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    mixed="attention.out_lin",
    attention_norm="sa_layer_norm",
    inner="ffn.lin1",
    outer="ffn.lin2",
    norm="output_layer_norm",
)


class _DistilBert(Layers):
    def __init__(self, ops: Ops, checkpoint: Checkpoint, facts: Facts) -> None:
        say, count = checkpoint.setting, checkpoint.count
        super().__init__(
            ops,
            checkpoint,
            width=count("dim"),
            heads=count("n_heads"),
            eps=1e-12,
            activation=say("activation", "gelu"),
        )
        check_kind(checkpoint, "distilbert", ("distilbert",))
        check_length(facts, count("max_position_embeddings"))

    def states(self) -> Node:
        ops = self.ops
        positions = ops.rows(self.table("position", "max_position_embeddings"), ops.positions)
        x = self.norm(ops.add(self.words_of_ids(), positions), "embeddings.LayerNorm")
        for i in range(self.checkpoint.count("n_layers")):
            x = self.post_norm(x, f"transformer.layer.{i}", _NAMES)
        return x

    def logits(self, states: Node, labels: int) -> Node:
        return self.classified(self.ops.pool(states, "cls"), "pre_classifier", "relu", "classifier", labels)

    def words(self, states: Node) -> Words:
        return self.predicted(
            states, "vocab_transform", "vocab_layer_norm", "vocab_projector", "vocab_projector.bias"
        )


FAMILY = TextFamily(_DistilBert, "distilbert")
