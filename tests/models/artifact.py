"""A published ONNX file run alone by plain ONNX Runtime, one text or pair at a time, cut by its tokenizer."""

from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer


class Artifact:
    """model.onnx and tokenizer.json of `folder`, for texts of at most `limit` tokens."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(limit, strategy="longest_first")

    def first_output(self, *texts: str) -> np.ndarray:
        encoding = self._tokenizer.encode(*texts)
        feed = {
            "input_ids": encoding.ids,
            "attention_mask": encoding.attention_mask,
            "token_type_ids": encoding.type_ids,
        }
        return np.asarray(self._session.run(None, {name: np.array([row]) for name, row in feed.items()})[0])

    def first_token(self, text: str) -> np.ndarray:
        """Its state, normalised: the vector of an encoder that pools so."""
        state = self.first_output(text)[0, 0]
        return np.asarray(state / np.linalg.norm(state))
