"""Figures beside their bars, printed as they come."""


class Bars:
    """Which way is better is said by the sign."""

    def __init__(self) -> None:
        self.missed = 0

    def check(self, what: str, value: float, sign: str, bar: float) -> None:
        reached = value >= bar if sign == "≥" else value <= bar
        self.missed += not reached
        print(f"{'ok    ' if reached else 'MISSED'}  {what}: {value:.6g} (bar {sign} {bar:g})", flush=True)
