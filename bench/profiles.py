"""The profiles that ship with Shoal, measured again: `python bench/profiles.py [NAME | NAME=FOLDER …]`.

Of each named model, or of all that are here and known by a card, runs the gate on texts of our own and writes
src/shoal/catalog/profiles/<card>.toml, where other kinds of device keep what they had. FOLDER holds a card's files
where they came another way than the card says.
"""

import sys
from pathlib import Path

import msgspec

from shoal.catalog import Model, profiles
from shoal.catalog.artifacts import digest_of, size_of
from shoal.catalog.cards import all_cards
from shoal.catalog.inspect import read_facts
from shoal.catalog.profiles import Kept, Shipped, parse_shipped
from shoal.catalog.store import Store, silent
from shoal.lab.gate_run import judge
from shoal.lab.gate_texts import make_trial
from shoal.node import devices
from shoal.protocol.errors import InvalidInput

FOLDER = Path(profiles.__file__).parent


def main(names: list[str]) -> None:
    for model in [named(name) for name in names] or Store().models().values():
        if model.name in all_cards():
            try:
                verdict = judge(model, "bf16", make_trial(model.facts), lambda words: None)
            except InvalidInput as error:
                print(f"{model.name}: {error.message}")
                continue
            for figure in verdict.figures:
                print(f"{model.name}: {figure.what}: {figure.value:.6f} {figure.sign} {figure.bar or ''}")
            ship(model, verdict.kept("bench/profiles.py"))


def named(name: str) -> Model:
    name, _, folder = name.partition("=")
    if not folder:
        return Store().resolve(name)
    card, path = all_cards()[name], Path(folder)
    facts = read_facts(path, card.facts)
    return Model(card=card, facts=facts, folder=path, digest=digest_of(path, silent), size_bytes=size_of(path))


def ship(model: Model, kept: Kept) -> None:
    path = FOLDER / f"{model.name.rpartition('/')[2].lower()}.toml"
    old = parse_shipped(path.read_text(encoding="utf-8"), path.name) if path.exists() else None
    others = old.on if old and old.digest == model.digest else {}
    shipped = Shipped(name=model.name, digest=model.digest, on={**others, devices.kind(): kept})
    path.write_text(as_toml(shipped), encoding="utf-8")
    print(f"{model.name}: {kept.dtype}, {path.name}")


def as_toml(shipped: Shipped) -> str:
    lines = [f"name = {quoted(shipped.name)}", f"digest = {quoted(shipped.digest)}"]
    for kind, kept in sorted(shipped.on.items()):
        lines += ["", f"[on.{kind}]"]
        told = msgspec.to_builtins(kept)
        measured = told.pop("figures", ())
        lines += [f"{key} = {quoted(value)}" for key, value in told.items()]
        for figure in measured:
            lines += ["", f"[[on.{kind}.figures]]", *(f"{key} = {quoted(value)}" for key, value in figure.items())]
    return "\n".join(lines) + "\n"


def quoted(value: object) -> str:
    """JSON's strings and numbers are TOML's too; figures to six digits after the point."""
    return msgspec.json.encode(round(value, 6) if isinstance(value, float) else value).decode()


if __name__ == "__main__":
    main(sys.argv[1:])
