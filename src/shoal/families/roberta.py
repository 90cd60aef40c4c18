"""RoBERTa and XLM-RoBERTa: BERT's layers, with positions that begin after the padding's and one segment.

Follows Liu et al., arXiv:1907.11692, and Conneau et al., arXiv:1911.02116.
"""

from shoal.families import Node, Ops, Words
from shoal.families.layers import Layers, Names, check_kind, check_length
from shoal.families.texts import TextFamily
from shoal.families.weights import Checkpoint
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Facts


class _Roberta(Layers):
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
        check_kind(checkpoint, "roberta", ("roberta", "xlm-roberta", "camembert"))
        if (positions := say("position_embedding_type", "absolute")) != "absolute":
            raise ModelLoadFailed(f"family roberta cannot compute {positions} positions")
        self._start: int = count("pad_token_id", 1, least=0) + 1
        check_length(facts, count("max_position_embeddings") - self._start)

    def states(self) -> Node:
        """Every token is of segment 0, whatever its tokenizer says, as in transformers."""
        ops = self.ops
        positions = self.table("position", "max_position_embeddings")[self._start :]
        segment = self.table("token_type", "type_vocab_size")[0]
        x = ops.add(self.words_of_ids(), ops.rows(positions + segment, ops.positions))
        x = self.norm(x, "embeddings.LayerNorm")
        for i in range(self.checkpoint.count("num_hidden_layers")):
            x = self.post_norm(x, f"encoder.layer.{i}", Names())
        return x

    def logits(self, states: Node, labels: int) -> Node:
        first = self.ops.pool(states, "cls")
        return self.classified(first, "classifier.dense", "tanh", "classifier.out_proj", labels)

    def words(self, states: Node) -> Words:
        dense, norm = "lm_head.dense", "lm_head.layer_norm"
        return self.predicted(states, dense, norm, "lm_head.decoder", "lm_head.bias", "gelu")


FAMILY = TextFamily(_Roberta, "roberta", "xlm-roberta", "camembert", offset_positions=True)
