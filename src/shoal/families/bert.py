"""BERT: encoders, cross-encoders that score a pair, and masked language models.

Follows Devlin et al., arXiv:1810.04805: learned absolute positions, segments, a norm after every residual.
"""

from shoal.families import Node, Ops, Words
from shoal.families.layers import Layers, Names, check_kind, check_length
from shoal.families.texts import TextFamily
from shoal.families.weights import Checkpoint
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Facts


class _Bert(Layers):
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
        check_kind(checkpoint, "bert", ("bert",))
        if (positions := say("position_embedding_type", "absolute")) != "absolute":
            raise ModelLoadFailed(f"family bert cannot compute {positions} positions")
        check_length(facts, count("max_position_embeddings"))
        if facts.reads_pairs and count("type_vocab_size") < 2:
            raise ModelLoadFailed("a model that scores pairs needs two segments, this one has one")

    def states(self) -> Node:
        ops = self.ops
        positions = ops.rows(self.table("position", "max_position_embeddings"), ops.positions)
        segments = ops.rows(self.table("token_type", "type_vocab_size"), ops.segments)
        x = self.norm(ops.add(ops.add(self.words_of_ids(), segments), positions), "embeddings.LayerNorm")
        for i in range(self.checkpoint.count("num_hidden_layers")):
            x = self.post_norm(x, f"encoder.layer.{i}", Names())
        return x

    def logits(self, states: Node, labels: int) -> Node:
        return self.classified(self.ops.pool(states, "cls"), "pooler.dense", "tanh", "classifier", labels)

    def words(self, states: Node) -> Words:
        head = "cls.predictions"
        return self.predicted(
            states, f"{head}.transform.dense", f"{head}.transform.LayerNorm", f"{head}.decoder", f"{head}.bias"
        )


FAMILY = TextFamily(_Bert, "bert")
