"""LLVM: from its language to machine code for this processor, and that into memory."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, ClassVar

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from halfseen.compiler.entry import PYTHON_FUNCTIONS
from halfseen.compiler.types import DTYPES
from halfseen.errors import HalfseenError


def python_function(name: str, result: Any, *arguments: Any) -> Any:
    """A function of Python's C interface, described for us alone: `ctypes.pythonapi` is everybody's."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


@cache
def _target() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="static" if target.name.startswith("x86") else "default",
        codemodel="jitdefault",
        jit=True,
    )


def identity() -> str:
    """What machine code depends on besides the source."""
    processor = f"{llvm.get_process_triple()} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
    return f"{llvmlite.__version__} {np.__version__} {processor} {[one.num for one in DTYPES.values()]}"


def assemble(text: str) -> bytes:
    """An object file."""
    machine = _target()
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = llvm.get_process_triple(), str(machine.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization, options.slp_vectorization = True, False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return bytes(machine.emit_object(module))


@cache
def _engine() -> Any:
    for name in PYTHON_FUNCTIONS:
        llvm.add_symbol(name, ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value)
    llvm.add_symbol("halfseen.ndarray", id(np.ndarray))
    llvm.add_symbol("halfseen.none", id(None))
    llvm.add_symbol("halfseen.dgemm", _dgemm())
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target())


def _dgemm() -> int:
    from scipy.linalg import cython_blas

    capsule = cython_blas.__pyx_capi__["dgemm"]
    name = python_function("PyCapsule_GetName", ctypes.c_char_p, ctypes.py_object)
    pointer = python_function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    return int(pointer(capsule, name(capsule)))


def load(code: bytes, symbols: list[str]) -> dict[str, int]:
    """The addresses of these functions of an object file, which others loaded later find by name too."""
    engine = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    addresses = {symbol: engine.get_function_address(symbol) for symbol in symbols}
    for symbol, address in addresses.items():
        if not address:
            raise HalfseenError(f"{symbol} is not in the object file that should have it; `halfseen warmup` anew")
        llvm.add_symbol(symbol, address)
    return addresses


class _Method(ctypes.Structure):
    """PyMethodDef, Python's description of a function in machine code."""

    _fields_: ClassVar = [
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    ]  # fmt: skip


_FAST_CALL = 0x80  # METH_FASTCALL
_methods: list[Any] = []  # Python holds no references to these


def callable_at(address: int, name: str, instead: Any) -> Any:
    """The Python function whose machine code is there; it calls `instead` with arguments that it cannot take."""
    method = _Method(name.encode(), address, _FAST_CALL, None)
    _methods.append(method)
    make = python_function("PyCFunction_NewEx", *[ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p])
    return make(ctypes.addressof(method), instead, None)
