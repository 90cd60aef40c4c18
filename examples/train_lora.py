"""Trains a LoRA adapter for a served model with PEFT, in minutes on two cores: the English MiniLM learns to find
the English answers to Swedish questions. `shoal push` then serves it beside its base.

    shoal add sentence-transformers/all-MiniLM-L6-v2
    pip install 'shoal[reference]'
    python examples/train_lora.py --out swedish-lora
    shoal push swedish-lora --name demo/swedish --reference swedish-lora.npz
    python examples/measure_served.py sentence-transformers/all-MiniLM-L6-v2 demo/swedish
"""

import argparse
from pathlib import Path

import _faq


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for the adapter; FOLDER.npz is a reference"
    )
    parser.add_argument("--base", default=_faq.BASE, help="a model that `shoal add` put here, or a folder")
    parser.add_argument("--steps", type=int, default=120, help="batches of 32 pairs")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()

    import peft
    import torch

    faq = _faq.Faq(_faq.data_folder())
    torch.manual_seed(asked.seed)
    model, tokenizer = _faq.opened(asked.base)
    before = _faq.retrieves(model, tokenizer, faq)
    print(f"held-out questions, nDCG@10: {before:.3f} by {asked.base}", flush=True)
    config = peft.LoraConfig(
        r=asked.rank,
        lora_alpha=2 * asked.rank,
        target_modules=["query", "key", "value", "dense"],
        lora_dropout=0.05,
    )
    adapted = peft.get_peft_model(model, config)
    adapted.print_trainable_parameters()
    _faq.train(adapted, tokenizer, faq, steps=asked.steps, rate=2e-3, seed=asked.seed)
    after = _faq.retrieves(adapted, tokenizer, faq)
    print(f"held-out questions, nDCG@10: {before:.3f} by the base, {after:.3f} with the adapter")
    config.base_model_name_or_path = asked.base  # what `shoal push` takes for its base
    adapted.save_pretrained(asked.out)
    _faq.write_reference(asked.out, adapted, tokenizer, faq)


if __name__ == "__main__":
    main()
