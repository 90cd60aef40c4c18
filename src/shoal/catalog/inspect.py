"""What a model is, read from the files beside its weights: the order in which they are asked. Called by the store
before a model is taken in; knows nothing of engines.
"""

from pathlib import Path

from shoal.catalog.encoder import encoder
from shoal.catalog.layout import family, max_tokens, read_layout
from shoal.catalog.scorer import is_scorer, scorer
from shoal.catalog.settle import settle
from shoal.protocol.errors import InvalidInput
from shoal.protocol.facts import Facts


def read_facts(folder: Path, said: dict[str, object], *, is_whole: bool = True) -> Facts:
    """The facts of the model in `folder`; what its card has `said` wins over what its files say. The weights may
    still be missing where it is not whole.

    1. No tokenizer.json → refused. 2. Code of its own → refused. 3. Weights decide `files`. 4. Without a
    config.json the card has to say task and family. 5. What the card, or the files, call a scorer scores pairs;
    6. anything else encodes. Raises InvalidInput with the reason.
    """
    if not (folder / "tokenizer.json").is_file():  # 1
        raise InvalidInput(
            "no tokenizer.json here; save the fast tokenizer beside the weights "
            "(`AutoTokenizer.from_pretrained(...).save_pretrained(folder)`)"
        )
    layout = read_layout(folder, is_whole=is_whole)  # 2
    has_onnx = (folder / "model.onnx").is_file()
    found: dict[str, object] = {
        "files": "onnx" if has_onnx else "safetensors",
        "lowercase": layout.text.do_lower_case,
    }  # 3
    if limit := max_tokens(layout):
        found["max_tokens"] = limit
    if layout.config is not None:  # 4
        found |= {} if "family" in said else {"family": family(layout.config)}
        scores = "encode" not in said["tasks"] if isinstance(said.get("tasks"), list) else is_scorer(layout)  # type: ignore[operator]
        found |= scorer(layout, layout.config) if scores else encoder(layout, said)  # 5, 6
    return settle(found, said)
