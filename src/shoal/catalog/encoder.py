"""What an encoder gives, read from modules.json: one dense vector here; sparse and multivector in their files."""

from shoal.catalog import multivector, sparse
from shoal.catalog.layout import Layout, prompts
from shoal.catalog.pooling import check_normalize, dense, pooling
from shoal.catalog.readme import is_tagged_sparse, trained_widths
from shoal.protocol.errors import InvalidInput

_FEATURE = "sentence_embedding"


def encoder(layout: Layout, said: dict[str, object]) -> dict[str, object]:
    """As sentence-transformers would load it.

    1. A ColBERT, by what saved it; 2. SPLADE, by its modules, by its card, or by its README's tags; 3. a pipeline
    of modules; 4. a plain encoder: the mean of its states. Raises InvalidInput for what is none of these.
    """
    kinds = [module.kind for module in layout.modules or ()]
    if multivector.is_multivector(layout):  # 1
        return multivector.multivector(layout)
    if layout.modules is not None and sparse.is_sparse(layout):  # 2
        return sparse.from_modules(layout)
    is_masked = any(name.endswith("ForMaskedLM") for name in layout.architectures)
    if not kinds and is_masked and (said.get("kinds") == ["sparse"] or is_tagged_sparse(layout.folder)):  # 2
        return sparse.plain()
    if layout.modules is not None:  # 3
        return _pipeline(layout)
    if any(name.endswith("Model") for name in layout.architectures):  # 4
        return _with_widths(layout, {"pooling": "mean"}, layout.hidden_size)
    raise InvalidInput(
        f"a model of {layout.architectures} neither encodes nor scores; an encoder has a modules.json, or is "
        "saved as a plain …Model; a SPLADE has the tag splade in its README, or a card that says sparse"
    )


def _pipeline(layout: Layout) -> dict[str, object]:
    """Transformer, Pooling, any Dense, maybe Normalize at the end."""
    modules = [module for module in layout.modules or () if module.kind != "Dropout"]
    kinds = [module.kind for module in modules]
    middle = kinds[2:-1] if kinds[-1:] == ["Normalize"] else kinds[2:]
    if kinds[:2] != ["Transformer", "Pooling"] or set(middle) - {"Dense"}:
        raise InvalidInput(
            f"modules.json has {', '.join(kinds) or 'nothing'}; known: Transformer, Pooling, any number of Dense, "
            "maybe Normalize"
        )
    found: dict[str, object] = {"pooling": pooling(layout, modules[1])}
    width, layers = layout.hidden_size, []
    for module in modules[2:]:
        if module.kind == "Dense":
            layer, width = dense(layout, module, width, reads=_FEATURE)
            layers.append(layer)
        else:
            check_normalize(layout, module, reads=_FEATURE)
            found["normalize"] = True
    return _with_widths(layout, found | {"dense": layers}, width)


def _with_widths(layout: Layout, found: dict[str, object], dims: int) -> dict[str, object]:
    said = set(layout.config.matryoshka_dimensions or ()) if layout.config else set()
    widths = sorted(width for width in said | trained_widths(layout.folder) if 0 < width < dims)
    return {"tasks": ["encode"], "dims": dims, "matryoshka": widths, **prompts(layout.sentence), **found}
