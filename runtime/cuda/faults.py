"""Translates return codes of the driver into our errors, with a help text."""

from __future__ import annotations

from typing import Final

from dslc.base.errors import DeviceLostError, DslcError, EnvironmentFault, OutOfMemory

OUT_OF_MEMORY: Final = 2
NOT_READY: Final = 600
CAPTURE_INVALIDATED: Final = 901

#: After these the context is dead: every later call returns the same code, so only a new process helps.
STICKY: Final = frozenset(
    {
        214,  # ECC_UNCORRECTABLE
        220,  # NVLINK_UNCORRECTABLE
        700,  # ILLEGAL_ADDRESS
        702,  # LAUNCH_TIMEOUT
        709,  # CONTEXT_IS_DESTROYED
        710,  # ASSERT
        714,  # HARDWARE_STACK_ERROR
        715,  # ILLEGAL_INSTRUCTION
        716,  # MISALIGNED_ADDRESS
        717,  # INVALID_ADDRESS_SPACE
        718,  # INVALID_PC
        719,  # LAUNCH_FAILED
        721,  # TENSOR_MEMORY_LEAK
        808,  # MPS_CLIENT_TERMINATED
    }
)
_NO_GPU: Final = {
    3: "the driver could not be initialised",  # NOT_INITIALIZED
    34: "libcuda is a stub, no driver is installed",  # STUB_LIBRARY
    46: "the GPU is busy, or another process uses it exclusively",  # DEVICE_UNAVAILABLE
    100: "there is no GPU, or CUDA_VISIBLE_DEVICES hides it",  # NO_DEVICE
    101: "no GPU has this index",  # INVALID_DEVICE
    803: "the driver's libraries do not match its kernel module",  # SYSTEM_DRIVER_MISMATCH
    804: "the driver does not know this GPU",  # COMPAT_NOT_SUPPORTED_ON_DEVICE
}
_WRONG_CODE: Final = {
    200: "the driver refuses the code",  # INVALID_IMAGE
    209: "the code is for another GPU",  # NO_BINARY_FOR_GPU
    218: "the driver cannot read the PTX",  # INVALID_PTX
    221: "the driver has no PTX compiler",  # JIT_COMPILER_NOT_FOUND
    222: "the driver is older than the PTX",  # UNSUPPORTED_PTX_VERSION
    223: "compiling PTX is disabled in the driver",  # JIT_COMPILATION_DISABLED
    300: "the driver refuses the code",  # INVALID_SOURCE
}


class Disturbed(EnvironmentFault):
    """A capture that a call of another thread has ended: one that waits for all work of the GPU."""


def fault(call: str, code: int, name: str, text: str) -> DslcError:
    """The error for a call that returned ``code``; ``name`` and ``text`` are the driver's descriptions.

    R401 out of memory, R201 no usable GPU, R202 code that this GPU or driver cannot run, R207 a GPU that this process
    has lost, R206 anything else.
    """
    said = f"{call} gave {name} ({code}): {text}"
    if code == OUT_OF_MEMORY:
        where = "the host" if call == "cuMemHostAlloc" else "the GPU"
        return OutOfMemory("R401", said, place=call, help=f"free memory of {where}, or use a smaller batch (--size)")
    if code in STICKY:
        return DeviceLostError(
            "R207",
            f"the GPU is lost to this process; {said}",
            place=call,
            help="restart the process: it can no longer use this GPU",
        )
    if code in _NO_GPU:
        return EnvironmentFault(
            "R201",
            f"{_NO_GPU[code]}; {said}",
            place=call,
            help='look at `nvidia-smi`, or take the CPU: device="cpu", or --device cpu',
        )
    if code in _WRONG_CODE:
        return EnvironmentFault(
            "R202",
            f"{_WRONG_CODE[code]}; {said}",
            place=call,
            help="build for this GPU (--target sm_90, for instance), or install a newer driver",
        )
    if code == CAPTURE_INVALIDATED:
        return Disturbed(
            "R206",
            said,
            place=call,
            help="open sessions while no other thread waits for all work of the GPU (cudaDeviceSynchronize)",
        )
    return EnvironmentFault("R206", said, place=call, help="try again in a new process; look at `nvidia-smi`")


def hung(call: str, seconds: float) -> DeviceLostError:
    """The error for work that has not finished ``seconds`` after the host began to wait. It may still write memory, so
    none of its memory is released."""
    return DeviceLostError(
        "R208",
        f"the GPU has not finished after {seconds:g} s",
        place=call,
        help="restart the process; load(bulk=0) names the kernel, DSLC_GPU_TIMEOUT=SECONDS waits longer",
    )


def again(first: DslcError, call: str) -> DeviceLostError:
    """The error of every call after the GPU was lost: repeats the first error."""
    return DeviceLostError("R207", first.message, place=f"{call}, after {first.place}", help="restart the process")
