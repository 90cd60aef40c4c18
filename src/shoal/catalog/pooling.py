"""Pooling, Dense and Normalize modules as sentence-transformers saves them, each in a folder like `1_Pooling`."""

import re

from shoal.catalog.configs import DenseConfig, Module, NormalizeConfig, PoolingConfig, read
from shoal.catalog.layout import Layout, torch_name
from shoal.protocol.errors import InvalidInput
from shoal.protocol.facts import Dense

_POOLINGS = {
    "mean": "mean",
    "cls": "cls",
    "max": "max",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "weightedmean": "weighted_mean",
    "lasttoken": "last",
}
_ACTIVATIONS = ("identity", "tanh", "relu", "gelu", "sigmoid", "silu")
_FOLDER = re.compile(r"(?:\d+|(?:query|document)_\d+)_\w+")


def module_folder(path: str) -> str:
    """`path` as it is. Only such folders are taken into the store, and none may lead out of it."""
    if not _FOLDER.fullmatch(path):
        raise InvalidInput(f"modules.json names a folder {path!r}; one like 1_Pooling is expected")
    return path


def pooling(layout: Layout, module: Module) -> str:
    path = module_folder(module.path)
    config = read(layout.folder, f"{path}/config.json", PoolingConfig)
    if config is None:
        raise InvalidInput(f"modules.json names {path}, but there is no {path}/config.json")
    width = config.embedding_dimension or config.word_embedding_dimension or layout.hidden_size
    if width != layout.hidden_size:
        raise InvalidInput(f"{path}/config.json says {width} dims, config.json {layout.hidden_size}")
    how = "+".join(config.modes) + ("" if config.include_prompt else " without the prompt")
    if len(config.modes) > 1:
        raise InvalidInput(f"pooling by {how} lays several vectors side by side, which is not served")
    if not config.modes or config.modes[0] not in _POOLINGS or not config.include_prompt:
        raise InvalidInput(f"pooling by {how} is not known here; known: {', '.join(_POOLINGS)}")
    return _POOLINGS[config.modes[0]]


def dense(layout: Layout, module: Module, width: int, *, reads: str) -> tuple[Dense, int]:
    """The layer and the width that it gives. `width` is what comes in; `reads` the feature it has to work on."""
    path = module_folder(module.path)
    config = read(layout.folder, f"{path}/config.json", DenseConfig)
    if config is None:
        raise InvalidInput(f"modules.json names {path}, but there is no {path}/config.json")
    if config.in_features != width:
        raise InvalidInput(f"{path}/config.json takes {config.in_features} dims, but {width} come in")
    if (config.module_input_name or reads) != reads or (config.module_output_name or reads) != reads:
        raise InvalidInput(f"{path}/config.json works on {config.module_input_name!r}, not on {reads!r}")
    activation = torch_name(config.activation_function)
    if activation not in _ACTIVATIONS or config.use_residual:
        what = "a residual connection" if config.use_residual else config.activation_function
        raise InvalidInput(f"a Dense module with {what} is not known here; known: {', '.join(_ACTIVATIONS)}")
    if layout.is_whole and not (layout.folder / path / "model.safetensors").is_file():
        raise InvalidInput(
            f"{path} has no model.safetensors; if its weights are a pickle (pytorch_model.bin), save the model "
            "again with sentence-transformers 3 or newer and add that"
        )
    return Dense(path, activation), config.out_features  # type: ignore[arg-type]  # one of the words, as checked


def check_normalize(layout: Layout, module: Module, *, reads: str) -> None:
    """Raises InvalidInput where the norm is of another feature. Files before release 5.4 have no config."""
    if not module.path:
        return
    config = read(layout.folder, f"{module_folder(module.path)}/config.json", NormalizeConfig)
    if config is not None and (config.module_input_name or reads) != reads:
        raise InvalidInput(f"{module.path} normalises {config.module_input_name!r}, not {reads!r}")
