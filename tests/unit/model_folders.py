"""Small model folders as publishers lay them out, with weights that nobody would want to serve."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from shoal.testing.checkpoints import tiny_tokenizer

WIDTH, INNER = 8, 16
_TOKENIZER = tiny_tokenizer()
CONFIG = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "vocab_size": _TOKENIZER.get_vocab_size(),
    "hidden_size": WIDTH,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": INNER,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
}
POOLING = {"word_embedding_dimension": 8, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def module(number: int, kind: str, path: str = "") -> dict[str, Any]:
    return {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}


def write_plain(folder: Path, seed: int = 0, labels: int = 0, masked: bool = False, **config: Any) -> Path:
    """What transformers saves: weights, config, tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", CONFIG | config)
    save_file(_weights(seed, labels, masked), folder / "model.safetensors")
    _TOKENIZER.save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", {"model_max_length": 512})
    return folder


def _weights(seed: int, labels: int, masked: bool) -> dict[str, Any]:
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (CONFIG["vocab_size"], WIDTH),  # type: ignore[dict-item]  # an int
        "embeddings.position_embeddings.weight": (512, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
        "embeddings.LayerNorm.weight": (WIDTH,),
    }
    layer = "encoder.layer.0"
    for name in ("self.query", "self.key", "self.value", "output.dense"):
        shapes[f"{layer}.attention.{name}.weight"] = (WIDTH, WIDTH)
    shapes[f"{layer}.intermediate.dense.weight"] = (INNER, WIDTH)
    shapes[f"{layer}.output.dense.weight"] = (WIDTH, INNER)
    shapes |= {f"{layer}.{name}.LayerNorm.weight": (WIDTH,) for name in ("attention.output", "output")}
    if labels:
        shapes |= {"pooler.dense.weight": (WIDTH, WIDTH), "classifier.weight": (labels, WIDTH)}
    if masked:
        head = "cls.predictions.transform"
        shapes |= {f"{head}.dense.weight": (WIDTH, WIDTH), f"{head}.LayerNorm.weight": (WIDTH,)}
        shapes["cls.predictions.bias"] = (CONFIG["vocab_size"],)  # type: ignore[assignment]  # as above
    biased = {n: shape for n, shape in shapes.items() if n.endswith(".weight") and "_embeddings" not in n}
    shapes |= {n.removesuffix("weight") + "bias": shape[:1] for n, shape in biased.items()}
    return {name: np.full(shape, seed, dtype=np.float32) for name, shape in shapes.items()}


def write_encoder(folder: Path, seed: int = 0, **config: Any) -> Path:
    """What sentence-transformers saves."""
    write_plain(folder, seed, **config)
    modules = [module(0, "Transformer"), module(1, "Pooling", "1_Pooling"), module(2, "Normalize", "2_Normalize")]
    write_json(folder / "modules.json", modules)
    write_json(folder / "1_Pooling" / "config.json", POOLING)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 256, "do_lower_case": False})
    return folder


def write_scorer(folder: Path, **config: Any) -> Path:
    one_label = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
    return write_plain(folder, labels=1, **(one_label | config))
