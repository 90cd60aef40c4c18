"""A model that nobody has seen before: fine-tuned here, saved, and served by `shoal add FOLDER` alone, while the
server runs. What it answers is what the library that trained it gives.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import AutoModel, AutoTokenizer

import shoal
from shoal.catalog.store import Store
from shoal.testing.checkpoints import WIDTH, tiny_encoder
from shoal.testing.server import Server, serving

pytestmark = pytest.mark.models

TEXTS = [
    "the capital of france is paris",
    "fish",
    "Small fish swim in a shoal!",
    "berlin, london " * 40,
    "鱼群 42",
]
QUERY = "the capital of france"
STEPS = 5
WITHIN_S = 60


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """One that has no model at all."""
    with serving(tmp_path / "home") as running:
        yield running


@pytest.fixture
def base(tmp_path: Path) -> Path:
    tiny_encoder(tmp_path / "tiny")
    AutoModel.from_pretrained(tmp_path / "tiny").save_pretrained(tmp_path / "base")
    AutoTokenizer.from_pretrained(tmp_path / "tiny").save_pretrained(tmp_path / "base")
    return tmp_path / "base"


def trained(model: Any, inputs: Any) -> Any:
    """A few steps towards random targets, so that no weight is as it was."""
    torch.manual_seed(1)
    features = model.preprocess(inputs)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    target: torch.Tensor | None = None
    model.train()
    for _ in range(STEPS):
        answer = model(dict(features))
        found = next(answer[key] for key in ("sentence_embedding", "scores") if key in answer)
        target = torch.randn_like(found) if target is None else target
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(found, target).backward()
        optimizer.step()
    return model.eval()


def add(server: Server, tmp_path: Path, folder: Path, *words: str) -> str:
    """By the command line, as a person would; what it printed."""
    command = [sys.executable, "-m", "shoal", "add", str(folder), *words]
    environment = os.environ | {"SHOAL_HOME": str(tmp_path / "home"), "SHOAL_OFFLINE": "1"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_an_encoder_with_a_head_of_its_own(server: Server, base: Path, tmp_path: Path) -> None:
    modules = [
        Transformer(str(base)), Pooling(WIDTH, pooling_mode="cls"), Dense(WIDTH, 16), Normalize(),
    ]  # fmt: skip
    model = trained(SentenceTransformer(modules=modules, prompts={"query": "find: "}, device="cpu"), TEXTS)
    model.save(str(tmp_path / "finder"))
    told = add(server, tmp_path, tmp_path / "finder", "--name", "acme/finder")
    assert "16 dims, cls pooling, normalised" in told
    with shoal.Client(server.url) as client:
        for prompt in (None, "query"):
            expected = model.encode(TEXTS, prompt_name=prompt)
            options = {"prompt_name": prompt} if prompt else {}
            answer = client.encode("acme/finder", TEXTS, **options)
            assert answer.shape == (len(TEXTS), 16)
            assert np.sum(answer * expected, axis=1).min() > 0.999
        light = client.encode("acme/finder:int8", TEXTS)
        assert np.sum(light * model.encode(TEXTS), axis=1).min() > 0.98
        assert not np.array_equal(light, client.encode("acme/finder", TEXTS))


def test_a_cross_encoder(server: Server, base: Path, tmp_path: Path) -> None:
    model = trained(CrossEncoder(str(base), num_labels=1, device="cpu"), [(QUERY, text) for text in TEXTS])
    model.save_pretrained(str(tmp_path / "judge"))
    assert "by sigmoid" in add(server, tmp_path, tmp_path / "judge")
    expected = model.predict([(QUERY, text) for text in TEXTS])
    with shoal.Client(server.url) as client:
        answer = {entry.index: entry.score for entry in client.score("judge", QUERY, TEXTS)}
    assert [answer[index] for index in range(len(TEXTS))] == pytest.approx(expected.tolist(), abs=1e-4)


def test_a_model_trained_further_replaces_the_one_that_was_served(
    server: Server, base: Path, tmp_path: Path
) -> None:
    model = SentenceTransformer(modules=[Transformer(str(base)), Pooling(WIDTH), Normalize()], device="cpu")
    folder = tmp_path / "finder"
    with shoal.Client(server.url) as client:
        for _ in range(2):
            model = trained(model, TEXTS)
            model.save(str(folder))
            add(server, tmp_path, folder)
            assert np.sum(soon_near(client, model.encode(TEXTS)) * model.encode(TEXTS), axis=1).min() > 0.999


def soon_near(client: shoal.Client, expected: np.ndarray) -> np.ndarray:
    """The answer once it is near, or the last one: a running node looks for changes every two seconds."""
    until = time.monotonic() + WITHIN_S
    while True:
        answer = client.encode("finder", TEXTS)
        if np.sum(answer * expected, axis=1).min() > 0.999 or time.monotonic() > until:
            return answer


def test_a_variant_is_pinned_listed_and_answers_on_every_route(tmp_path: Path) -> None:
    home = tmp_path / "home"
    tiny_encoder(tmp_path / "m")
    Store(home).add(tmp_path / "m", name="acme/m")
    with serving(home, "--pin", "acme/m:int8") as server:
        states = {model["id"]: model["status"]["state"] for model in get(f"{server.url}/status")["models"]}
        assert states == {"acme/m": "absent", "acme/m:int8": "ready"}
        assert get(f"{server.url}/v1/models/acme__m:int8")["dtype"] == "int8"
        body = {"model": "acme/m:int8", "input": "fish"}
        assert httpx.post(f"{server.url}/v1/embeddings", json=body).status_code == 200
        refused = httpx.post(f"{server.url}/v1/embeddings", json=body | {"model": "acme/m:fp1"})
        assert (refused.status_code, "it has: acme/m:int8" in refused.text) == (404, True)


def get(url: str) -> Any:
    return httpx.get(url).raise_for_status().json()
