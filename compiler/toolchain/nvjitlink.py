"""nvJitLink: assembles PTX to a cubin, as ptxas would, without a GPU or a driver."""

from __future__ import annotations


def cubin_of(ptx: bytes, architecture: str) -> bytes:
    """The ELF file for an architecture such as ``sm_90``; RuntimeError with the linker's log if it rejects the PTX."""
    from cuda.bindings import nvjitlink

    handle = nvjitlink.create(1, [f"-arch={architecture}"])
    try:
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, ptx, len(ptx), "kernel")
        nvjitlink.complete(handle)
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
    except nvjitlink.nvJitLinkError as error:
        log = bytearray(nvjitlink.get_error_log_size(handle))
        nvjitlink.get_error_log(handle, log)
        raise RuntimeError(f"nvJitLink: {log.decode(errors='replace').strip()}") from error
    finally:
        nvjitlink.destroy(handle)
    return bytes(cubin)
