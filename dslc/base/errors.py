"""Every error of dslc: one table of codes, one base class, one exit code per family.

A user sees the code, the place, the cause and one line of help. ``dslc explain CODE`` prints the page of a code.
"""

from __future__ import annotations

from typing import Any, Final

from dslc.base.visible import one_line

EXIT_OK: Final = 0
EXIT_DIFFERENCE: Final = 1  # a check found a difference: docs/robust.md lists the commands
EXIT_INTERNAL: Final = 70
EXIT_RANKS: Final = 75  # another process of the training has ended: start again
EXIT_SIGINT: Final = 130
EXIT_SIGTERM: Final = 143

# The longest matching prefix wins.
_EXIT_BY_PREFIX: Final[dict[str, int]] = {
    "E": 2,  # text, names, types, shapes, train section, target
    "E04": 6,  # memory budget
    "R1": 3,  # data
    "R2": 4,  # environment: GPU, driver, architecture, a lock miss
    "R3": 5,  # artifact
    "R4": 6,  # memory and disk
    "R5": 7,  # numbers: NaN and Inf
    "R6": 4,  # the start of several processes that train together
    "R603": EXIT_RANKS,
}

CODES: Final[dict[str, str]] = {
    # E00xx: text and limits
    "E0001": "the source does not parse",
    "E0002": "the source is too long",
    "E0003": "a character that is not allowed",
    "E0004": "nesting is too deep",
    "E0005": "a number is too large",
    "E0006": "the program expands to too many operations",
    "E0007": "the file's first line must name the edition",
    "E0008": "this edition is not known",
    # E01xx: names and imports
    "E0101": "an unknown function",
    "E0102": "an unknown name",
    "E0103": "a name is declared twice",
    "E0104": "a label is used twice",
    "E0105": "blocks call each other in a cycle",
    "E0106": "a file to `use` was not found",
    "E0107": "files use each other in a cycle",
    "E0108": "a `use` leads out of the project",
    "E0109": "an unknown attribute",
    "E0110": "an input is never read",
    "E0111": "it is unclear which model is meant",
    "E0112": "a name would hide another",
    "E0113": "an unknown section or field",
    "E0114": "too many files",
    "E0115": "the ops of a package cannot be used",
    "E0116": "a file of numbers cannot be used",
    # E02xx: arguments and types
    "E0201": "an argument is missing or not expected",
    "E0202": "an argument has the wrong type",
    "E0203": "an operation does not fit its arguments",
    "E0204": "integer and float tensors do not mix",
    "E0205": "a value is not known at compile time",
    "E0206": "a check of the program failed",
    "E0207": "a statement does not belong here",
    "E0208": "the number of results differs",
    "E0209": "an argument is out of range",
    "E0210": "an attribute does not fit here",
    # E03xx: shapes
    "E0301": "shapes do not broadcast",
    "E0302": "a shape does not match its signature",
    "E0303": "a size does not divide",
    "E0304": "a size is out of range",
    "E0305": "a tensor is too large",
    "E0306": "an axis does not exist",
    "E0307": "a dim is not declared correctly",
    "E0308": "a size of zero is not allowed here",
    # E04xx: memory budget
    "E0401": "the budget is malformed",
    "E0402": "the plan does not fit the budget",
    # E05xx: the train section
    "E0501": "the train section has no loss",
    "E0502": "the loss has the wrong shape",
    "E0503": "the train section has no optimizer",
    "E0504": "a metric has the wrong shape",
    "E0505": "there is nothing to train",
    "E0506": "the loss depends on no parameter",
    "E0507": "an operation has no gradient",
    "E0508": "the file trains no such model",
    "E0509": "a step cannot be divided into micro-batches",
    "E0510": "the steps do not divide the parameters",
    "E0511": "a gradient is always 0",
    # E06xx: target, precision, build options
    "E0601": "an unknown target",
    "E0602": "the target lacks this precision",
    "E0603": "a build option is out of range",
    "E0604": "an artifact of this name cannot be made",
    "E0605": "the configuration does not fit",
    "E0606": "the plans of an artifact are too large",
    "E0607": "the lock file cannot be used",
    "E0608": "it is unclear which GPU's measurements count",
    "E0609": "a lock names a way that does not exist",
    # R1xx: data and configuration of a run
    "R101": "a data file cannot be read",
    "R102": "data has the wrong shape or dtype",
    "R103": "a value in the data is out of range",
    "R104": "the configuration file is wrong",
    "R105": "an input of a call does not fit",
    "R106": "there is too little data",
    # R2xx: environment
    "R201": "no GPU can be used",
    "R202": "the artifact is not built for this machine",
    "R203": "the reference provider is not installed",
    "R204": "a process was forked",
    "R205": "an optional package is missing",
    "R206": "a call to the GPU's driver failed",
    "R207": "the GPU is lost to this process",
    "R208": "the GPU does not finish",
    "R209": "the system refuses what a command needs",
    "R210": "the lock lacks a measurement",
    # R3xx: artifact, weights, checkpoints
    "R301": "the artifact is damaged",
    "R302": "the artifact is of another version",
    "R303": "the artifact is not the one that was asked for",
    "R304": "weights are missing",
    "R305": "weights do not fit the artifact",
    "R306": "a weights file is damaged",
    "R307": "no checkpoint can be used",
    "R308": "the artifact's interface has changed",
    "R309": "the session is closed",
    "R310": "the state is half updated",
    "R311": "an artifact cannot be read",
    "R312": "the artifact holds no such program",
    # R4xx: memory and disk
    "R401": "out of memory",
    "R402": "a file cannot be written",
    "R403": "the output path belongs to something else",
    "R404": "another process works on the same files",
    "R405": "written, but perhaps not durable",
    "R406": "a helper process has ended",
    # R5xx: numbers
    "R501": "the loss or a gradient is not finite",
    # R6xx: several processes that train together
    "R601": "the processes of a training cannot be joined",
    "R602": "the processes of a training differ",
    "R603": "a process of a training has ended",
    # W: warnings
    "W001": "a label would keep this parameter name stable",
    "W002": "the cache is not used",
    "W003": "a value is converted",
    "W004": "a weights file is used with a caveat",
    "W006": "another device or code than the built one",
    "W007": "libraries took long to load",
    "W008": "the loss does not depend on a parameter",
    "W009": "another build may give other bytes",
    "W010": "the algorithms were measured with another version of a library",
    "W011": "a line is far below the machine's speed",
    "W012": "a process trains alone",
    "W013": "a loss gets other numbers than it takes",
    "W014": "a declaration is not used",
}


def exit_code(code: str) -> int:
    """The process exit code that belongs to an error code; 70 for one not in the table."""
    if code not in CODES or code.startswith("W"):
        return EXIT_INTERNAL
    prefix = max((p for p in _EXIT_BY_PREFIX if code.startswith(p)), key=len)
    return _EXIT_BY_PREFIX[prefix]


class DslcError(Exception):
    """An error that the user can fix.

    ``code`` is a key of CODES; ``message`` is the cause, in the user's terms; ``place`` is ``path:line:column``,
    ``path:offset`` or the name of a tensor, file or field; ``help`` is one line with a fix.
    """

    def __init__(self, code: str, message: str, *, place: str | None = None, help: str | None = None) -> None:
        if code not in CODES:
            raise AssertionError(f"no such error code: {code}")
        super().__init__(message)
        self.code = code
        self.message = message
        self.place = place
        self.help = help

    @property
    def exit_code(self) -> int:
        return exit_code(self.code)

    def render(self) -> str:
        """The text that the command line and Python's tracebacks print, without terminal control characters.

        The attributes keep the original text, for programs."""
        lines = [f"error[{self.code}]: {one_line(self.message)}"]
        if self.place is not None:
            lines.append(f"  --> {one_line(self.place)}")
        if self.help is not None:
            lines.append(f"  = help: {one_line(self.help)}")
        return "\n".join(lines)

    def as_json(self) -> list[dict[str, Any]]:
        """The error as data: a list, because one failure may hold several diagnostics."""
        return [{"code": self.code, "message": self.message, "place": self.place, "help": self.help}]

    def __str__(self) -> str:
        return self.render()


class DataError(DslcError):
    """R1xx: data or configuration of a run."""


class InputError(DataError, ValueError):
    """R105: an argument of ``predict`` or ``train_step`` has the wrong name, dtype, shape or range."""


class EnvironmentFault(DslcError):
    """R2xx: the machine lacks a requirement."""


class ForkError(EnvironmentFault):
    """R204: use in a forked child process."""


class DeviceLostError(EnvironmentFault):
    """R207: the GPU's context is lost after an error; R208: the GPU hangs. Only a new process can use it again."""


class ArtifactError(DslcError):
    """R3xx: an artifact, a weights file or a checkpoint."""


class WeightsMissing(ArtifactError):
    """R304."""


class ResourceError(DslcError):
    """R4xx: memory or disk."""


class OutOfMemory(ResourceError):
    """R401."""


class NumericError(DslcError):
    """R5xx: NaN or Inf in a loss or gradient."""


class RanksError(DslcError):
    """R6xx: several processes that train together."""


class BuildError(DslcError):
    """E04xx and E06xx: a build error without a place in the source."""


class DslcWarning(UserWarning):
    """A warning (W code) issued through Python's ``warnings``: one line that says what was done."""

    def __init__(self, code: str, message: str) -> None:
        if code not in CODES:
            raise AssertionError(f"no such warning code: {code}")
        super().__init__(one_line(f"[{code}] {message}"))
        self.code = code
        self.message = message
