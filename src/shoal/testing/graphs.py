"""Tiny ONNX graphs as exporters publish them: padded ids and a mask in, token states or a logit out.

A token's state is its row of a random table plus the mean row of its text, so that padding and neighbours would
show. Needs the `onnx` package.
"""

from pathlib import Path

import msgspec
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from shoal.protocol.facts import Facts, Sparse
from shoal.testing.checkpoints import POSITIONS, WIDTH, tiny_tokenizer
from shoal.testing.heads import tiny_multivector


def published_encoder(folder: Path, *, quantised: bool = False, output: str = "last_hidden_state") -> Facts:
    """`quantised`: states pass through 8 bits whose scale depends on the whole batch."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = tiny_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    nodes, constants = _states(tokenizer.get_vocab_size())
    if quantised:
        nodes.append(helper.make_node("DynamicQuantizeLinear", ["states"], ["small", "scale", "zero"]))
        nodes.append(helper.make_node("DequantizeLinear", ["small", "scale", "zero"], [output]))
    else:
        nodes.append(helper.make_node("Identity", ["states"], [output]))
    _write(folder, nodes, constants, output, ["input_ids", "attention_mask"], [None, None, WIDTH])
    return Facts(
        tasks=("encode",), family="bert", files="onnx", max_tokens=POSITIONS, dims=WIDTH,
        matryoshka=(WIDTH // 2,), pooling="mean", normalize=True,
    )  # fmt: skip


def published_reranker(folder: Path) -> Facts:
    """Its logit depends on the segments too."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = tiny_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    nodes, constants = _states(tokenizer.get_vocab_size())
    nodes += [
        helper.make_node("Cast", ["token_type_ids"], ["segments"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["segments", "one"], ["second"], keepdims=1),
        helper.make_node("ReduceSum", ["mean", "last"], ["total"], keepdims=0),
        helper.make_node("Add", ["total", "second"], ["logits"]),
    ]
    constants.append(numpy_helper.from_array(np.array([2], np.int64), "last"))
    _write(folder, nodes, constants, "logits", ["input_ids", "attention_mask", "token_type_ids"], [None, 1])
    return Facts(tasks=("score",), family="bert", files="onnx", max_tokens=POSITIONS)


def published_sparse(folder: Path, *, quantised: bool = False) -> Facts:
    """A masked language model: its logits are the states themselves, some 30 words' worth."""
    facts = published_encoder(folder, quantised=quantised, output="logits")
    return msgspec.structs.replace(
        facts, kinds=("sparse",), sparse=Sparse(), dims=0, matryoshka=(), pooling="none", normalize=False
    )


def published_multivector(folder: Path, *, quantised: bool = False) -> Facts:
    """Token states, projected outside the graph."""
    facts = published_encoder(folder, quantised=quantised)
    head = tiny_multivector(folder / "head")
    (folder / "head" / "1_Dense").rename(folder / "1_Dense")
    return msgspec.structs.replace(facts, tasks=head.tasks, kinds=head.kinds, multivector=head.multivector)


def published_classifier(folder: Path) -> Facts:
    """Its two logits are the reranker's and that from 1."""
    facts = published_reranker(folder)
    model = onnx.load(folder / "model.onnx")
    (last,) = [node for node in model.graph.node if "logits" in node.output]
    last.output[0] = "logit"
    model.graph.initializer.append(numpy_helper.from_array(np.array(1, np.float32), "unit"))
    model.graph.node.extend(
        [
            helper.make_node("Sub", ["unit", "logit"], ["other"]),
            helper.make_node("Concat", ["logit", "other"], ["logits"], axis=1),
        ]
    )
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 2
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return msgspec.structs.replace(facts, labels=("good", "bad"))


def _states(tokens: int) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """mean [B, 1, width] and states [B, L, width]."""
    table = np.random.default_rng(0).standard_normal((tokens, WIDTH)).astype(np.float32)
    constants = [
        numpy_helper.from_array(table, "table"),
        numpy_helper.from_array(np.array([1], np.int64), "one"),
        numpy_helper.from_array(np.array([-1], np.int64), "minus_one"),
    ]
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
        helper.make_node("Cast", ["attention_mask"], ["weights"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["weights", "minus_one"], ["columns"]),
        helper.make_node("Mul", ["rows", "columns"], ["weighted"]),
        helper.make_node("ReduceSum", ["weighted", "one"], ["sum"], keepdims=1),
        helper.make_node("ReduceSum", ["columns", "one"], ["count"], keepdims=1),
        helper.make_node("Div", ["sum", "count"], ["mean"]),
        helper.make_node("Add", ["rows", "mean"], ["states"]),
    ]
    return nodes, constants


def _write(
    folder: Path,
    nodes: list[onnx.NodeProto],
    constants: list[onnx.TensorProto],
    output: str,
    inputs: list[str],
    shape: list[int | None],
) -> None:
    graph = helper.make_graph(
        nodes,
        "published",
        [helper.make_tensor_value_info(name, TensorProto.INT64, [None, None]) for name in inputs],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
        initializer=constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
