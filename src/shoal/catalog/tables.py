"""Writes the table of weights that a sparse model's queries are looked up in, where it is kept as a tensor.

Format: JSON, token → weight; tokens whose weight is 0 are left out.
"""

from pathlib import Path

import msgspec

from shoal.catalog.layout import read_layout
from shoal.catalog.sparse import TABLE, static_folder
from shoal.catalog.vocabulary import vocabulary
from shoal.protocol.errors import InvalidInput


def write_table(folder: Path) -> None:
    """Does nothing for a model without such a tensor. Raises InvalidInput where it does not fit the tokens."""
    if not (folder / "router_config.json").is_file():
        return
    static = static_folder(read_layout(folder))
    path = folder / static / "model.safetensors"
    if not static or not path.is_file():
        return
    from safetensors.numpy import load_file

    tokens = vocabulary(folder)
    weights = load_file(path).get("weight")
    if weights is None or weights.ndim != 1 or len(weights) < max(tokens.values(), default=0) + 1:
        raise InvalidInput(f"{static}/model.safetensors holds no weight for each of {len(tokens)} tokens")
    by_token = {token: float(weights[number]) for token, number in sorted(tokens.items()) if weights[number]}
    (folder / TABLE).write_bytes(msgspec.json.encode(by_token))
