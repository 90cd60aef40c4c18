"""Many adapters of one base: what it costs to compute them together, to hold them, and to push them.

    python bench/fleet.py [--only mixed,switching,resident,push,calm] [--seconds 4] [--pairs 5] [--pushes 20]

| row | what is measured |
|---|---|
| mixed | requests for 16 adapters, in any order, with the same requests for the base alone, on one server |
| switching | the same with PEFT in bf16 in process, switched to one adapter after the other (fleet_worker.py) |
| resident | memory of 64 adapters that were all used, beyond their own bytes |
| push | from the start of a push to the first right answer, on a cluster of three nodes, by `shoal.Client` |
| calm | latency of the base's traffic at a steady rate while adapters are pushed, with the same without |

The adapters have random factors for every linear of MiniLM's layers, which is the dearest case. Prints every
figure beside its bar, keeps it in .cache/bench/fleet.json, and exits 1 where a bar is missed.
"""

import argparse
import os
import sys

from bars import RESULTS, Bars
from chosen import chosen
from fleet_push import Pushing
from fleet_speed import Speeds

ROWS = {"mixed": Speeds, "switching": Speeds, "resident": Speeds, "push": Pushing, "calm": Pushing}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", default=",".join(ROWS), help="which rows")
    options.add_argument("--seconds", type=float, default=4.0, help="of each measurement, after 1 s of warm-up")
    options.add_argument("--pairs", type=int, default=5)
    options.add_argument("--pushes", type=int, default=20)
    arguments = options.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    bars = Bars(RESULTS / "fleet.json")
    benches: dict[type, object] = {}
    for row in chosen(arguments.only, list(ROWS)):
        print(f"{row}:", flush=True)
        bench = benches.setdefault(ROWS[row], ROWS[row](bars, arguments))
        getattr(bench, row)()
    return 1 if bars.missed else 0


if __name__ == "__main__":
    sys.exit(main())
