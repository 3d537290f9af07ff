# SPDX-License-Identifier: MIT
# mypy: no-warn-unused-ignores
"""Translation by a trained or published translator."""
from __future__ import annotations

import ctypes
import itertools
from typing import (Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, NoReturn, Optional, Sequence, Tuple, Union,
                    overload)

import numpy as np

from . import _library as c
from ._application import Application, optional_path, precision_of, text_array, text_lines, undivided
from ._errors import ArgumentError, UnsupportedError
from ._library import lib
from ._model import Path, _path


class Translation(NamedTuple):
    """The translations of one line, the best first, as CTranslate2's TranslationResult has them."""

    hypotheses: List[str]
    scores: List[float]  # log-probabilities after the length penalty; with mbr=True the expected chrF
    tokens: List[List[str]]  # the words or pieces as the model produced them
    unknown: List[str]  # words of the line that the vocabulary does not have
    truncated: bool  # whether the line was longer than the model or max_input_length allows, and was cut
    # whether the line has unknown words, or the best translation has a lower log-probability per token than 98 % of the
    # translations of sentences that its training held out (attn_translation.doubtful in attn/translate.h)
    doubtful: bool
    alignments: List[List[Tuple[int, int]]]  # with return_alignments: (word of the line, word of the translation)


# CTranslate2's options that attn does not have, by call: the value that asks for nothing, and what attn has in their place.
_ELSEWHERE: Dict[str, Dict[str, Tuple[Any, str]]] = {
    "Translator": {
        "device_index": (0, "attn computes on the processor"),
        "files": (None, "`path` is the directory"),
        "flash_attention": (False, "attn chooses itself how it computes attention"),
        "inter_threads": (1, "load a Translator for each thread, or give intra_threads, the number of threads of a call"),
        "max_queued_batches": (0, "there is no queue; translate_batch returns when its lines are translated"),
        "tensor_parallel": (False, "a translator computes in one process, with intra_threads threads"),
    },
    "translate_batch": {
        "asynchronous": (False, "call translate_batch in a thread, which does not hold Python's lock meanwhile"),
        "batch_type": ("examples", "max_batch_size counts lines"),
        "callback": (None, "translate_iterable gives the translations of one batch after the other"),
        "coverage_penalty": (0, "attn has no coverage penalty; repetition_penalty and no_repeat_ngram_size prevent repetition"),
        "end_token": (None, "a translation ends with the end token of the model's vocabulary"),
        "min_alternative_expansion_prob": (0, "num_hypotheses gives several translations"),
        "prefix_bias_beta": (0, "target_prefix forces the beginning of a translation"),
        "replace_unknowns": (False, "`unknown` has the unknown words of a line, and with disable_unk=True a translation has none"),
        "return_alternatives": (False, "num_hypotheses gives several translations, also after a target_prefix"),
        "return_attention": (False, "return_alignments=True gives the words with the largest weights, and `attn show` draws all "
                             "weights"),
        "return_end_token": (False, "`tokens` never has the end token"),
        "return_logits_vocab": (False, "`scores` has the log-probability of each translation"),
        "sampling_temperature": (1, "attn does not sample; num_hypotheses gives several translations"),
        "sampling_topk": (1, "attn does not sample; num_hypotheses gives several translations"),
        "sampling_topp": (1, "attn does not sample; num_hypotheses gives several translations"),
        "use_vmap": (False, "shortlist=FILE limits the vocabulary by a lexicon"),
    },
}


def _refuse_options(call: str, given: Mapping[str, Any]) -> None:
    """Raises TypeError for options that attn does not have, unless they ask for nothing."""
    for name, value in given.items():
        harmless, instead = _ELSEWHERE[call].get(name, (None, ""))
        if instead and (value is harmless or (isinstance(value, (str, int, float, np.generic)) and value == harmless)):
            continue
        raise TypeError(f"{call}() got an unexpected keyword argument {name!r}" + (f": {instead}" if instead else ""))


def _decode(value: Optional[bytes]) -> str:
    return value.decode("utf-8", "replace") if value else ""


def _tokens(sequence: Iterable[str], what: str) -> bytes:
    """The tokens of a sequence for the library, with spaces between."""
    tokens = [c.text(token, f"a token of {what}") for token in sequence]
    for token in tokens:
        if not token or b" " in token:
            raise ArgumentError(f"{what} has the token {token.decode()!r}; a token has no spaces")
    return b" ".join(tokens)


def _sequences(given: Iterable[Union[str, Sequence[str]]]) -> Tuple[List[bytes], bool]:
    """The suppressed sequences for the library, and whether they are tokens."""
    try:
        if isinstance(given, (str, bytes)):
            raise TypeError
        found = [one if isinstance(one, str) else list(one) for one in given]
    except TypeError:
        raise ArgumentError(f"suppress_sequences must be a list of texts or of lists of tokens, not {given!r}") from None
    texts = [one for one in found if isinstance(one, str)]
    if texts and len(texts) < len(found):
        raise ArgumentError("suppress_sequences has texts and lists of tokens; expected one of the two kinds")
    names = (f"suppressed sequence {i + 1}" for i in range(len(found)))
    return [c.text(one, name) if isinstance(one, str) else _tokens(one, name) for one, name in zip(found, names)], not texts


class Translator(Application):
    """A translator from its directory: trained by attn, Hugging Face's MarianMT, or Marian's own (decoder.yml).

        translator = attn.Translator("en-fr")
        translator.translate("Where is the station?")                # a text
        translator.translate(["One.", "Two."], beam_size=4)          # a list of texts

    The options have CTranslate2's names, but lines are texts, which the model's own vocabulary divides. 0 and None mean
    the model's own setting. One translator serves several threads.
    """

    def __init__(self, path: Path, device: str = "cpu", *, compute_type: Union[None, str, Mapping[str, str]] = None,
                 intra_threads: int = 0, names: Optional[Path] = None, **others: NoReturn) -> None:
        """device: "cpu", or "auto", which is the same. compute_type: "float32", "bfloat16" or "int8", or a dict with the one of
        "cpu"; default: ATTN_PRECISION or float32. intra_threads: the number of threads of a call. `names`: a names file for
        weights with foreign names, or the name of a built-in one."""
        _refuse_options("Translator", others)
        if device not in ("cpu", "auto"):
            raise UnsupportedError(f'device is {device!r}; only "cpu" and "auto", which is the same, are supported')
        if isinstance(compute_type, Mapping):
            compute_type = compute_type.get("cpu")
        precision = precision_of(compute_type, "compute_type")
        folder, foreign = _path(path), optional_path(names)
        super().__init__(path, lambda made, context: int(lib.translator_load(made, context, folder, foreign)),
                         lib.translator_destroy, precision, intra_threads)
        self._lexicons: dict[bytes, ctypes.c_void_p] = {}
        self._context.check(lib.translator_pack_weights(self._handle))

    def __del__(self) -> None:
        if lib is not None:
            for lexicon in getattr(self, "_lexicons", {}).values():
                lib.lexicon_destroy(lexicon)
        super().__del__()

    def _lexicon(self, path: Path) -> ctypes.c_void_p:
        name = _path(path)
        if name not in self._lexicons:
            lexicon = ctypes.c_void_p()
            self._context.check(lib.translator_lexicon(ctypes.byref(lexicon), self._handle, name))
            self._lexicons[name] = lexicon
        return self._lexicons[name]

    def translate_batch(self, source: Iterable[str], target_prefix: Optional[Iterable[Optional[str]]] = None, *,
                        max_batch_size: int = 0, beam_size: int = 0, patience: float = 1, num_hypotheses: int = 1,
                        length_penalty: float = 0, repetition_penalty: float = 0, no_repeat_ngram_size: int = 0,
                        disable_unk: bool = False,
                        suppress_sequences: Optional[Iterable[Union[str, Sequence[str]]]] = None, max_input_length: int = 0,
                        max_decoding_length: int = 0, min_decoding_length: int = 0, return_scores: bool = True,
                        return_alignments: bool = False, mbr: bool = False, shortlist: Optional[Path] = None,
                        **others: NoReturn) -> List[Translation]:
        """Translates lines, and returns what is known of each.

        beam_size: 1 is greedy search. num_hypotheses: how many translations of a line, at most beam_size.
        length_penalty, repetition_penalty, no_repeat_ngram_size, max_decoding_length and min_decoding_length (in
        tokens with the end): as in transformers; 0 is the model's own setting. patience: beam search ends when
        beam_size * patience translations have finished; 1: the model's own settings decide. disable_unk: no
        translation contains the unknown token. suppress_sequences: texts that no translation contains, as the
        vocabulary divides them; or lists of tokens as `tokens` of a Translation has them. max_input_length: how
        many tokens of a line are read, with the end (0: as many as the model supports). target_prefix: for each
        line a text of whole words with which the translation begins. max_batch_size: how many lines are translated
        at once (0: 32). return_scores=False saves time in greedy search. mbr: sorts the hypotheses by expected chrF
        (minimum Bayes risk). shortlist: a lexicon's file, to whose words the translations are limited."""
        _refuse_options("translate_batch", others)
        lines, single = text_lines(source, "line")
        if single:
            raise ArgumentError("source is a single text; translate_batch takes a list of lines (translate takes a single line too)")
        n, best = len(lines), max(num_hypotheses, 1)
        options = c.TranslatorOptions(
            beam=beam_size, batch=max_batch_size, nbest=num_hypotheses, length_penalty=length_penalty,
            repetition_penalty=repetition_penalty, no_repeat_ngram=no_repeat_ngram_size, max_len=max_decoding_length,
            min_len=min_decoding_length, mbr=mbr, alignments=return_alignments, unscored=not return_scores,
            suppress_unk=disable_unk, max_input=max_input_length, patience=patience)
        if suppress_sequences is not None:
            sequences, options.sequences_are_tokens = _sequences(suppress_sequences)
            options.suppressed_sequences = (ctypes.c_char_p * (len(sequences) + 1))(*sequences, None)
        if target_prefix is not None:
            prefixes = [None if p is None else undivided(p, f"prefix {i}") for i, p in enumerate(target_prefix)]
            if len(prefixes) != n:
                raise ArgumentError(f"{len(prefixes)} prefixes are given for {n} lines; expected one for each")
            options.prefixes = (ctypes.c_char_p * max(n, 1))(*prefixes)
        results = (c.Translation * max(n * best, 1))()
        with self._context.lock:
            if shortlist is not None:
                options.shortlist = self._lexicon(shortlist)
            self._context.check(lib.translator_translate(self._handle, text_array(lines), n, ctypes.byref(options), results))
            try:
                return [_result(results[i * best:(i + 1) * best]) for i in range(n)]
            finally:
                lib.translations_free(self._context.pointer, results, n * best)

    @overload
    def translate(self, source: str, **options: Any) -> str: ...  # type: ignore[misc]

    @overload
    def translate(self, source: Iterable[str], **options: Any) -> List[str]: ...

    def translate(self, source: Union[str, Iterable[str]], **options: Any) -> Union[str, List[str]]:
        """The best translation of a line, or of each of several lines. Takes the options of translate_batch."""
        lines = [source] if isinstance(source, str) else source
        prefix = options.get("target_prefix")
        if isinstance(source, str) and isinstance(prefix, str):
            options["target_prefix"] = [prefix]
        results = [result.hypotheses[0] for result in self.translate_batch(lines, **options)]
        return results[0] if isinstance(source, str) else results

    __call__ = translate

    def translate_iterable(self, source: Iterable[str], target_prefix: Optional[Iterable[Optional[str]]] = None,
                           max_batch_size: int = 32, **options: Any) -> Iterator[Translation]:
        """Translates lines as they come, for texts that do not fit into memory. Takes the options of translate_batch."""
        lines = iter(source)
        prefixes = None if target_prefix is None else iter(target_prefix)
        while True:
            batch = list(itertools.islice(lines, max_batch_size if max_batch_size > 0 else 32))
            if not batch:
                return
            some = None if prefixes is None else list(itertools.islice(prefixes, len(batch)))
            yield from self.translate_batch(batch, some, max_batch_size=max_batch_size, **options)


def _result(found: Sequence[c.Translation]) -> Translation:
    some = [t for i, t in enumerate(found) if i == 0 or t.text is not None]
    pairs = [[(int(a), int(b)) for a, b in (pair.split("-") for pair in _decode(t.alignment).split())] for t in some]
    unknown = _decode(found[0].unknown_words)
    return Translation([_decode(t.text) for t in some], [t.score for t in some], [_decode(t.tokens).split() for t in some],
                       unknown.split(", ") if unknown else [], bool(found[0].truncated), bool(found[0].doubtful), pairs)
