"""One frame of `shoal top`, drawn from what `/status` says. Pure: no clock, no I/O, no terminal.

Where the room is too narrow, columns go, the least needed first; where it is too low, the least pressing lines.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shoal.protocol import sizes
from shoal.protocol.status import LineOverview, ModelOverview, ModelStatus, NodeStatus, Overview

T = TypeVar("T")
_BAR = 8
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_DOTS = {
    "ready": ("●", "green"), "loading": ("◐", "yellow"), "stopping": ("◑", "yellow"), "failed": ("✖", "red"),
    "absent": ("○", "dim"),
}  # fmt: skip
_WORDS = {"absent": "not loaded", "stopping": "unloading"}
_ORDER = ("ready", "loading", "stopping", "failed", "absent")
_OLD_S, _TOO_OLD_S = 1.0, 5.0
_CHROME = 10
"""Rows that are there besides those of nodes and lines."""


class Column(msgspec.Struct, Generic[T], frozen=True):
    """`need` is the width from which on there is room for it."""

    title: str
    cell: Callable[[T], Text]
    is_number: bool = True
    need: int = 0


def frame(status: Overview, where: str, width: int, height: int, trouble: str = "") -> RenderableType:
    """The whole screen. `trouble` says why there is nothing newer than `status`."""
    parts: list[RenderableType] = [_head(status, where), _totals(status), Text()]
    nodes = sorted(status.nodes, key=lambda node: (-_busy(node), node.node))
    shown_nodes = nodes[: max(1, height // 3)]
    parts += [_table(_NODES, shown_nodes, width), *_more(nodes, shown_nodes, "nodes"), Text()]
    lines = _rows(status)
    shown = lines[: max(3, height - _CHROME - len(shown_nodes))]
    if shown:
        parts += [_table(_LINES, shown, width), *_more(lines, shown, "models")]
    else:
        parts.append(Text("No model is in memory and nothing waits.", "dim"))
    parts.append(_foot(status, trouble))
    return Group(*parts)


def _head(status: Overview, where: str) -> Text:
    ready = Text("● ready", "green") if status.ready else Text(f"◐ not ready: {status.lacking}", "yellow")
    about = f"  {where}  version {status.version}  up {_age(status.uptime_s)}  "
    return Text.assemble(("Shoal", "bold cyan"), (about, "dim"), ready)


def _totals(status: Overview) -> Text:
    traffic, lines = status.traffic, status.lines
    waiting = sum(line.queued_jobs for line in lines)
    oldest = max((line.oldest_s for line in lines), default=0.0)
    pieces = [
        (_rate(traffic.answered_per_s), " requests/s"),
        (_rate(sum(line.useful_tokens_per_s for line in lines)), " tokens/s"),
        (_count(sum(line.jobs_in_hand for line in lines)), " in hand"),
        (_count(waiting), " waiting"),
    ]
    text = Text("   ").join(Text.assemble((number, "bold"), (words, "dim")) for number, words in pieces)
    if waiting:
        text.append_text(Text.assemble((", the oldest ", "dim"), _pressing(oldest)))
    if traffic.refused_per_s:
        text.append(f"   {_rate(traffic.refused_per_s)} refused/s", "bold red")
    return text


def _foot(status: Overview, trouble: str) -> Text:
    if trouble:
        return Text(f"\n{trouble}", "bold red")
    foot = Text(f"\nModels: {_states(model for model in status.models if not model.base) or 'none here'}", "dim")
    if status.unlisted:
        foot.append(f", and {_count(status.unlisted)} more")
    if adapters := _states(model for model in status.models if model.base):
        foot.append(f"\nAdapters: {adapters}")
    refused = sorted(status.traffic.refusals.items(), key=lambda entry: -entry[1])
    if refused:
        counts = "  ".join(f"{code}\u00a0{_count(count)}" for code, count in refused)
        foot.append_text(Text.assemble("\nRefused so far: ", (counts, "red")))
    return foot


def _states(models: Iterable[ModelOverview]) -> str:
    states: Counter[str] = Counter(model.status.state for model in models)
    return ", ".join(f"{states[state]} {_WORDS.get(state, state)}" for state in _ORDER if states[state])


class _Row(msgspec.Struct, frozen=True):
    """A model with something to say. `on` counts the nodes that have it in memory."""

    name: str
    model: ModelStatus
    line: LineOverview
    on: int


def _rows(status: Overview) -> list[_Row]:
    """The most pressing first. Adapters are counted at their base."""
    lines = {line.model: line for line in status.lines}
    holders = Counter(
        name for node in status.nodes for name, model in node.models.items() if model.state == "ready"
    )
    found = [
        _Row(name := model.name, model.status, lines.get(name, LineOverview(model=name)), holders[name])
        for model in status.models
        if not model.base and (model.name in lines or model.status.state != "absent")
    ]
    return sorted(found, key=_pressure)


def _pressure(row: _Row) -> tuple[float, float, float, float, int, str]:
    line = row.line
    order = _ORDER.index(row.model.state)
    return -line.oldest_s, -line.queued_jobs, -line.busy_share, -line.items_per_s, order, row.name


def _table(columns: Sequence[Column[T]], rows: Sequence[T], width: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True, padding=(0, 2, 0, 0))
    kept = [column for column in columns if width >= column.need]
    for column in kept:
        if column.is_number:
            table.add_column(column.title, justify="right", no_wrap=True)
        else:
            table.add_column(column.title, no_wrap=True, ratio=1)
    for row in rows:
        table.add_row(*(column.cell(row) for column in kept))
    return table


def _more(all_rows: Sequence[T], shown: Sequence[T], what: str) -> list[Text]:
    left = len(all_rows) - len(shown)
    return [Text(f"… and {left} more {what}", "dim")] if left else []


def _node_name(node: NodeStatus) -> Text:
    dot, style = ("◑", "yellow") if node.draining else ("◐", "yellow") if node.lacking else ("●", "green")
    text = Text.assemble((dot, style), " ", node.node)
    if node.draining or node.lacking:
        text.append(f"  {'leaving' if node.draining else node.lacking}", style)
    return text


def _model_name(row: _Row) -> Text:
    state = row.model.state
    dot, style = _DOTS[state]
    text = Text.assemble((dot, style), " ", row.name)
    if state not in ("ready", "absent"):
        text.append(f"  {row.model.failure or _WORDS.get(state, state)}", style)
    return text


def _of_lines(node: NodeStatus, field: str) -> float:
    return float(sum(getattr(line, field) for line in node.lines.values()))


def _mean(node: NodeStatus, field: str) -> float:
    """Over a node's lines, by what each computed."""
    items = _of_lines(node, "items_per_s")
    summed = sum(getattr(line, field) * line.items_per_s for line in node.lines.values())
    return float(summed / items) if items else 0.0


def _busy(node: NodeStatus) -> float:
    return min(1.0, _of_lines(node, "busy_share"))


def _devices(node: NodeStatus) -> Text:
    return Text(", ".join(device.name or device.kind for device in node.devices), "dim")


def _node_memory(node: NodeStatus) -> Text:
    used, budget = node.memory_used_bytes, node.memory_budget_bytes
    full = used / budget if budget else 0.0
    return Text.assemble(sizes.in_words(used), (f" of {sizes.in_words(budget)}", "red" if full > 0.95 else "dim"))


def _held(node: NodeStatus) -> Text:
    ready = sum(model.state == "ready" for model in node.models.values())
    return Text.assemble(str(ready), (f" of {_count(node.known_models)}", "dim"))


def _number(value: float, form: Callable[[float], str], style: str = "") -> Text:
    return Text(form(value), style) if value else Text("·", "dim")


def _bar(share: float) -> Text:
    eighths = round(min(1.0, share) * _BAR * 8)
    full, rest = divmod(eighths, 8)
    bar = "█" * full + (_EIGHTHS[rest] if rest else "")
    return Text.assemble((bar.ljust(_BAR), "cyan on grey15"), f" {share:>4.0%}")


def _percent(share: float, bad_above: float = 2.0) -> Text:
    return _number(share, "{:.0%}".format, "yellow" if share > bad_above else "")


def _pressing(seconds: float) -> Text:
    style = "bold red" if seconds >= _TOO_OLD_S else "yellow" if seconds >= _OLD_S else ""
    return _number(seconds, _seconds, style)


_NODES: tuple[Column[NodeStatus], ...] = (
    Column("Node", _node_name, is_number=False),
    Column("Devices", _devices, need=110),
    Column("Busy", lambda node: _bar(_busy(node))),
    Column("Tokens/s", lambda node: _number(_of_lines(node, "useful_tokens_per_s"), _rate)),
    Column("Items/s", lambda node: _number(_of_lines(node, "items_per_s"), _rate), need=90),
    Column("Fill", lambda node: _percent(_mean(node, "fill")), need=90),
    Column("Padding", lambda node: _percent(_mean(node, "padding"), 0.3), need=100),
    Column("In hand", lambda node: _number(_of_lines(node, "jobs_in_hand"), _count)),
    Column("Given back", lambda node: _number(_of_lines(node, "given_back"), _count), need=130),
    Column("Redelivered", lambda node: _number(_of_lines(node, "redelivered"), _count), need=130),
    Column("Loads claimed", lambda node: _number(_of_lines(node, "claimed_loads"), _count), need=150),
    Column("Memory", _node_memory),
    Column("Models", _held, need=80),
)
_LINES: tuple[Column[_Row], ...] = (
    Column("Model", _model_name, is_number=False),
    Column("On", lambda row: _number(row.on, _count), need=80),
    Column("Queued", lambda row: _number(row.line.queued_jobs, _count)),
    Column("Oldest", lambda row: _pressing(row.line.oldest_s)),
    Column("Wait", lambda row: _pressing(row.line.wait_s)),
    Column("In hand", lambda row: _number(row.line.jobs_in_hand, _count), need=100),
    Column("Busy", lambda row: _bar(row.line.busy_share), need=90),
    Column("Tokens/s", lambda row: _number(row.line.useful_tokens_per_s, _rate)),
    Column("Items/s", lambda row: _number(row.line.items_per_s, _rate), need=110),
    Column("Fill", lambda row: _percent(row.line.fill), need=90),
    Column("Padding", lambda row: _percent(row.line.padding, 0.3), need=120),
    Column("Adapters", lambda row: _number(row.line.adapters, _count), need=132),
    Column("Memory", lambda row: _number(row.model.memory_bytes, sizes.in_words), need=70),
)


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _rate(number: float) -> str:
    return "0" if not number else f"{number:.1f}" if number < 10 else f"{number:,.0f}"


def _seconds(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.1f} s" if seconds < 100 else _age(seconds)


def _age(seconds: float) -> str:
    minutes, hours = int(seconds // 60), int(seconds // 3600)
    if hours:
        return f"{hours // 24} d {hours % 24} h" if hours >= 24 else f"{hours} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{int(seconds)} s"
