"""Four numbers at a time.

The loops of a row are short: of nine numbers for eight features. LLVM vectorises them for many
more, checks first that arrays do not overlap, and ends up with one number at a time. Said in so
many words, four go together, and the sums that a matrix makes stay in registers.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

WIDTH = 4


class Lanes(types.Type):
    """Four doubles."""

    def __init__(self) -> None:
        super().__init__("four doubles")


lanes = Lanes()
_VECTOR = ir.VectorType(ir.DoubleType(), WIDTH)


@register_model(Lanes)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any):
        super().__init__(manager, kind, _VECTOR)


def _pointer(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), _VECTOR.as_pointer())


def _spread(builder: Any, value: Any) -> Any:
    """The same number four times."""
    one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), value, _int(0))
    order = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
    return builder.shuffle_vector(one, ir.Constant(_VECTOR, ir.Undefined), order)


def _int(value: int) -> Any:
    return ir.Constant(ir.IntType(32), value)


def _load(_: Any, array: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], *arguments)
        return builder.load(pointer, align=8)

    return lanes(array, types.uint64), generate


def _store(_: Any, array: Any, at: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], *arguments[:2])
        builder.store(arguments[2], pointer, align=8)
        return context.get_dummy_value()

    return types.void(array, types.uint64, lanes), generate


def _fill(_: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _spread(builder, arguments[0])

    return lanes(types.float64), generate


def _more(_: Any, total: Any, factor: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total, factor, value = arguments
        return builder.fadd(total, builder.fmul(factor, value))

    return lanes(lanes, lanes, lanes), generate


def _times(_: Any, factor: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fmul(*arguments)

    return lanes(lanes, lanes), generate


load: Any = intrinsic(_load)
"""Four numbers of a contiguous array, from the `at`-th on."""
store: Any = intrinsic(_store)
fill: Any = intrinsic(_fill)
"""One number, four times."""
more: Any = intrinsic(_more)
"""total + factor * value."""
times: Any = intrinsic(_times)
