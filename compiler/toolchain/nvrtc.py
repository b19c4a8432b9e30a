"""CUDA C++ to PTX and cubin through NVRTC, without a GPU or its driver.

The source text is the only input of a kernel: no headers, one constant program name, fixed options. Contraction of
multiply and add is off: a kernel calls ``fmaf`` explicitly.
"""

from __future__ import annotations

from typing import Any, Final

from dslc.base.errors import EnvironmentFault

_OPTIONS: Final = (b"-std=c++17", b"--fmad=false")
_PROGRAM: Final = b"kernels.cu"


class Rejected(RuntimeError):
    """A source text that does not compile. ``log``: what the compiler says."""

    def __init__(self, architecture: str, log: str) -> None:
        super().__init__(f"a kernel does not compile for {architecture}:\n{log}")
        self.log = log


def nvrtc_version() -> str:
    """The library's version, as ``13.0``. EnvironmentFault R205 if it is not installed."""
    nvrtc = _library()
    major, minor = _ask(nvrtc, nvrtc.nvrtcVersion())
    return f"{major}.{minor}"


def compile_cuda(text: str, architecture: str) -> tuple[bytes, bytes]:
    """PTX (without its final NUL) and cubin of a source text, for an architecture such as ``sm_90``.

    Raises EnvironmentFault R205 without NVRTC, Rejected for a text that does not compile.
    """
    nvrtc = _library()
    program = _ask(nvrtc, nvrtc.nvrtcCreateProgram(text.encode(), _PROGRAM, 0, [], []))
    try:
        options = [*_OPTIONS, f"-arch={architecture}".encode()]
        [status] = nvrtc.nvrtcCompileProgram(program, len(options), options)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = b" " * _ask(nvrtc, nvrtc.nvrtcGetProgramLogSize(program))
            _ask(nvrtc, nvrtc.nvrtcGetProgramLog(program, log))
            raise Rejected(architecture, log.decode(errors="replace").rstrip("\0 "))
        ptx = b" " * _ask(nvrtc, nvrtc.nvrtcGetPTXSize(program))
        _ask(nvrtc, nvrtc.nvrtcGetPTX(program, ptx))
        cubin = b" " * _ask(nvrtc, nvrtc.nvrtcGetCUBINSize(program))
        _ask(nvrtc, nvrtc.nvrtcGetCUBIN(program, cubin))
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return ptx.rstrip(b"\0"), cubin


def _library() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:  # the bindings raise RuntimeError if the library is missing
        raise EnvironmentFault(
            "R205",
            "CUDA kernels need NVRTC, which is not installed",
            help="pip install 'dslc[cuda]'",
        ) from error
    return nvrtc


def _ask(nvrtc: Any, answer: tuple[Any, ...]) -> Any:
    status, *values = answer
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(f"NVRTC: {nvrtc.nvrtcGetErrorString(status)[1].decode()}")
    return values[0] if len(values) == 1 else tuple(values)
