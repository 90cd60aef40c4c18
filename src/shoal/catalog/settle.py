"""Facts made of what was found in a model's files and what its card says, checked to fit each other. Pure."""

from typing import get_args

import msgspec

from shoal.catalog.layout import MAX_TOKENS
from shoal.protocol.errors import InvalidInput
from shoal.protocol.facts import Facts, Kind


def settle(found: dict[str, object], said: dict[str, object]) -> Facts:
    """What the card has `said` wins. Raises InvalidInput for what is missing, absurd or at odds."""
    try:
        facts = msgspec.convert({**found, **said}, Facts)
    except msgspec.ValidationError as e:
        raise InvalidInput(
            f"neither this model's files nor its card say enough: {e} (config.json, modules.json and "
            "tokenizer_config.json say it, or the card's `facts`)"
        ) from e
    if not facts.tasks:
        raise InvalidInput("a model needs a task")
    if not 1 <= facts.max_tokens <= MAX_TOKENS:
        raise InvalidInput(f"max_tokens of {facts.max_tokens} is outside 1…{MAX_TOKENS}")
    _check_kinds(facts)
    if any(not 0 < width < facts.dims for width in facts.matryoshka):
        raise InvalidInput(f"shorter vectors of {list(facts.matryoshka)} dims do not fit {facts.dims}")
    if facts.default_prompt and facts.default_prompt not in facts.prompts:
        raise InvalidInput(f"the default prompt {facts.default_prompt!r} is none of {sorted(facts.prompts)}")
    if len(facts.labels) == 1 or (facts.labels and not facts.reads_pairs):
        raise InvalidInput(
            f"labels {list(facts.labels)} do not fit tasks {list(facts.tasks)}; a single one has no name"
        )
    return facts


def _check_kinds(facts: Facts) -> None:
    """Each kind that an encoder gives is described, and nothing else is."""
    described = {"dense": facts.dims > 0, "sparse": facts.sparse is not None}
    described["multivector"] = facts.multivector is not None
    given = set(facts.kinds) if "encode" in facts.tasks else set()
    for kind in get_args(Kind):
        if described[kind] != (kind in given):
            words = "describe no" if kind in given else "do not ask for the"
            raise InvalidInput(
                f"the facts {words} {kind} vectors: tasks {list(facts.tasks)}, kinds {list(facts.kinds)}, "
                f"dims {facts.dims}"
            )
    if "encode" in facts.tasks and not given:
        raise InvalidInput("an encoder gives at least one kind of vector")
