"""Figures beside their bars, printed as they come and kept in a file, so that one row can be measured again."""

import json
from pathlib import Path

import msgspec

RESULTS = Path(__file__).parent.parent / ".cache" / "bench"


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    """`reached` is None where no bar was set. `beyond` is what would be better than good."""

    what: str
    value: float
    sign: str = ""
    bar: float | None = None
    beyond: float | None = None
    reached: bool | None = None


class Bars:
    """Which way is better is said by the sign. `results` is a file that also keeps other runs' figures."""

    def __init__(self, results: Path | None = None) -> None:
        self.missed = 0
        self._results = results

    def check(self, what: str, value: float, sign: str, bar: float, beyond: float | None = None) -> None:
        reached = _reaches(value, sign, bar)
        self.missed += not reached
        words = f"bar {sign} {bar:g}"
        if beyond is not None:
            words += f"; beyond {sign} {beyond:g}{', reached' if _reaches(value, sign, beyond) else ''}"
        print(f"{'ok    ' if reached else 'MISSED'}  {what}: {value:.6g} ({words})", flush=True)
        self._keep(Figure(what, value, sign, bar, beyond, reached))

    def aim(self, what: str, value: float, sign: str, beyond: float) -> None:
        """A figure with nothing to reach, but something to aim at."""
        words = f"beyond {sign} {beyond:g}{', reached' if _reaches(value, sign, beyond) else ''}"
        print(f"        {what}: {value:.6g} ({words})", flush=True)
        self._keep(Figure(what, value, sign, beyond=beyond))

    def note(self, what: str, value: float) -> None:
        print(f"        {what}: {value:.6g}", flush=True)
        self._keep(Figure(what, value))

    def _keep(self, figure: Figure) -> None:
        if self._results is not None:
            kept = read_figures(self._results) | {figure.what: figure}
            self._results.parent.mkdir(parents=True, exist_ok=True)
            self._results.write_text(json.dumps(msgspec.to_builtins(list(kept.values())), indent=1) + "\n")


def read_figures(results: Path) -> dict[str, Figure]:
    """By what they say, in the order in which they were first measured; none where there is no such file."""
    if not results.exists():
        return {}
    return {figure.what: figure for figure in msgspec.json.decode(results.read_bytes(), type=list[Figure])}


def _reaches(value: float, sign: str, bar: float) -> bool:
    return value >= bar if sign == "≥" else value <= bar
