import pytest

from shoal.catalog.choice import choose_files
from shoal.protocol.errors import InvalidInput


def sized(names: list[str]) -> dict[str, int]:
    return dict.fromkeys(names, 100)


def test_weights_texts_and_licence_are_taken_and_nothing_else() -> None:
    names = [
        "model.safetensors", "config.json", "tokenizer.json", "vocab.txt", "sentencepiece.bpe.model", "LICENSE",
        "README.md", "modules.json", "1_Pooling/config.json",
        "pytorch_model.bin", "training_args.bin", "optimizer.pt", "modeling_x.py", "run.sh", "setup.exe",
        "onnx/model.onnx", "onnx/model_O4.onnx", "openvino/openvino_model.bin", "checkpoint-10/config.json",
        ".gitattributes", "train.csv", "tf_model.h5",
    ]  # fmt: skip
    chosen = choose_files(sized(names))
    assert set(chosen) == set(names[:9])
    assert all(target == name for target, name in chosen.items())


def test_weights_under_another_name_get_the_usual_one() -> None:
    assert choose_files(sized(["minilm.safetensors"])) == {"model.safetensors": "minilm.safetensors"}
    assert choose_files(sized(["encoder_int8.onnx"])) == {"model.onnx": "encoder_int8.onnx"}


def test_onnx_in_its_own_folder_is_used_with_its_data_where_there_is_no_safetensors() -> None:
    names = ["config.json", "pytorch_model.bin", "onnx/model.onnx", "onnx/model.onnx_data", "onnx/model_int8.onnx"]
    assert choose_files(sized(names)) == {
        "config.json": "config.json",
        "model.onnx": "onnx/model.onnx",
        "model.onnx_data": "onnx/model.onnx_data",
    }


@pytest.mark.parametrize("pickle", ["pytorch_model.bin", "model.pt", "model.pkl", "last.ckpt", "w.pth"])
def test_pickles_alone_are_refused_with_what_to_do(pickle: str) -> None:
    with pytest.raises(InvalidInput, match=r"pickles.*safetensors"):
        choose_files(sized([pickle, "config.json", "tokenizer.json"]))


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["config.json"], "no weights here"),
        ([], "no weights here"),
        (["adapter_config.json"], "LoRA adapter .* without its weights"),
        (["adapter_config.json", "model.safetensors"], "LoRA adapter .* without its weights"),
        (["adapter_config.json", "adapter_model.bin"], "pickles"),
        (["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"], "no model.safetensors nor"),
        (["model-00001-of-00002.safetensors"], "no model.safetensors nor"),
        (["onnx/a.onnx", "onnx/b.onnx"], "no onnx/model.onnx nor"),
        (["deep/down/model.safetensors", "elsewhere/model.onnx"], "no weights here"),
    ],
)
def test_a_folder_without_one_set_of_weights_is_refused(names: list[str], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        choose_files(sized(names))


def test_of_an_adapter_its_two_files_are_taken_and_what_tells_people_about_it() -> None:
    taken = ["adapter_config.json", "adapter_model.safetensors", "README.md", "LICENSE"]
    others = ["tokenizer.json", "optimizer.pt", "checkpoint-10/model.safetensors", "training_args.bin"]
    assert choose_files(sized([*taken, *others])) == {name: name for name in taken}


@pytest.mark.parametrize("name", ["a\udcff.json", "a\nb.json", "\u202egnp.json", "x" * 300 + ".json"])
def test_a_name_that_no_publisher_gives_is_passed_over(name: str) -> None:
    names = ["model.safetensors", "config.json"]
    assert set(choose_files(sized([*names, name]))) == set(names)


@pytest.mark.parametrize("name", ["notes.json", "1_Pooling/config.json", "README.md"])
def test_a_text_as_large_as_weights_is_refused_before_it_is_copied(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"{name} has 3000000000 bytes"):
        choose_files({"model.safetensors": 10**10, name: 3 * 10**9})
