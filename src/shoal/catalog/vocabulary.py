"""The tokens that a model's tokenizer.json knows. Loads the tokenizer: only for models that need to be asked."""

from pathlib import Path

from shoal.protocol.errors import InvalidInput


def vocabulary(folder: Path) -> dict[str, int]:
    """Token → id, added ones included. Raises InvalidInput for a file that is no tokenizer."""
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab(with_added_tokens=True)
    except Exception as e:  # the library raises plain Exception, whatever is wrong
        raise InvalidInput(f"tokenizer.json: {e}") from e
