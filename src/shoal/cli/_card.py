"""How a model is shown to a person and to a program; used by the verbs that show one."""

import shutil
import sys
import textwrap
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import typer

from shoal.protocol import sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.catalog import Card, Model
    from shoal.catalog.profiles import Profiles


def as_data(card: "Card", model: "Model | None", *, is_default: bool) -> dict[str, Any]:
    """What `--json` prints: the card, and `model` with facts, size and digest where its files are here."""
    import msgspec

    installed = model and {
        "facts": msgspec.to_builtins(model.facts),
        "folder": str(model.folder),
        "digest": model.digest,
        "size_bytes": model.size_bytes,
    }
    return {"name": card.name, "default": is_default, "model": installed, "card": msgspec.to_builtins(card)}


def rows_of(card: "Card", model: "Model | None", adapters: "Sequence[str]" = ()) -> list[tuple[str, str]]:
    """Label and words for each thing worth knowing of a model, or of a card whose files are not here. `adapters`
    are the names of those that change it; of an adapter itself, the rest is its base's."""
    rows = [("model", card.name), ("what", card.title)]
    if model is not None and card.base:
        rows += [
            ("adapter of", card.base),
            ("factors", _factors(model)),
            ("task", ", ".join(model.facts.tasks)),
            ("size", sizes.in_words(model.size_bytes) + (", kept" if model.keep else "")),
        ]
    elif model is not None:
        task, family, *gives = what_it_does(model)
        rows += [
            task,
            family,
            ("runtime", runtime_of(model)[0]),
            ("profile", _settled(model)),
            *gives,
            ("variants", "\n".join(_variants(model))),
            ("adapters", ", ".join(adapters)),
            ("size", sizes.in_words(model.size_bytes) + (", kept" if model.keep else "")),
        ]
    rows += [
        ("licence", licence(card) or "not said"),
        ("homepage", card.homepage),
        ("from", _origin(card)),
        ("revision", _revision(card)),
        ("refused", card.unservable),
        ("files", _files(card, model)),
    ]
    return [(label, words) for label, words in rows if words]


def what_it_does(model: "Model") -> list[tuple[str, str]]:
    """Label and words for what was read from its files, the task first; no words where it has no such thing."""
    facts = model.facts
    return [
        ("task", ", ".join(facts.tasks)),
        ("family", f"{facts.family}, from {facts.files}" if facts.files != "none" else "none: a stand-in"),
        ("vector", _vector(model) if facts.dims else ""),
        ("words", _words(model)),
        ("tokens", _tokens(model)),
        ("score", _score(model) if "score" in facts.tasks else ""),
        ("labels", ", ".join(facts.labels)),
        ("limit", f"{facts.max_tokens} tokens"),
        ("prompts", "\n".join(_prompts(model))),
    ]


def _factors(model: "Model") -> str:
    from shoal.catalog.adapter import settings_of

    said = settings_of(model.folder)
    targets = said.targets if isinstance(said.targets, str) else ", ".join(said.targets[:6])
    more = ", …" if not isinstance(said.targets, str) and len(said.targets) > 6 else ""
    return f"rank {said.rank}, alpha {said.alpha:g}{', rslora' if said.rslora else ''}, of {targets}{more}"


def print_rows(rows: list[tuple[str, str]]) -> None:
    """A label and its words on each line; on a terminal the words are wrapped beside the label."""
    width = max(len(label) for label, _ in rows) + 2
    room = shutil.get_terminal_size().columns - width if sys.stdout.isatty() else 10_000
    for label, words in rows:
        lines = [part for line in words.splitlines() for part in _wrap(line, max(room, 20))]
        for first, line in zip_longest([label], lines, fillvalue=""):
            typer.echo(f"{first:<{width}}{line}".rstrip())


def print_table(rows: list[list[str]]) -> None:
    """Columns as wide as their widest cell; the first row is the header.

    On a terminal that is too narrow, columns are left out from the last, but for the first, and are named.
    """
    columns = [list(column) for column in zip(*rows, strict=True)]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
    widths = [max(map(len, column)) for column in columns]
    shown = len(columns)
    while shown > 1 and sum(widths[:shown]) + 2 * (shown - 1) > room:
        shown -= 1
    for row in rows:
        cells = (f"{cell:<{width}}" for cell, width in zip(row[:shown], widths, strict=False))
        typer.echo("  ".join(cells).rstrip())
    if shown < len(columns):
        typer.echo(f"This terminal is too narrow for {', '.join(rows[0][shown:])}.", err=True)


def _wrap(line: str, room: int) -> list[str]:
    return textwrap.wrap(line, room, break_long_words=False, break_on_hyphens=False)


def licence(card: "Card") -> str:
    """As people write it: SPDX has a word for a publisher that says none."""
    return "not stated" if card.licence == "NOASSERTION" else card.licence


def _origin(card: "Card") -> str:
    """Where a copy was taken from; a card that comes with Shoal says it among its sources."""
    from shoal.catalog import Folder, Tar

    return f"a copy of {card.source.path}" if isinstance(card.source, Folder | Tar) else ""


def _revision(card: "Card") -> str:
    """What was copied from this machine has none, and nobody could have looked it up."""
    return card.revision or ("" if card.verified or _origin(card) else "unverified")


def _files(card: "Card", model: "Model | None") -> str:
    if model is not None:
        return str(model.folder)
    return "not here" if card.unservable else f"not here: shoal add {card.name}"


def _vector(model: "Model") -> str:
    facts = model.facts
    shorter = f", or {', '.join(map(str, sorted(facts.matryoshka)))}" if facts.matryoshka else ""
    length = "normalised" if facts.normalize else "not normalised"
    pooling = "" if facts.pooling == "none" else f", {facts.pooling} pooling"
    return f"{facts.dims} dims{shorter}{pooling}, {length}"


def runtime_of(model: "Model") -> tuple[str, bool]:
    """What would serve it on this machine, or why nothing would, and whether anything does."""
    from shoal.node.devices import has_pytorch, profile_for
    from shoal.protocol.errors import ShoalError

    try:
        profile = profile_for(model, _profiles())
    except ShoalError as error:
        return f"none here: {error.message}", False
    if profile.runtime == "pytorch" and not has_pytorch():
        return "pytorch, which is not installed here: pip install 'shoal[pytorch]'", False
    published = model.facts.files == "onnx"
    return profile.runtime + (", as published" if published else f", {profile.dtype}"), True


def _settled(model: "Model") -> str:
    """What was measured for kinds of device like this one, where the profile comes from that."""
    profiles = _profiles()
    kept = None if model.variant else profiles.of(model)
    if kept is None:
        return ""
    whose = "here" if profiles.own(model) else "before Shoal was shipped"
    figures = "".join(f"\n{f.what}: {f.value:.6f}" for f in kept.figures)
    return (
        f"{kept.dtype} at a tolerance of {kept.tolerance}, measured {whose} by {kept.by} ({kept.engine}){figures}"
    )


def _profiles() -> "Profiles":
    from shoal.catalog.profiles import Profiles
    from shoal.catalog.store import Store
    from shoal.node import devices

    return Profiles(Store().home, devices.kind())


_WEIGHTS = {
    "relu": "relu(logit)",
    "log1p_relu": "log(1 + relu(logit))",
    "log1p_log1p_relu": "log(1 + log(1 + relu(logit)))",
}


def _words(model: "Model") -> str:
    sparse = model.facts.sparse
    if sparse is None:
        return ""
    queries = "" if sparse.queries == "network" else f"; of a query, those of the table {sparse.table}"
    over = {"max": "greatest", "sum": "sum"}[sparse.pooling]
    return f"a weight each, the {over} over all places in the text of {_WEIGHTS[sparse.activation]}{queries}"


def _tokens(model: "Model") -> str:
    many = model.facts.multivector
    if many is None:
        return ""
    filled = f", queries filled up to {many.query_tokens}" if many.expand else ""
    skipped = f", {len(many.skip)} words skipped in documents" if many.skip else ""
    return f"a vector of {many.dims} dims each{filled}{skipped}"


def _score(model: "Model") -> str:
    facts = model.facts
    if not facts.reads_pairs:
        return "MaxSim of the tokens' vectors"
    return "logits, as the model has no activation" if facts.activation == "identity" else f"by {facts.activation}"


def _variants(model: "Model") -> list[str]:
    from shoal.catalog.variants import variants_of

    return [
        f"{model.card.name}:{name} ({variant.dtype}, cosine {variant.tolerance}"
        + (f"; {' '.join(variant.note.split())})" if variant.note else ")")
        for name, variant in variants_of(model.card, model.facts).items()
    ]


def _prompts(model: "Model") -> list[str]:
    facts = model.facts
    return [
        f"{name}: {prompt!r}" + (" (used if none is named)" if name == facts.default_prompt else "")
        for name, prompt in facts.prompts.items()
    ]
