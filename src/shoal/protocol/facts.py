"""What has to be known about a model to admit, batch, compute and answer: read once from its files.

Gateway and node decide from it, the task and the family read it, the runtime is started with it.
"""

from typing import Literal

import msgspec

Pooling = Literal["mean", "cls", "max", "mean_sqrt_len", "last", "weighted_mean", "none"]
Activation = Literal["identity", "sigmoid", "softmax"]
"""softmax: over the labels of a cross-encoder with several."""
Kind = Literal["dense", "sparse", "multivector"]


class Dense(msgspec.Struct, frozen=True):
    """A linear layer after the pooling: `folder` holds its model.safetensors (linear.weight, linear.bias)."""

    folder: str
    activation: Literal["identity", "tanh", "relu", "gelu", "sigmoid", "silu"] = "identity"


class Sparse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One weight a vocabulary entry, from the masked-language-model head (SPLADE, arXiv:2107.05720).

    `log1p_relu` is log(1 + relu(logit)); some publish log1p of log1p. `queries` "table" is inference-free:
    a query's terms get the weights of `table`, a JSON file of token to weight, and no network runs.
    """

    pooling: Literal["max", "sum"] = "max"
    activation: Literal["log1p_relu", "log1p_log1p_relu", "relu"] = "log1p_relu"
    queries: Literal["network", "table"] = "network"
    table: str = ""


class MultiVector(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One vector a token (ColBERT, arXiv:2004.12832), through the `projection` layers, then normalised.

    A query is padded with the mask token to `query_tokens` where `expand` says so (0: not), and those are
    looked at by the others only where `attend_to_expansion`. `query_marker` and `document_marker` are tokens
    put after the first marker. Tokens of `skip` (punctuation) give a document no vector.
    """

    dims: int
    projection: tuple[Dense, ...] = ()
    query_tokens: int = 32
    document_tokens: int = 0
    expand: bool = True
    attend_to_expansion: bool = False
    query_marker: str = ""
    document_marker: str = ""
    skip: tuple[str, ...] = ()
    normalize: bool = True


class Facts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`tasks` names files in tasks/, `family` one in families/. Lengths are in tokens, markers included."""

    tasks: tuple[str, ...]
    family: str
    files: Literal["safetensors", "onnx", "none"]
    max_tokens: int
    kinds: tuple[Kind, ...] = ("dense",)
    """What an encoder gives; the first where a request names none. Ignored for other tasks."""
    dims: int = 0
    """Width of a dense vector, after any Dense layers; 0 for a model that gives none."""
    matryoshka: tuple[int, ...] = ()
    """Shorter widths the model was trained for, in any order."""
    pooling: Pooling = "none"
    normalize: bool = False
    activation: Activation = "identity"
    """Turns a cross-encoder's logit into the score of the native route; foreign routes ask sigmoid."""
    labels: tuple[str, ...] = ()
    """Names of a cross-encoder's outputs where it has several; none for the usual single one."""
    dense: tuple[Dense, ...] = ()
    sparse: Sparse | None = None
    multivector: MultiVector | None = None
    prompts: dict[str, str] = {}
    """Prefixes by name, e.g. {"query": "query: "}; put before the text as they are."""
    default_prompt: str = ""
    """Name of the prompt used when a request names none; "" for none."""
    lowercase: bool = False
    """`do_lower_case` of sentence_bert_config.json: lower the text before the tokenizer sees it."""

    def can(self, task: str) -> bool:
        """Whatever its tasks are, a model reads texts, so that it can tokenise them too."""
        return task in self.tasks or task == "tokenize"

    @property
    def reads_pairs(self) -> bool:
        """A cross-encoder: query and document go through it together. A late-interaction model, whose tasks
        are encode and score, reads one text at a time and is scored on the node.
        """
        return "score" in self.tasks and "encode" not in self.tasks


class Profile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tuned settings of a model on one kind of device. Users never name it."""

    runtime: str
    device: str = "cpu"
    dtype: Literal["bf16", "fp32", "int8"] = "fp32"
    streams: int = 2
    threads: int = 0
    """Compute threads in all; 0 means one a stream."""
    ahead: int = 0
    """Micro-batches laid out and waiting for their turn beyond those of the streams, so that the next begins at
    once where one ends."""
    batch_items: int = 32
    batch_tokens: int = 384
    """A micro-batch holds at most this many items and, above one item, this many tokens (ROAD: a cap on
    tokens matters more than anything else)."""
    fixed_price: float = 16.0
    """What a forward pass costs besides its tokens, in tokens."""
    square_price: float = 0.0015
    """What a place of the padded attention matrix costs, in tokens: of B texts padded to L there are B·L².
    0 where attention too is computed without padding."""
    padding_price: float = 0.0
    """What a place that only fills a text up to its batch's longest costs, in tokens, attention apart: 1 where
    texts are padded to each other. Near 0 where they are computed without padding, or padding costs little."""
    lone: bool = False
    """Whether a text that is alone is computed by all streams' threads together: sooner, for a second copy of the
    matrices in memory."""
    tolerance: float = 0.9999
    """Least cosine to the reference's fp32 vectors that was measured for this dtype; of a cross-encoder in bf16, 1
    less the largest difference of a score, as a share of what lies between the lowest and the highest."""

    @property
    def pads(self) -> bool:
        """Whether a short text costs about as much as the longest that it is computed with."""
        return self.padding_price > 0.5

    @property
    def slots(self) -> int:
        """Micro-batches that a runtime is given at once."""
        return self.streams + self.ahead

    def batches(self, items: int, tokens: float) -> float:
        """How many micro-batches' worth that is."""
        return max(items / self.batch_items, tokens / self.batch_tokens)
