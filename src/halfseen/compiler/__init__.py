"""A compiler for kernels: functions of numbers and arrays, in a small part of Python, into machine code by LLVM.

What that part is, and why a general compiler did not do, is in docs/decisions/0010-compiling.md.
"""

from halfseen.compiler.kernel import AS_WRITTEN, FAST, FUSED, helper, inline, kernel

__all__ = ["AS_WRITTEN", "FAST", "FUSED", "helper", "inline", "kernel"]
