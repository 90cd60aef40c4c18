"""Text to the model's own tokens: their ids, and the characters each stands for. Nothing is computed or cut."""

from collections.abc import Sequence

import msgspec

from shoal.protocol.errors import EmptyInput, Fault, PayloadTooLarge
from shoal.protocol.facts import Facts
from shoal.protocol.items import Item, Output
from shoal.tasks import Entry
from shoal.tasks.prompts import named_prompt, require_task, text_fault

MOST_CHARACTERS = 1_000_000
"""Of one request: a character may be a token, and tokens listed take a hundred times its memory."""


class TokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`markers` asks for the tokens at a text's ends as well. `prompt` names a prefix, which is then part of the
    text; none is put where none is named, so that places are those in the client's own text.
    """

    texts: list[str]
    markers: bool = True
    prompt: str = ""


class Token(msgspec.Struct, frozen=True):
    """`text` is what stands at start…stop in the text, in characters; a marker's is its name."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class Tokenized(msgspec.Struct, frozen=True):
    tokens: list[Token] = []
    fault: Fault | None = None


class TokenizeResponse(msgspec.Struct, frozen=True, kw_only=True):
    """`texts` in the order of the request; `tokens` counts those of all, markers included."""

    texts: list[Tokenized]
    tokens: int


class Tokenize:
    name = "tokenize"

    def split(self, request: TokenizeRequest, facts: Facts) -> list[Entry]:
        """An entry for each text; an empty one has no tokens but its markers. Raises PayloadTooLarge."""
        require_task(self.name, facts)
        seen = sum(map(len, request.texts))
        if seen > MOST_CHARACTERS:
            raise PayloadTooLarge(
                f"the texts are {seen} characters, over the limit of {MOST_CHARACTERS}; send them in parts",
                limit=MOST_CHARACTERS,
                seen=seen,
            )
        prompt = named_prompt(request.prompt, facts) if request.prompt else ""
        return [_entry(text, prompt) for text in request.texts]

    def join(self, request: TokenizeRequest, facts: Facts, outputs: Sequence[Output]) -> TokenizeResponse:
        assert len(outputs) == len(request.texts), "as many outputs as texts"
        return TokenizeResponse(
            texts=[_tokenized(output, request.markers) for output in outputs],
            tokens=sum(output.tokens for output in outputs),
        )


def _entry(text: str, prompt: str) -> Entry:
    fault = text_fault(text)
    if fault is not None and fault.code != EmptyInput.code:
        return fault
    return Item(text=text, prompt=prompt, kinds=("tokens",))


def _tokenized(output: Output, markers: bool) -> Tokenized:
    if output.fault is not None:
        return Tokenized(fault=output.fault)
    ids = output.tensors["tokens.ids"].numpy().tolist()
    places = output.tensors["tokens.places"].numpy().tolist()
    tokens = [
        Token(id, text, False, start, stop) if start >= 0 else Token(id, text, True, None, None)
        for id, text, (start, stop) in zip(ids, output.texts, places, strict=True)
        if markers or start >= 0
    ]
    return Tokenized(tokens)


TASK = Tokenize()
