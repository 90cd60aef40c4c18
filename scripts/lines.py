"""Prints how long the code is: lines per room, its median file, and the longest files of all."""

import statistics
from pathlib import Path

ROOT = Path(__file__).parent.parent / "src" / "shoal"
LONGEST = 8
SMELL = 300


def main() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in sorted(ROOT.rglob("*.py"))}
    rooms: dict[str, list[int]] = {}
    for path, count in lines.items():
        inside = path.relative_to(ROOT)
        rooms.setdefault(inside.parts[0] if len(inside.parts) > 1 else "shoal", []).append(count)
    print(f"{'room':<12}{'files':>6}{'lines':>8}{'median':>8}{'longest':>9}")
    for room, counts in rooms.items():
        print(row(room, counts))
    print(row("all", list(lines.values())))
    print("\nlongest files")
    for path, count in sorted(lines.items(), key=lambda entry: -entry[1])[:LONGEST]:
        note = f"   over {SMELL}: look again" if count > SMELL else ""
        print(f"{count:>6}  {path.relative_to(ROOT)}{note}")


def row(room: str, counts: list[int]) -> str:
    median = statistics.median_high(counts)
    return f"{room:<12}{len(counts):>6}{sum(counts):>8}{median:>8}{max(counts):>9}"


if __name__ == "__main__":
    main()
