"""ColBERT models: as sentence-transformers saves them since 6, as PyLate did before, as Stanford's library did.

Each says the same in other places: how long a query is made, what marks a query and a document, which tokens of
a document give no vector, and the projection. What is read here follows sentence-transformers' own loader.
"""

import string
from collections.abc import Sequence

from shoal.catalog.configs import Expansion, MaskConfig, Module, Stanford, read
from shoal.catalog.layout import Layout, positions, prompts
from shoal.catalog.pooling import check_normalize, dense, module_folder
from shoal.catalog.vocabulary import vocabulary
from shoal.families.weights import Checkpoint
from shoal.protocol.errors import InvalidInput, ModelLoadFailed
from shoal.protocol.facts import Dense

_FEATURE = "token_embeddings"
_MASKS = (None, "[MASK]", "<mask>")

Found = dict[str, object]


def is_multivector(layout: Layout) -> bool:
    is_saved_so = layout.sentence.model_type in ("MultiVectorEncoder", "ColBERT")
    return is_saved_so or "HF_ColBERT" in layout.architectures


def multivector(layout: Layout) -> Found:
    """1. Stanford's; 2. PyLate's, whose marks are tokens after the first; 3. sentence-transformers', whose marks
    are prompts.
    """
    if layout.modules is None:  # 1
        return _stanford(layout)
    if layout.sentence.model_type == "ColBERT":  # 2
        return _pylate(layout, layout.modules)
    return _modern(layout, layout.modules)  # 3


def _modern(layout: Layout, modules: Sequence[Module]) -> Found:
    text = layout.text
    head = _projected(layout, modules) | _lengths(text.query_expansion, text.query_length, text.document_length)
    return _facts(head, prompts(layout.sentence))


def _pylate(layout: Layout, modules: Sequence[Module]) -> Found:
    said = layout.sentence
    expansion = None
    if said.do_query_expansion is not False:
        expansion = Expansion("fixed", said.query_length or 32, bool(said.attend_to_expansion_tokens))
    head = _projected(layout, modules) | {"normalize": True}
    head["skip"] = list(string.punctuation) if said.skiplist_words is None else said.skiplist_words
    head |= _lengths(expansion, said.query_length, said.document_length)
    sides = {"query": said.query_prefix or "", "document": said.document_prefix or ""}
    marks, prefixes = _marks(layout, sides)
    asked = prompts(said)
    named = {
        side: prefixes[side] + text for side, text in (said.prompts or {}).items() if text and side in prefixes
    }
    asked["prompts"] = {**asked["prompts"], **prefixes, **named}  # type: ignore[dict-item]  # it is a dict
    return _facts(head | marks, asked, limit=positions(layout.config))


def _stanford(layout: Layout) -> Found:
    said = read(layout.folder, "artifact.metadata", Stanford) or Stanford()
    head: Found = {"dims": _projected_to(layout) or said.dim, "projection": [Dense("")], "normalize": True}
    head["skip"] = list(string.punctuation) if said.mask_punctuation else []
    head |= _lengths(Expansion("fixed", said.query_maxlen, said.attend_to_mask_tokens), None, said.doc_maxlen)
    marks, prefixes = _marks(layout, {"query": said.query_token_id, "document": said.doc_token_id})
    return _facts(head | marks, {"prompts": prefixes}, limit=positions(layout.config))


def _projected_to(layout: Layout) -> int:
    """The width of the projection that is in the checkpoint; 0 where that is not here, or has none."""
    if not layout.is_whole or not (layout.folder / "config.json").is_file():
        return 0
    try:
        return len(Checkpoint(layout.folder).weight("linear.weight", -1, -1))
    except ModelLoadFailed:
        return 0


def _facts(head: Found, asked: Found, limit: int | None = None) -> Found:
    """Scored by MaxSim too. `limit` where the files' own lengths are those of one side of the search."""
    found: Found = {"tasks": ["encode", "score"], "kinds": ["multivector"], "multivector": head, **asked}
    return found if limit is None else {**found, "max_tokens": limit}


def _projected(layout: Layout, modules: Sequence[Module]) -> Found:
    """Transformer, any Dense, and the mask and the norm in either order."""
    kinds = [module.kind for module in modules]
    if kinds[:1] != ["Transformer"] or set(kinds[1:]) - {"Dense", "MultiVectorMask", "Normalize"}:
        raise InvalidInput(
            f"modules.json has {', '.join(kinds) or 'nothing'}; known for vectors of tokens: Transformer, Dense, "
            "MultiVectorMask, Normalize"
        )
    width, layers, found = layout.hidden_size, [], Found(normalize=False, skip=[])
    for module in modules[1:]:
        if module.kind == "Dense":
            layer, width = dense(layout, module, width, reads=_FEATURE)
            layers.append(layer)
        elif module.kind == "Normalize":
            check_normalize(layout, module, reads=_FEATURE)
            found["normalize"] = True
        else:
            found["skip"] = _skipped(layout, module)
    return found | {"dims": width, "projection": layers}


def _skipped(layout: Layout, module: Module) -> list[str]:
    config = read(layout.folder, f"{module_folder(module.path)}/config.json", MaskConfig) or MaskConfig()
    if config.skiplist_tasks not in (None, "document", ["document"]) or config.keep_only_token_ids:
        raise InvalidInput(
            f"{module.path} leaves out tokens of queries, or keeps only some; neither is known here"
        )
    return config.skiplist_words or []


def _lengths(expansion: Expansion | None, query: int | None, document: int | None) -> Found:
    if expansion is None:
        return {"query_tokens": query or 0, "expand": False, "document_tokens": document or 0}
    if expansion.strategy != "fixed" or expansion.token not in _MASKS:
        raise InvalidInput(
            f"queries filled up by {expansion.strategy!r} with {expansion.token or 'the mask'} are not known; "
            "known: 'fixed', with the mask"
        )
    return {
        "query_tokens": expansion.length, "expand": True, "attend_to_expansion": expansion.attend,
        "document_tokens": document or 0,
    }  # fmt: skip


def _marks(layout: Layout, sides: dict[str, str]) -> tuple[Found, dict[str, str]]:
    """The marks that the tokenizer has as a token, and the others, which are text before the text."""
    tokens = vocabulary(layout.folder) if any(sides.values()) else {}
    marks: Found = {}
    prefixes = {}
    for side, mark in sides.items():
        if found := next((token for token in (mark, mark.strip()) if token and token in tokens), ""):
            marks[f"{side}_marker"] = found
        elif mark:
            prefixes[side] = mark
    return marks, prefixes
