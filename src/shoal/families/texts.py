"""What the families of text encoders do alike: read texts with the model's tokenizer, then describe a network."""

from collections.abc import Callable, Collection
from pathlib import Path

from shoal.families import Network, Ops, Reader
from shoal.families.tokenize import TextReader, load_tokenizer
from shoal.families.weights import Checkpoint, read_json
from shoal.protocol.errors import ModelLoadFailed
from shoal.protocol.facts import Facts


class TextFamily:
    def __init__(
        self,
        network: Callable[[Ops, Checkpoint, Facts], Network],
        *model_types: str,
        offset_positions: bool = False,
        replaces_code: Collection[str] = (),
    ) -> None:
        self.network = network
        self.model_types = model_types
        self.offset_positions = offset_positions
        self.replaces_code = replaces_code

    def open_reader(self, folder: Path, facts: Facts) -> Reader:
        """Raises ModelLoadFailed where the tokenizer has more tokens than the model."""
        reader = TextReader(load_tokenizer(folder), facts)
        if facts.files == "safetensors":
            known = read_json(folder / "config.json").get("vocab_size", 0)
            if not isinstance(known, int) or reader.vocabulary > known:
                raise ModelLoadFailed(f"the tokenizer has {reader.vocabulary} tokens, the model only {known}")
        return reader
