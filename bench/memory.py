"""How soon a server with one pinned model answers, and what memory the model's runtime process then takes.

    python bench/memory.py [FOLDER]

FOLDER is a model's, added to a store of its own; without one it is the multilingual-e5-small that the tests make
out of two wheels. Memory is read after the first vector, and after 2,000 texts of the FAQ and 200 long ones.
Prints every bar beside its figure; exits 1 where one is not reached.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import shoal
from bars import Bars
from shoal.catalog.store import Store
from shoal.testing.server import Server, serving

sys.path.append(str(Path(__file__).parent.parent / "tests" / "models"))
from faq import read_pairs
from me5 import me5_folder

READY_S = 3.0
MEGABYTES = 600.0
FAQ_TEXTS = 2000
LONG_TEXTS = 200
AT_ONCE = 100


def load_seconds(server: Server) -> float:
    """As the server's own log says."""
    lines = [json.loads(line) for line in server.log.read_text().splitlines() if line.startswith("{")]
    return next(float(line["seconds"]) for line in lines if line["event"] == "model loaded")


def megabytes(server: Server) -> dict[str, float]:
    """PSS and RSS of the runtime process, in millions of bytes."""
    (pid,) = server.runtime_pids()
    lines = [line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()]
    return {
        line[0].rstrip(":").upper(): int(line[1]) * 1024 / 1e6 for line in lines if line[0] in ("Pss:", "Rss:")
    }


def check_memory(bars: Bars, server: Server, when: str) -> None:
    for name, size in megabytes(server).items():
        bars.check(f"MB of the runtime {when}, {name}", size, "≤", MEGABYTES)


def faq_texts(home: Path) -> list[str]:
    """2,000 of the questions and answers, English before Swedish."""
    return [text for language in ("en", "sv") for side in read_pairs(home, language) for text in side][:FAQ_TEXTS]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path, nargs="?", help="of a model; multilingual-e5-small if left out")
    home = Store().home
    folder = options.parse_args().folder or me5_folder(home)
    texts, bars = faq_texts(home), Bars()
    long = [" ".join(texts[at : at + 12]) for at in range(LONG_TEXTS)]
    with tempfile.TemporaryDirectory() as scratch:
        model = Store(Path(scratch)).add(folder).name
        began = time.perf_counter()
        with (
            serving(Path(scratch), "--pin", model, "--log-format", "json") as server,
            shoal.Client(server.url, timeout_s=600) as client,
        ):
            client.encode(model, "hello world")
            bars.check("seconds from process start to the first vector", time.perf_counter() - began, "≤", READY_S)
            bars.check("seconds to load the model", load_seconds(server), "≤", READY_S)
            check_memory(bars, server, "after the first vector")
            for kind, some in (("of the FAQ", texts), ("that are long", long)):
                for at in range(0, len(some), AT_ONCE):
                    client.encode(model, some[at : at + AT_ONCE])
                check_memory(bars, server, f"after {len(some)} texts {kind}")
    return 1 if bars.missed else 0


if __name__ == "__main__":
    sys.exit(main())
