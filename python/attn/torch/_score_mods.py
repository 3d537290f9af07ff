# SPDX-License-Identifier: MIT
"""Reads the graphs of FlexAttention's functions: a score_mod becomes a factor, a softcap, a bias and a mask, a mask_mod becomes
a band or a mask."""
from __future__ import annotations

import math
import operator
import weakref
from typing import Any, Callable, NamedTuple, Optional, Sequence, Union

import torch
from torch import Tensor, fx

_POSITIONS = ("b", "h", "m", "n")  # of a graph's arguments: batch, head, query and key


class Refused(Exception):
    """The words are the reason why a function is PyTorch's."""


# How a value depends on the positions of query and key.
FREE, QUERY, KEY, DISTANCE, PAIR = range(5)  # not; that of the query plus what is FREE; so for the key; n - m; otherwise


class Expression(NamedTuple):
    """A value without the score: a node of the graph, or what is made of others."""

    kind: int
    used: frozenset[str]  # those of _POSITIONS
    compute: Callable[[dict[Any, Any]], Any]  # from the values of nodes


class _Shift(NamedTuple):
    """sign * (n - m) + offset, of a node: what a band is made of."""

    sign: int
    offset: float


class Band(NamedTuple):
    """Query m attends keys m + lo to m + hi; None: no limit."""

    lo: Optional[int] = None
    hi: Optional[int] = None


class Score(NamedTuple):
    """factor * score, or times * tanh(factor * score), plus bias, where mask is True."""

    factor: tuple[Any, ...] = ()  # numbers, and those of nodes, to multiply
    times: Optional[tuple[Any, ...]] = None
    bias: Optional[Expression] = None
    mask: Optional[Expression] = None
    bands: tuple[Band, ...] = ()


class Inverse(NamedTuple):
    of: Any


def number(parts: Sequence[Any], env: dict[Any, Any]) -> float:
    """The product of a Score's numbers, as a call has them."""
    found = 1.0
    for part in parts:
        inverse = isinstance(part, Inverse)
        value = part.of if inverse else part
        value = env[value] if isinstance(value, fx.Node) else value
        if isinstance(value, Tensor):
            if type(value) is not Tensor:
                raise Refused(f"score_mod multiplies the score by a {type(value).__name__}; expected a plain tensor or a number")
            if value.requires_grad:
                raise Refused("score_mod multiplies the score by a tensor that needs a gradient")
            if value.dim():
                raise Refused(f"score_mod multiplies the score by a tensor {tuple(value.shape)}; expected a tensor without axes")
            value = value.item()
        if not isinstance(value, (int, float)):
            raise Refused("score_mod multiplies the score by something that is not a number")
        if inverse and value == 0:
            raise Refused("score_mod divides by zero")
        found = found / value if inverse else found * value
    return found


def _name(node: fx.Node) -> str:
    """The operation, however the graph was traced."""
    if isinstance(node.target, str):
        return node.target
    packet = getattr(node.target, "_overloadpacket", node.target)
    return str(getattr(packet, "__name__", packet))


_SAME = {"clone", "detach", "lift_fresh_copy", "alias", "contiguous"}
_CASTS = {"to", "_to_copy", "float", "double", "long", "int", "type", "type_as"}
_COMPARED = {"ge": (1, True), "le": (-1, True), "gt": (1, False), "lt": (-1, False)}
_AND = {"and_", "__and__", "logical_and", "bitwise_and"}
_DIVIDE = {"truediv", "div", "true_divide"}
_MULTIPLY, _ADD, _SUBTRACT = {"mul", "multiply"}, {"add"}, {"sub", "subtract"}
_NEGATE = {"neg", "negative"}


class Graph:
    """The analysis of one function; the values of its buffers may change from call to call."""

    def __init__(self, module: fx.GraphModule, scored: bool) -> None:
        self.graph = fx.Graph()  # a copy, which does not keep the module alive
        self.output: Any = self.graph.graph_copy(module.graph, {})
        self.module = weakref.ref(module)
        self.inputs = [node for node in self.graph.nodes if node.op == "placeholder"]
        self.first = 5 if scored else 4  # inputs before the buffers
        self.scores: dict[Any, Score] = {}
        self.values: dict[Any, Expression] = {}
        self.shifts: dict[Any, _Shift] = {}
        self.bands: dict[Any, tuple[tuple[Band, ...], Optional[Expression]]] = {}
        for node in self.graph.nodes:
            node.meta = {}
            self._visit(node, scored)
        if isinstance(self.output, (tuple, list)) and len(self.output) == 1:
            self.output = self.output[0]

    # ---------------------------------------------------------------------------------------- what nodes are

    def _visit(self, node: fx.Node, scored: bool) -> None:
        if node.op == "placeholder":
            at = self.inputs.index(node) - int(scored)
            if at == -1:
                self.scores[node] = Score()
            else:
                kind = QUERY if at == 2 else KEY if at == 3 else FREE
                used = frozenset(_POSITIONS[at:at + 1]) if at < 4 else frozenset[str]()
                self.values[node] = Expression(kind, used, operator.itemgetter(node))
            return
        if node.op == "call_module":
            raise Refused("the function calls a module")
        if any(x in self.scores for x in node.all_input_nodes):
            self.scores[node] = self._of_score(node)
            return
        self.values[node] = Expression(self._kind(node), self._used(node.all_input_nodes), operator.itemgetter(node))
        if node.op != "get_attr":
            self._note_bands(node)

    def _used(self, nodes: Sequence[fx.Node]) -> frozenset[str]:
        return frozenset[str]().union(*(self.values[x].used for x in nodes))

    def _kind(self, node: fx.Node) -> int:
        kinds, name = [self.values[x].kind for x in node.all_input_nodes], _name(node)
        if all(kind in (FREE, DISTANCE) for kind in kinds):
            return DISTANCE if DISTANCE in kinds else FREE
        if name in _CASTS | _SAME and len(kinds) == 1:
            return kinds[0]
        if len(kinds) == 1 and name in _ADD or name in _SUBTRACT and self._is(node.args[0], QUERY, KEY):
            if len(kinds) == 1 and not node.kwargs:
                return kinds[0]
        if len(kinds) == 2 and not node.kwargs:
            if name in _ADD | _SUBTRACT and kinds[1] == FREE or name in _ADD and kinds[0] == FREE:
                return kinds[0] if kinds[1] == FREE else kinds[1]
            if {*kinds} == {QUERY, KEY} and (name in _SUBTRACT or name in _COMPARED or name in ("eq", "ne")):
                return DISTANCE
        return PAIR

    def _is(self, x: Any, *kinds: int) -> bool:
        return isinstance(x, fx.Node) and self.values[x].kind in kinds

    def _shift(self, x: Any) -> Optional[tuple[int, _Shift]]:
        """Which of QUERY, KEY, DISTANCE and FREE a value is, with its offset."""
        if isinstance(x, (int, float)) and not isinstance(x, bool):
            return FREE, _Shift(0, x)
        if not isinstance(x, fx.Node):
            return None
        if x in self.shifts:
            return self.values[x].kind, self.shifts[x]
        if x.op == "placeholder" and self.values[x].kind in (QUERY, KEY):
            return self.values[x].kind, _Shift(0, 0)
        return None

    def _note_bands(self, node: fx.Node) -> None:
        """Shifts and bands whose numbers the graph itself has."""
        name, args = _name(node), node.args
        if name in _CASTS | _SAME and len(node.all_input_nodes) == 1:
            one = self._shift(args[0])
            if one is not None and name in ("long", "int", *_SAME):
                self.shifts[node] = one[1]
            return
        if len(args) != 2 or node.kwargs:
            return
        if name in _AND:
            self.bands[node] = self._both(args[0], args[1])
            return
        one, other = self._shift(args[0]), self._shift(args[1])
        if one is None or other is None:
            return
        kinds = one[0], other[0]
        if name in _ADD and FREE in kinds and kinds != (FREE, FREE):
            varying = one if kinds[1] == FREE else other
            self.shifts[node] = _Shift(varying[1].sign, one[1].offset + other[1].offset)
        elif name in _SUBTRACT and kinds[1] == FREE and kinds[0] != FREE:
            self.shifts[node] = _Shift(one[1].sign, one[1].offset - other[1].offset)
        elif name in _SUBTRACT and {*kinds} == {QUERY, KEY}:
            self.shifts[node] = _Shift(1 if kinds[0] == KEY else -1, one[1].offset - other[1].offset)
        elif name in _COMPARED:
            sign, equal = _COMPARED[name]
            if {*kinds} == {QUERY, KEY}:
                shift = _Shift(1 if kinds[0] == KEY else -1, one[1].offset - other[1].offset)
            elif kinds == (DISTANCE, FREE):
                shift = _Shift(one[1].sign, one[1].offset - other[1].offset)
            elif kinds == (FREE, DISTANCE):
                shift = _Shift(-other[1].sign, one[1].offset - other[1].offset)
            else:
                return
            # sign * (shift.sign * (n - m) + shift.offset) >= 0, or > 0
            least = -sign * shift.offset
            least = math.ceil(least) if equal else math.floor(least) + 1
            band = Band(lo=least) if sign * shift.sign > 0 else Band(hi=-least)
            self.bands[node] = (band,), None

    def _both(self, *conditions: Any) -> tuple[tuple[Band, ...], Optional[Expression]]:
        """The bands of two conditions that both hold, and what is no band."""
        bands: tuple[Band, ...] = ()
        rest: list[Expression] = []
        for x in conditions:
            mine, other = self.bands.get(x, ((), self._value(x)))
            bands += mine
            rest += [] if other is None else [other]
        return bands, None if not rest else rest[0] if len(rest) == 1 else self._made(torch.logical_and, *rest)

    def condition(self, x: Any) -> tuple[tuple[Band, ...], Optional[Expression]]:
        if isinstance(x, fx.Node) and x in self.bands:
            return self.bands[x]
        return (), self._value(x)

    def _value(self, x: Any) -> Expression:
        if isinstance(x, fx.Node):
            if x in self.scores:
                raise Refused("score_mod uses the score in a way that attn does not support")
            return self.values[x]
        return Expression(FREE, frozenset(), lambda env: x)

    @staticmethod
    def _made(function: Callable[..., Any], *parts: Union[Expression, Any]) -> Expression:
        """The function of expressions and constants."""
        known = [x for x in parts if isinstance(x, Expression)]
        kinds = [x.kind for x in known]
        kind = FREE if all(x == FREE for x in kinds) else DISTANCE if all(x in (FREE, DISTANCE) for x in kinds) else PAIR
        return Expression(kind, frozenset[str]().union(*(x.used for x in known)), lambda env: function(
            *(x.compute(env) if isinstance(x, Expression) else x for x in parts)))

    def always(self, x: Any) -> bool:
        """Whether a condition holds for all pairs, as that of PyTorch's noop_mask."""
        return x is True or isinstance(x, fx.Node) and (_name(x) in ("new_ones", "ones", "ones_like", "new_full", "full")
                                                        and (_name(x)[-4:] != "full" or x.args[-1] is True))

    # ---------------------------------------------------------------------------------------- the score

    def _of_score(self, node: fx.Node) -> Score:
        name, args = _name(node), node.args
        if node.kwargs and name not in _CASTS:
            raise Refused(f"score_mod computes {name} with options")
        scored = [i for i, x in enumerate(args) if isinstance(x, fx.Node) and x in self.scores]
        score = self.scores[args[scored[0]]] if scored else Score()
        single = name in _CASTS and torch.float32 in (*args, *node.kwargs.values())
        if len(args) == 1 and name in _SAME or name == "float" or single:
            return score
        if name in _NEGATE:
            return self._times(score, -1.0)
        if name in ("tanh", "tanh_"):
            if score.bias is not None or score.times is not None or score.mask is not None or score.bands:
                raise Refused("score_mod computes tanh of something other than a multiple of the score")
            return score._replace(times=())
        if name == "where" and scored and scored[0] > 0 and len(args) == 3:
            return self._where(args)
        if len(scored) == 1 and len(args) == 2:
            other = args[1 - scored[0]]
            if name in _MULTIPLY:
                return self._times(score, self._number(other))
            if name in _DIVIDE and scored == [0]:
                return self._times(score, Inverse(self._number(other)))
            if name in _ADD:
                return self._plus(score, self._value(other))
            if name in _SUBTRACT and scored == [0]:
                return self._plus(score, self._made(_negative, self._value(other)))
            if name in _SUBTRACT:
                return self._plus(self._times(score, -1.0), self._value(other))
        raise Refused(f"score_mod computes {name} of the score")

    def _number(self, x: Any) -> Any:
        if isinstance(x, (int, float)) and not isinstance(x, bool):
            return x
        if isinstance(x, fx.Node) and x.op == "placeholder" and self.values[x].kind == FREE and not self.values[x].used:
            return x
        raise Refused("score_mod multiplies the score by something that is not a number")

    @staticmethod
    def _times(score: Score, by: Any) -> Score:
        if score.mask is not None or score.bands:
            if not (isinstance(by, (int, float)) and by > 0):
                raise Refused("score_mod multiplies a score that is masked")
        bias = score.bias
        if bias is not None:
            bias = Graph._made(_scaled, bias, Expression(FREE, frozenset(), lambda env: number((by,), env)))
        if score.times is None:
            return score._replace(factor=(*score.factor, by), bias=bias)
        return score._replace(times=(*score.times, by), bias=bias)

    @staticmethod
    def _plus(score: Score, bias: Expression) -> Score:
        return score._replace(bias=bias if score.bias is None else Graph._made(operator.add, score.bias, bias))

    def _where(self, args: Sequence[Any]) -> Score:
        condition, one, other = args
        if isinstance(condition, fx.Node) and condition in self.scores:
            raise Refused("score_mod has a condition on the score")
        first, second = (self.scores.get(x) if isinstance(x, fx.Node) else None for x in (one, other))
        if first is not None and second is not None:
            if first._replace(bias=None) != second._replace(bias=None):
                raise Refused("score_mod chooses between scores that differ in more than a bias")
            zero = self._value(0.0)
            return first._replace(bias=self._made(_chosen, self._value(condition), first.bias or zero, second.bias or zero))
        score = second if first is None else first
        constant = self._constant(other if first is not None else one)
        if score is None or constant != -math.inf:
            raise Refused("score_mod replaces scores by numbers other than -inf")
        bands, mask = self.condition(condition) if first is not None else \
            ((), self._made(torch.logical_not, self._value(condition)))
        if mask is not None and score.mask is not None:
            mask = self._made(torch.logical_and, score.mask, mask)
        return score._replace(mask=mask or score.mask, bands=score.bands + bands)

    def _constant(self, x: Any) -> Any:
        """A number that the graph has, also as a tensor."""
        if isinstance(x, fx.Node) and x.op == "call_function" and _name(x) in ("full", "scalar_tensor", "tensor"):
            return next((y for y in reversed(x.args) if isinstance(y, (int, float))), None)
        if isinstance(x, fx.Node) and x.op == "get_attr":
            held = getattr(self.module(), str(x.target), None)
            return held.item() if type(held) is Tensor and held.numel() == 1 else None
        return x

    # ---------------------------------------------------------------------------------------- computing

    def env(self, positions: Sequence[Any], buffers: Sequence[Any]) -> dict[Any, Any]:
        """The values of the inputs; positions: of _POSITIONS."""
        first = self.inputs[:self.first]
        found = dict(zip(first[-4:], positions))
        found.update(zip(self.inputs[self.first:], buffers))
        return found

    def computed(self, wanted: Expression, positions: Sequence[Any], buffers: Sequence[Any]) -> Any:
        """The value of an expression, of tensors without axes."""
        env, module = self.env(positions, buffers), self.module()
        for node in self.graph.nodes:
            if node.op == "placeholder" or node in self.scores:
                continue
            if node.op == "get_attr":
                env[node] = getattr(module, str(node.target))
                continue
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), env.__getitem__)
            env[node] = getattr(args[0], node.target)(*args[1:], **kwargs) if node.op == "call_method" \
                else node.target(*args, **kwargs)
        return wanted.compute(env)


def _scaled(bias: Any, by: Any) -> Any:
    return bias * by


def _negative(x: Any) -> Any:
    return -x


def _chosen(condition: Tensor, one: Any, other: Any) -> Tensor:
    return torch.where(condition, one, other)


# ------------------------------------------------------------------------------------------------ results

_known: "weakref.WeakKeyDictionary[Any, Any]" = weakref.WeakKeyDictionary()


def graph_of(function: Any, scored: bool) -> Graph:
    """The analysis of a graph, kept as long as the graph lives."""
    if not isinstance(function, fx.GraphModule):
        name = "score_mod" if scored else "mask_mod"
        raise Refused(f"{name} is a {type(function).__name__}; expected a torch.fx.GraphModule")
    found = _known.get(function)
    if found is None:
        try:
            found = Graph(function, scored)
        except Refused as error:
            found = error
        _known[function] = found
    if isinstance(found, Refused):
        raise Refused(*found.args)
    return found


def score_of(graph: Graph) -> Score:
    if not isinstance(graph.output, fx.Node) or graph.output not in graph.scores:
        raise Refused("score_mod does not use the score")
    return graph.scores[graph.output]


def table(graph: Graph, wanted: Expression, sizes: Sequence[int], buffers: Sequence[Any], device: Any) -> Tensor:
    """The numbers of an expression for all positions, [B or 1, H or 1, L or 1, S or 1]; of one of DISTANCE [B or 1, H or 1, 1,
    L + S - 1], from n - m = 1 - L up."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    by_distance = wanted.kind == DISTANCE
    ranges = [torch.arange(n, device=device) for n in sizes]
    if by_distance:
        ranges[3] = torch.arange(1 - sizes[2], sizes[3], device=device)
    used = ["b" in wanted.used, "h" in wanted.used, "m" in wanted.used and not by_distance, "n" in wanted.used or by_distance]
    zero = torch.zeros((), dtype=torch.int64, device=device)

    def one(*positions: Any) -> Tensor:
        found = graph.computed(wanted, positions, buffers)
        return found if isinstance(found, Tensor) else torch.full((), found, device=device)

    function: Any = one
    for i in (3, 2, 1, 0):
        if used[i]:
            function = torch.vmap(function, in_dims=tuple(0 if j == i else None for j in range(4)))
    with TransformGetItemToIndex():
        found: Tensor = function(*(x if mine else zero for x, mine in zip(ranges, used)))
    return found.reshape([x.shape[0] if mine else 1 for x, mine in zip(ranges, used)])
