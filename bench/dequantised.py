"""A published 8-bit ONNX graph of a BERT cross-encoder as the safetensors it was made from, but for the rounding:
`python bench/dequantised.py ONNX_FOLDER FOLDER`. So there is a trained cross-encoder in safetensors to measure.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from safetensors.numpy import save_file

HEADS = 12
"""The graph does not tell it; all of MiniLM's have twelve."""


def main(source: Path, folder: Path) -> None:
    graph = onnx.load(source / "model.onnx").graph
    arrays = {entry.name: numpy_helper.to_array(entry) for entry in graph.initializer}
    weights = {name: values for name, values in arrays.items() if name.startswith(("bert.", "classifier."))}
    weights = {name: values for name, values in weights.items() if "_quantized" not in name}
    weights = {name: values for name, values in weights.items() if not name.endswith(("_scale", "_zero_point"))}
    for name in arrays:
        base = name.removesuffix("_quantized")
        if base != name and base.startswith(("bert.", "classifier.")):
            wide = widened(arrays, base)
            weights[base] = wide if "embeddings" in base else wide.T
    for node in graph.node:
        if node.op_type == "MatMulInteger" and node.input[1].startswith("onnx::"):
            place = node.name.removesuffix("/MatMul_quant").strip("/").replace("/", ".")
            weights[f"{place}.weight"] = widened(arrays, node.input[1].removesuffix("_quantized")).T
    folder.mkdir(parents=True)
    plain = {name: np.ascontiguousarray(values, np.float32) for name, values in weights.items()}
    save_file(plain, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config_of(plain)))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, folder)


def widened(arrays: dict[str, np.ndarray], base: str) -> np.ndarray:
    whole, zero = (arrays[f"{base}_{part}"].astype(np.float32) for part in ("quantized", "zero_point"))
    return (whole - zero) * arrays[f"{base}_scale"]


def config_of(weights: dict[str, np.ndarray]) -> dict[str, object]:
    words, width = weights["bert.embeddings.word_embeddings.weight"].shape
    layers = 1 + max(int(name.split(".")[3]) for name in weights if ".layer." in name)
    return {
        "architectures": ["BertForSequenceClassification"], "model_type": "bert", "vocab_size": words,
        "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": HEADS,
        "intermediate_size": len(weights["bert.encoder.layer.0.intermediate.dense.weight"]),
        "max_position_embeddings": len(weights["bert.embeddings.position_embeddings.weight"]),
        "type_vocab_size": len(weights["bert.embeddings.token_type_embeddings.weight"]),
        "hidden_act": "gelu", "layer_norm_eps": 1e-12, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0},
    }  # fmt: skip


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
