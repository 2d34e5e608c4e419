"""A compiler for kernels: functions of numbers and arrays, in a small part of Python, into machine code by LLVM.

What that part is, and why a general compiler did not do, is in docs/decisions/0010-compiling.md.
"""

import sysconfig

from halfseen.compiler.decorators import AS_WRITTEN, FAST, FUSED, helper, inline, kernel
from halfseen.errors import HalfseenError

__all__ = ["AS_WRITTEN", "FAST", "FUSED", "helper", "inline", "kernel"]

if sysconfig.get_config_var("Py_GIL_DISABLED"):
    raise HalfseenError("Python without a global lock keeps its objects otherwise; want one with it")
