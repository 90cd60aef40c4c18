"""The shared queue: what a request costs on it, and what many devices do by pulling from it.

    python bench/cluster.py [--only scaling,padded,…] [--dilation 16] [--pairs 5] [--routers nginx-least-conn,…]

| row | what is measured |
|---|---|
| cost | processor time a request of gateway, queue server and nodes at 3,000 requests/s, with a bare ASGI echo's |
| added | what the cluster's road adds to a lone request, with a bare NATS request-reply |
| minilm | MiniLM through gateway, queue and one node, with `shoal serve` |
| scaling | 1, 2, 4 and 8 devices at the knee |
| packed, padded | 8 nodes, one model: useful tokens at the knee ÷ what the devices can do at their peak |
| routers | the same 8 as servers of one node behind other people's routers, padded |
| zipf | 8 nodes, 30 models: all resident, and with room for 10; the same by routers and models placed by hand |
| stalls | 8 nodes at 60 % load, where a few batches take much longer |
| large | one request of 1,000 texts over 4 idle nodes |

Devices are virtual and dilate time, the latency target with it (virtual_load.py); overheads are not dilated, and
are what the first three rows measure. Prints every figure beside its bar, keeps it in .cache/bench/cluster.json,
draws cluster.png beside it, and exits 1 where a bar is missed.
"""

import argparse
import os
import sys

from bars import RESULTS, Bars
from chosen import chosen
from cluster_capacity import Capacity
from cluster_models import ManyModels
from cluster_plot import draw
from cluster_road import RoadCost
from environments import NotHere
from routers import ROUTERS

ROWS = {
    "cost": RoadCost, "added": RoadCost, "minilm": RoadCost, "scaling": Capacity, "packed": Capacity,
    "padded": Capacity, "routers": Capacity, "zipf": ManyModels, "stalls": Capacity, "large": Capacity,
}  # fmt: skip


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", default=",".join(ROWS), help="which rows")
    options.add_argument("--dilation", type=float, default=16.0, help="how much slower than real the devices are")
    options.add_argument("--seconds", type=float, default=4.0, help="of each measurement of an overhead")
    options.add_argument("--pairs", type=int, default=5, help="of measurements of an overhead")
    options.add_argument("--nodes", type=int, default=8)
    options.add_argument("--routers", default=",".join(ROUTERS), help="which, by name")
    arguments = options.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    bars = Bars(RESULTS / "cluster.json")
    failed = 0
    benches: dict[type, object] = {}
    for row in chosen(arguments.only, list(ROWS)):
        print(f"{row}:", flush=True)
        bench = benches.setdefault(ROWS[row], ROWS[row](bars, arguments))
        try:
            getattr(bench, row)()
        except NotHere as reason:
            print(f"        not measured: {reason}", flush=True)
        except RuntimeError as error:
            failed += 1
            print(f"FAILED  {row}: {error}", flush=True)
    draw(RESULTS / "cluster.json", RESULTS / "cluster.png")
    return 1 if bars.missed or failed else 0


if __name__ == "__main__":
    sys.exit(main())
