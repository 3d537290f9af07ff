# SPDX-License-Identifier: MIT
"""A user's program that calls every public function; tests/test_types.py checks it with mypy --strict."""
from __future__ import annotations

from typing import Any, Dict, List, Tuple

import attn
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def every_overload(q: Array, lse_too: bool) -> Tuple[Array, Array]:
    o: Array = attn.attend(q, q, q, causal="bottom-right", window=(1, None), threads=1)
    pair: Tuple[Array, Array] = attn.attend(q, q, q, return_lse=True)
    weights: Tuple[Array, Array] = attn.attend(q, q, q, return_weights=True)
    three: Tuple[Array, Array, Array] = attn.attend(q, q, q, return_lse=True, return_weights=True)
    some = attn.attend(q, q, q, return_lse=lse_too)
    first: Array = attn.attend(q, q, q, normalization="hardmax") + attn.attend(q, q, q, top_k=2)
    if isinstance(some, tuple):
        o = some[0]
    return o, pair[0] + weights[0] + three[0]


def gradients(q: Array) -> Dict[str, Array]:
    o, lse = attn.attend(q, q, q, return_lse=True)
    return attn.attend_backward(o, q, q, q, o, lse, wrt=("q", "v"))


def neighborhoods(image: Array) -> Dict[str, Array]:
    o: Array = attn.neighborhood_attention(image, image, image, 3)
    o, lse = attn.neighborhood_attention(image, image, image, (3, 2), stride=2, is_causal=(True, False), return_lse=True)
    return attn.neighborhood_attention_backward(o, image, image, image, o, lse, (3, 2), stride=2, is_causal=(True, False))


def models(directory: str) -> float:
    model: attn.Model = attn.build("detr-ffn", {"d": 4}, seed=1, dtype=np.float32)
    y: Array = model.train()(np.ones((1, 2, 4), np.float32))
    back: Dict[str, Array] = model.backward(np.ones_like(y))
    with model.no_grad() as quiet:
        quiet.eval()
    model.load_state_dict({name: x * 2 for name, x in model.parameters().items()}, strict=True)
    model.save(directory)
    again = attn.load(directory, config={"d": 4}, architecture="detr-ffn")
    held, peak = again.memory()
    model.zero_grad()
    return float(sum(x.sum() for x in back.values()) + held + peak + len(model.grads()) + len(model.state_dict()))


def tables() -> Tuple[str, bool]:
    found: Dict[str, attn.Architecture] = attn.architectures()
    one = found["detr-ffn"]
    key: attn.Setting = one.keys[0]
    port: attn.Port = one.inputs[0]
    try:
        attn.build("nothing")
    except attn.NotFoundError as error:
        status: int = error.status
        return f"{attn.__version__} {status} {key.name} {port.shape} {one.summary}", key.required
    except (attn.ArgumentError, attn.ShapeError, attn.OutOfMemoryError, attn.UnsupportedError, attn.BusyError,
            attn.FileError, attn.FormatError, attn.InterruptError, attn.InternalError, attn.Error):
        pass
    return "", False


def applications(directory: str) -> str:
    """What only finished models can do; the types are checked, and a directory that is none is refused."""
    try:
        opened = attn.open(directory + "/none", precision="bf16", threads=1)
    except attn.NotFoundError:
        return ""
    if isinstance(opened, attn.Translator):
        one: str = opened.translate("a", beam_size=2)
        several: List[attn.Translation] = opened.translate_batch(
            ["a"], num_hypotheses=2, beam_size=2, patience=1.5, disable_unk=True, suppress_sequences=["a b"], max_input_length=9)
        several += opened.translate_batch(["a"], suppress_sequences=[["a", "b"]])
        return one + several[0].hypotheses[0] + "".join(opened.translate(iter(["a"])))
    if isinstance(opened, attn.Classifier):
        return opened("a.png", top_k=1)[0]["label"] + opened(["a.png"])[0][0]["label"]
    if isinstance(opened, attn.Detector):
        return f"{opened('a.png', threshold=0.7)[0]['box']['xmin']} {opened.coco(['a.png'], [1])[0]['bbox']}"
    if isinstance(opened, attn.Generator):
        drawn: Array = opened.draw(2, seed=1)
        return f"{drawn.shape} {opened.complete(drawn[0], rows=1).shape}"
    if isinstance(opened, attn.Encoder):
        return f"{opened.dim} {opened.encode(['a', 'b']).shape}"
    if isinstance(opened, attn.Alignments):
        scores: List[float] = opened.score("a.a3m", ["A1G"])
        embedded: attn.Embedding = opened.embed([("query", "MKV")])
        return f"{scores} {opened.contacts('a.a3m').shape} {embedded.mean.shape}"
    return opened.architecture.name


def measures() -> float:
    score: attn.Bleu = attn.bleu(["a b c d"], ["a b c d"])
    found: attn.CocoScores = attn.coco_evaluate({"images": [], "annotations": [], "categories": []}, [])
    categories: List[attn.CocoCategory] = found.categories
    return score.score + attn.chrf(["a b"], [["a b"], ["b"]]) + len(categories)


def pictures(directory: str) -> int:
    x = np.arange(4.0)
    page = attn.plot.explore({"cross": np.eye(2)}, format="html")
    try:
        one: attn.plot.Picture = attn.plot.curves({"a": x, "b": (x, x)}, styles={"b": "dots"}, log_y=False)
    except attn.UnsupportedError:  # a build without cairo, as the portable wheels are, writes pages alone
        return len(page.data)
    two = attn.plot.heatmaps(np.eye(3), labels=["a", "b", "c"], colours="blues")
    two.save(directory + "/maps.svg")
    return len(one.data) + len(page.data)


if __name__ == "__main__":
    import tempfile

    x = np.ones((1, 3, 2, 4), np.float32)
    with tempfile.TemporaryDirectory() as place:
        print(every_overload(x, True)[0].shape, sorted(gradients(x)), sorted(neighborhoods(np.ones((1, 4, 4, 2, 4), np.float32))), models(place) > 0,
              tables()[1] and pictures(place) > 0 and applications(place) == "" and measures() > 0)
