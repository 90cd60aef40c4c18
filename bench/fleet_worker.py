"""PEFT, one adapter at a time: `python bench/fleet_worker.py MODEL_FOLDER ADAPTER_FOLDER…`, asked by worker.py.

What many adapters cost where they cannot share a batch: texts at hand are put together by adapter, and the
model is switched from one to the next. In bf16, on all cores, sorted by length as sentence-transformers does.
"""

import itertools
import sys

import torch
from peft import PeftModel
from sentence_transformers import SentenceTransformer

from timed import timed
from worker import answer


def main(folder: str, adapters: list[str]) -> None:
    model = SentenceTransformer(folder, device="cpu", model_kwargs={"dtype": torch.bfloat16})
    names = [f"adapter{number}" for number in range(len(adapters))]
    adapted = PeftModel.from_pretrained(model[0].auto_model, adapters[0], adapter_name=names[0])
    for name, adapter in zip(names[1:], adapters[1:], strict=True):
        adapted.load_adapter(adapter, adapter_name=name)
    model[0].auto_model = adapted.base_model.model
    adapted.eval()

    def load(texts: list[str], owners: list[int], at_once: int, seconds: float) -> float:
        """Texts a second, of which `at_once` are at hand at a time; number i is for adapter `owners[i]`."""
        asked = list(zip(owners, texts, strict=True))

        def call(turn: int) -> None:
            some = sorted(asked[(turn * at_once + i) % len(asked)] for i in range(at_once))
            for owner, group in itertools.groupby(some, key=lambda one: one[0]):
                adapted.set_adapter(names[owner])
                model.encode([text for _, text in group], batch_size=32, show_progress_bar=False)

        found = timed(call, seconds)
        return found.calls * at_once / found.seconds

    answer(load=load)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
