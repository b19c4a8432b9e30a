"""A process that compiles kernels: jobs as lines of JSON on stdin, answers on stdout.

The first line in is the digest of the compiler's source in the parent; a worker that finds another one answers that it
cannot help. Each answer is a line of JSON, {"bytes": N} with N bytes of code behind it, or {"error": ...}. The process
ends with its stdin, so it never outlives its parent.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import traceback
from typing import Any

from dslc.base.errors import DslcError
from dslc.compiler.toolchain.jobs import Job, run_job, sources_digest
from dslc.compiler.toolchain.specs import decode


def main() -> None:
    """Until stdin ends. Stdout is for answers alone: what else writes there goes to stderr."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # where the parent was killed, nobody is to hear of it
    faulthandler.enable()  # a compiler that crashes says where
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    known = sys.stdin.readline().strip() == sources_digest()
    _answer(answers, {"ready": known})
    for line in sys.stdin:
        data = json.loads(line)
        job = Job(data["kind"], data["symbol"], decode(data["spec"]), tuple(data["options"]))
        try:
            assert repr(job.spec) == data["text"], f"a description has changed on its way: {data['text']}"
            code = run_job(job)
        except DslcError as error:
            _answer(answers, {"error": [error.code, error.message, error.place, error.help]})
        except Exception:  # noqa: BLE001
            _answer(answers, {"failed": traceback.format_exc()})  # raised again by the parent
        else:
            _answer(answers, {"bytes": len(code)}, code)


def _answer(out: Any, data: dict[str, Any], code: bytes = b"") -> None:
    out.write(json.dumps(data).encode() + b"\n" + code)
    out.flush()
