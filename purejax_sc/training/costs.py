"""What a program costs, read from its jaxpr: the arithmetic of its products, and the memory between its operations.

XLA's own count of a lowered program takes the body of a loop once, however often it runs. Here a scan counts as often
as its length says, and of code that depends on the platform only the branch of the platform in question.
"""

import math
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxprs_in_params


def flops(program: ClosedJaxpr, platform: str) -> int:
    """Floating-point operations of the matrix products and convolutions of a program: a multiplication with its
    addition is two. Nothing else is counted; in networks the rest is a few percent.

    program:  of `jax.make_jaxpr`.   platform: as `jax.lax.platform_dependent` names it, such as cuda.
    A `while` loop counts once: no program states its length. Of other conditions the most expensive branch counts.
    """
    return _flops(program.jaxpr, platform)


def peak_bytes(program: ClosedJaxpr, platform: str) -> int:
    """An estimate of the temporaries of a program: the most bytes that are alive at once, without its arguments and
    results, if every operation writes its result and operations run in the order in which they are written.

    XLA fuses operations, reorders and pads them: it takes less for some, more for most.
    """
    return _peak(program.jaxpr, platform)


def _flops(jaxpr: Jaxpr, platform: str) -> int:
    return sum(_flops_of(eqn, platform) for eqn in jaxpr.eqns)


def _flops_of(eqn: JaxprEqn, platform: str) -> int:
    name = eqn.primitive.name
    if name == "dot_general":
        return _product(eqn)
    if name == "conv_general_dilated":
        return _convolution(eqn)
    if name == "cond":
        return max(_flops(branch, platform) for branch in _branches(eqn, platform))
    times = eqn.params["length"] if name == "scan" else 1
    return times * sum(_flops(jaxpr, platform) for jaxpr in jaxprs_in_params(eqn.params))


def _branches(eqn: JaxprEqn, platform: str) -> list[Jaxpr]:
    """The branches of a condition that may run on the platform."""
    branches, platforms = [x.jaxpr for x in eqn.params["branches"]], eqn.params.get("branches_platforms")
    if platforms is None:
        return branches
    return [next(x for x, names in zip(branches, platforms, strict=True) if names is None or platform in names)]


def _product(eqn: JaxprEqn) -> int:
    """Every entry of the result is a sum over the contracted axes."""
    (contracted, _), _ = eqn.params["dimension_numbers"]
    left: Any = eqn.invars[0].aval
    result: Any = eqn.outvars[0].aval
    return 2 * result.size * math.prod(left.shape[axis] for axis in contracted)


def _convolution(eqn: JaxprEqn) -> int:
    """Every entry of the result is a sum over channels and the window; what falls on padding or gaps is not done."""
    params: Any = eqn.params
    numbers = params["dimension_numbers"]
    avals: Any = [x.aval for x in (*eqn.invars, *eqn.outvars)]
    image, kernel, result = (aval.shape for aval in avals)
    sizes = zip(
        (result[axis] for axis in numbers.out_spec[2:]),
        (kernel[axis] for axis in numbers.rhs_spec[2:]),
        (image[axis] for axis in numbers.lhs_spec[2:]),
        *(params[name] for name in ("window_strides", "padding", "lhs_dilation", "rhs_dilation")),
        strict=True,
    )
    met = math.prod(_meetings(*size) for size in sizes)
    batch, features = (result[axis] for axis in numbers.out_spec[:2])
    return 2 * met * batch * features * kernel[numbers.rhs_spec[1]]


def _meetings(
    outputs: int, window: int, inputs: int, stride: int, padding: tuple[int, int], gaps: int, spread: int
) -> int:
    """Along one axis, how many pairs of an output and an entry of the window meet an input.

    gaps: distance of the inputs (lhs_dilation).   spread: distance of the window's entries (rhs_dilation).
    """
    place = np.arange(outputs)[:, None] * stride + np.arange(window) * spread - padding[0]
    return int(np.sum((place >= 0) & (place <= (inputs - 1) * gaps) & (place % gaps == 0)))


def _peak(jaxpr: Jaxpr, platform: str) -> int:
    last = {x: time for time, eqn in enumerate(jaxpr.eqns) for x in eqn.invars if not isinstance(x, Literal)}
    computed = _computed(jaxpr)
    inside = computed - {x for x in (*jaxpr.invars, *jaxpr.constvars, *jaxpr.outvars) if not isinstance(x, Literal)}
    alive = most = 0
    ends: dict[int, int] = {}  # bytes, by the time of their last use
    for time, eqn in enumerate(jaxpr.eqns):
        for x in (x for x in _written(eqn, platform) if x in inside):
            end = last.get(x, time)
            ends[end] = ends.get(end, 0) + _num_bytes(x)
            alive += _num_bytes(x)
        most = max(most, alive + _inner(eqn, platform))
        alive -= ends.pop(time, 0)
    return most


def _computed(jaxpr: Jaxpr) -> set[Any]:
    """The values that depend on arguments. The others are constants, which XLA makes where they are used."""
    computed: set[Any] = {*jaxpr.invars, *jaxpr.constvars}
    for eqn in jaxpr.eqns:
        if any(x in computed for x in eqn.invars if not isinstance(x, Literal)):
            computed.update(eqn.outvars)
    return computed


def _written(eqn: JaxprEqn, platform: str) -> list[Any]:
    """What an operation writes. Of branches for other platforms, what they would leave for gradients is zeros here."""
    if eqn.primitive.name != "cond" or "branches_platforms" not in eqn.params:
        return list(eqn.outvars)
    (branch,) = _branches(eqn, platform)
    computed = _computed(branch)
    results = zip(eqn.outvars, branch.outvars, strict=True)
    return [x for x, inner in results if not isinstance(inner, Literal) and inner in computed]


def _inner(eqn: JaxprEqn, platform: str) -> int:
    """The temporaries of what an operation runs: a function, the body of a loop, the largest branch."""
    inner = _branches(eqn, platform) if eqn.primitive.name == "cond" else jaxprs_in_params(eqn.params)
    return max((_peak(x, platform) for x in inner), default=0)


def _num_bytes(x: Any) -> int:
    dtype = getattr(x.aval, "dtype", None)  # tokens have none
    return 0 if dtype is None else x.aval.size * dtype.itemsize
