"""How well models that a running server serves find the answers to the questions that the training examples held
out: a base, an adapter of it, a fine-tune, `name@version` or `name@alias`.

    python examples/measure_served.py sentence-transformers/all-MiniLM-L6-v2 demo/swedish demo/swedish@1
"""

import argparse
import os

import _faq

import shoal


def measured(client: shoal.Client, model: str, faq: _faq.Faq) -> float:
    """nDCG@10 of the held-out questions among all answers."""
    questions = client.encode(model, [faq.questions["sv"][place] for place in faq.held_out])
    return _faq.ndcg_at_10(questions, client.encode(model, faq.answers["en"]), faq.held_out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="NAME")
    parser.add_argument("--url", default=os.environ.get("SHOAL_URL", "http://127.0.0.1:8080"))
    parser.add_argument("--api-key", default=os.environ.get("SHOAL_API_KEY"))
    asked = parser.parse_args()
    faq = _faq.Faq(_faq.data_folder())
    with shoal.Client(asked.url, api_key=asked.api_key) as client:
        for model in asked.models:
            print(f"{measured(client, model, faq):.3f}  {model}")


if __name__ == "__main__":
    main()
