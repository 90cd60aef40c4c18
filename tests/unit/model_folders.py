"""Small model folders as publishers lay them out, with weights that nobody would want to serve."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

CONFIG = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "hidden_size": 8,
    "max_position_embeddings": 512,
}
POOLING = {"word_embedding_dimension": 8, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def module(number: int, kind: str, path: str = "") -> dict[str, Any]:
    return {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}


def write_plain(folder: Path, seed: int = 0, **config: Any) -> Path:
    """What transformers saves: weights, config, tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({"w": np.full((2, 3), seed, dtype=np.float32)}, folder / "model.safetensors")
    write_json(folder / "config.json", CONFIG | config)
    write_json(folder / "tokenizer.json", {"model": {"type": "WordPiece", "vocab": {}}})
    write_json(folder / "tokenizer_config.json", {"model_max_length": 512})
    return folder


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
    return write_plain(folder, **(one_label | config))
