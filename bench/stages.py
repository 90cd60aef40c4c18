"""Where the time goes, stage by stage, while MiniLM is asked for vectors over HTTP as fast as it gives them.

    python bench/stages.py [--seconds 6]

Two pictures in one (stages.png, beside the figures in .cache/bench/stages.json): how the machine's processor
time is shared between the engine, what surrounds it and the load itself; and, with py-spy installed, how many
microseconds of the server's a request spends in which room. Nothing here has a bar: road.py has those.
"""

import argparse
import collections
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bars import RESULTS, Bars
from loads import LOADS, Load
from road_models import MINILM, bench_store
from shoal.lab.load import Target, closed
from shoal.node.devices import cores
from shoal.testing.server import Server, serving
from sides import requests

SPY = str(Path(sys.executable).parent / "py-spy")
WARM_UP_S = 1.0
PARTS = ("engine", "stream", "tokenise", "host loop", "server", "load", "idle")
ROOMS = ("gateway", "dialects", "queue", "node", "tasks", "runtimes", "protocol", "observe", "uvicorn")


def thread_seconds(pid: int) -> dict[int, tuple[str, float]]:
    """By thread: its name and the processor seconds it has had."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        name = (task / "comm").read_text(encoding="utf-8").strip()
        found[int(task.name)] = name, int((task / "schedstat").read_text(encoding="ascii").split()[0]) / 1e9
    return found


def part_of(thread: int, pid: int, threads: dict[int, tuple[str, float]]) -> str:
    """The engine's own threads are made by the one that tokenises, which loads the model, and have its name."""
    name, _ = threads[thread]
    if thread == pid:
        return "host loop"
    first = min(other for other, (its_name, _) in threads.items() if its_name == name)
    return "tokenise" if name == "tokenise" and thread == first else "stream" if name == "stream" else "engine"


def shares(server: Server, load: Load, seconds: float) -> tuple[dict[str, float], float]:
    """Of all processor time, how much each part had; and texts/s."""
    (runtime,) = server.runtime_pids()
    asked = requests(load, MINILM)
    closed(Target("127.0.0.1", server.port), asked, load.connections, WARM_UP_S, 0.0)
    before, ours = thread_seconds(runtime) | thread_seconds(server.process.pid), time.process_time()
    began = time.perf_counter()
    run = closed(Target("127.0.0.1", server.port), asked, load.connections, seconds, 0.0)
    all_of_it = (time.perf_counter() - began) * cores()
    ours = time.process_time() - ours
    spent = dict.fromkeys(PARTS, 0.0)
    for pid in (runtime, server.process.pid):
        threads = thread_seconds(pid)
        for thread, (_, total) in threads.items():
            part = "server" if pid == server.process.pid else part_of(thread, pid, threads)
            spent[part] += total - before.get(thread, ("", 0.0))[1]
    spent["load"] = ours
    spent["idle"] = max(0.0, all_of_it - sum(spent.values()))
    return {part: value / all_of_it for part, value in spent.items()}, run.items_per_second


def microseconds_by_room(server: Server, load: Load, seconds: float, server_us: float) -> dict[str, float]:
    """`server_us` a request, shared as py-spy's samples are: each counts for the innermost room on its stack."""
    with tempfile.TemporaryDirectory() as folder:
        stacks = Path(folder) / "stacks"
        command = [SPY, "record", "--pid", str(server.process.pid), "--duration", str(int(seconds))]
        command += ["--format", "raw", "--output", str(stacks)]
        spy = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        closed(Target("127.0.0.1", server.port), requests(load, MINILM), load.connections, seconds + 1, 0.0)
        spy.wait()
        samples: collections.Counter[str] = collections.Counter()
        for line in stacks.read_text(encoding="utf-8").splitlines():
            stack, count = line.rsplit(" ", 1)
            if "Runner.run" in stack:
                samples[room_of(stack)] += int(count)
    return {room: count / samples.total() * server_us for room, count in samples.most_common()}


def room_of(stack: str) -> str:
    if stack.rsplit(";", 1)[-1].startswith("_Joining.write"):
        return "socket write"
    for frame in reversed(stack.split(";")):
        for room in ROOMS:
            if f"shoal/{room}/" in frame or (room == "uvicorn" and "uvicorn/" in frame):
                return room
    return "event loop"


def draw(machine: dict[str, dict[str, float]], rooms: dict[str, float], picture: Path) -> None:
    import matplotlib.pyplot as plt

    figure, (above, below) = plt.subplots(2, 1, figsize=(9, 5.2), height_ratios=[2, 1.2], layout="constrained")
    colours = dict(zip(PARTS, plt.get_cmap("tab10").colors, strict=False)) | {"idle": "0.9"}
    for row, parts in enumerate(machine.values()):
        left = 0.0
        for part in PARTS:
            share = 100 * parts[part]
            above.barh(row, share, left=left, color=colours[part], label=part if row == 0 else None)
            if share >= 1.5:
                above.text(left + share / 2, row, f"{share:.0f}", ha="center", va="center", fontsize=9)
            left += share
    above.invert_yaxis()
    above.set_yticks(range(len(machine)), machine)
    above.set(xlim=(0, 100), xlabel="% of the machine's processor time")
    above.legend(ncols=len(PARTS), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False, fontsize=9)
    if rooms:
        below.bar(list(rooms), list(rooms.values()), color=colours["server"])
        for place, value in enumerate(rooms.values()):
            below.text(place, value, f"{value:.0f}", ha="center", va="bottom", fontsize=9)
        below.set_ylabel("server, µs a request")
        below.margins(y=0.18)
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, dpi=130)
    print(f"        drawn: {picture}")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=6.0, help="of each measurement")
    seconds = options.parse_args().seconds
    bars = Bars(RESULTS / "stages.json")
    machine, rooms = {}, {}
    with serving(bench_store().home, "--pin", MINILM) as server:
        for load in (LOADS["short"], LOADS["lognormal"]):
            name = f"{load.name}, {load.connections} connections"
            machine[name], rate = shares(server, load, seconds)
            bars.note(f"{name}: texts/s", rate)
            for part, share in machine[name].items():
                bars.note(f"{name}: % of processor time: {part}", 100 * share)
            if load is LOADS["short"] and Path(SPY).exists():
                server_us = machine[name]["server"] * cores() / rate * 1e6
                rooms = microseconds_by_room(server, load, seconds, server_us)
                for room, value in rooms.items():
                    bars.note(f"{name}: µs of the server's a request: {room}", value)
    draw(machine, rooms, RESULTS / "stages.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
