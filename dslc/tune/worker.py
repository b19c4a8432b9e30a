"""The process that runs candidates on the GPU: a wrong one can at most end this process.

Reads requests as lines of JSON from stdin, each with the name of what to ``do``, and answers each with one line on
stdout; ``{"at": NAME}`` lines before an answer say which candidate runs, some of them with the ``patience`` in seconds
that it deserves. The process ends when its stdin is closed.

    hello       {gpu}                                   -> {name, sms, target, driver, bus}
    algorithms  {path, limit, deterministic}            -> {ways, default, version}
    open        {path, comparer, target, through_ptx, deterministic} -> {}
    check       {name, path, workspace}                 -> {error, refused, seconds, outdone}
    accept      {name, path, workspace, seconds}        -> {}
    time        {seconds}                               -> {rounds: {name: [seconds of one call, ...]}}
    close       {}                                      -> {}

``open`` takes the candidate that is the problem's reference; ``algorithms`` a call of a library, whose ways it lists;
``accept`` one that another worker has checked, with the time of its call.

An answer ``{"refused": WHY}`` is a fault of the candidate or the problem; with ``"lost": true`` the GPU must be opened
again by a new process. ``{"failed": [code, message]}`` is a fault of the machine.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
from typing import Any

from dslc.base.words import reason


def main() -> None:
    """Runs until stdin ends. Stdout carries only answers: other output to it goes to stderr."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # if the parent was killed, end silently
    faulthandler.enable()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(data: dict[str, Any]) -> None:
        answers.write(json.dumps(data) + "\n")
        answers.flush()

    try:
        from dslc.tune.answers import Worker

        worker = Worker(say)
        for line in sys.stdin:
            answer = worker.answer(json.loads(line))
            say(answer)
            if answer.get("lost"):
                answers.flush()
                os._exit(1)  # the context is dead; releasing it may hang
    except MemoryError:
        say({"failed": ["R401", "this process has reached its memory limit"]})
    except ImportError as error:
        say({"failed": ["R209", f"a package cannot be loaded: {reason(error)}"]})


if __name__ == "__main__":
    main()
