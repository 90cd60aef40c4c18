"""Trains all of a served model's layers, its words' table too, on the task of train_lora.py: another whole model,
as sentence-transformers saves one. `shoal push` then serves it.

    python examples/full_finetune.py --out swedish-model
    shoal push swedish-model --name demo/swedish-model --reference swedish-model.npz
    python examples/measure_served.py sentence-transformers/all-MiniLM-L6-v2 demo/swedish-model
"""

import argparse
import shutil
from pathlib import Path

import _faq


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the model; FOLDER.npz is a reference")
    parser.add_argument("--base", default=_faq.BASE, help="a model that `shoal add` put here, or a folder")
    parser.add_argument("--steps", type=int, default=120, help="batches of 32 pairs")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()

    import torch

    faq = _faq.Faq(_faq.data_folder())
    torch.manual_seed(asked.seed)
    model, tokenizer = _faq.opened(asked.base)
    before = _faq.retrieves(model, tokenizer, faq)
    print(f"held-out questions, nDCG@10: {before:.3f} by {asked.base}", flush=True)
    _faq.train(model, tokenizer, faq, steps=asked.steps, rate=2e-4, seed=asked.seed)
    after = _faq.retrieves(model, tokenizer, faq)
    print(f"held-out questions, nDCG@10: {before:.3f} by the base, {after:.3f} by the fine-tune")
    # Poolings, prompts and the tokenizer are the base's; the weights and their config are not.
    shutil.copytree(_faq.folder_of(asked.base), asked.out, dirs_exist_ok=True)
    model.save_pretrained(asked.out)
    _faq.write_reference(asked.out, model, tokenizer, faq)


if __name__ == "__main__":
    main()
