"""The command group, loaded lazily, and the one place that turns errors into text and exit codes."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any

import click

from dslc.base.errors import EXIT_INTERNAL, EXIT_OK, EXIT_SIGINT, DslcError, DslcWarning
from dslc.base.visible import one_line
from dslc.cli import code_of_signal, habits, room, surroundings
from dslc.cli.output import Settings, print_json, report_error, say
from dslc.cli.table import COMMANDS, SECTIONS

# Set before numpy is loaded: its BLAS uses one thread, so results do not depend on the number of cores, and steps of
# small models do not wait for preempted threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

_EXTRA = re.compile(r"Got unexpected extra arguments? \(([^ )]+)")  # how click says it
_NARROW = 70  # columns: in less, help has the texts below the names
EXIT_PIPE = 141  # the reader of our output closed it: a shell's exit code for SIGPIPE


def _set(name: str) -> Any:
    def callback(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value:
            setattr(ctx.find_root().obj, name, True)

    return callback


def _global_options() -> list[click.Option]:
    """--json and --debug, accepted both before and after the command's name."""
    return [
        click.Option([flag], is_flag=True, is_eager=True, expose_value=False, callback=_set(flag[2:]), help=help_line)
        for flag, help_line in (
            ("--json", "Print data instead of text."),
            ("--debug", "Show the traceback of an error."),
        )
    ]


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        from dslc import __version__

        print_json({"dslc": __version__}) if ctx.find_root().obj.json else say(f"dslc {__version__}")
        ctx.exit()


class _Formatter(click.HelpFormatter):
    """Help in the width of the terminal, also of a narrow one, which the help of click itself exceeds."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        if self.width >= _NARROW:
            return super().write_usage(prog, args, prefix)
        from textwrap import fill

        text = f"{'Usage:' if prefix is None else prefix.rstrip()} {prog} {args}"
        self.write(
            fill(text, self.width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) + "\n"
        )

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        if self.width >= _NARROW:
            return super().write_dl(rows, col_max, col_spacing)
        for term, text in rows:
            self.write_text(term)
            with self.indentation():
                self.write_text(text)


class _Context(click.Context):
    formatter_class = _Formatter


class Command(click.Command):
    """A command that also takes the global options."""

    context_class = _Context

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(_global_options())


class Commands(click.Group):
    """Imports a command's module when the command is called."""

    context_class = _Context

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found = import_module(f"dslc.cli.commands.{COMMANDS[cmd_name].module}").command
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            close = get_close_matches(args[0], COMMANDS, 1)
            hint = f"did you mean `dslc {close[0]}`?" if close else "`dslc --help` lists the commands"
            hint = habits.COMMANDS.get(args[0].lower(), hint)
            raise click.UsageError(f"no command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section in SECTIONS:
            rows = [(name, entry.summary) for name, entry in COMMANDS.items() if entry.section == section]
            if rows:
                with formatter.section(section):
                    formatter.write_dl(rows, col_spacing=4)


app = Commands(
    name="dslc",
    help="Neural networks as text, compiled ahead of time.",
    epilog="`dslc COMMAND --help` shows its options. `dslc new NAME` makes a project that trains at once.",
    context_settings={"help_option_names": ["-h", "--help"]},
    params=[
        *_global_options(),
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            callback=_print_version,
            help="Print the version.",
        ),
    ],
)


def run(args: Sequence[str] | None = None) -> int:
    """Run a command line (``sys.argv[1:]`` by default) and return the exit code; never raises for a user error."""
    options = Settings()
    surroundings.prepare_streams()
    with warnings.catch_warnings():
        warnings.simplefilter("always", DslcWarning)
        warnings.showwarning = _show_warning
        outcome = _called(args, options)
        try:
            outcome.say()
            sys.stdout.flush()
        except BrokenPipeError:
            outcome = Outcome(EXIT_PIPE)
        except (OSError, MemoryError) as error:
            lost = _said_on_stderr(error)
            outcome = Outcome(outcome.code or lost)
        surroundings.silence()
    return outcome.code


def _said_on_stderr(error: OSError | MemoryError) -> int:
    """The exit code if a result or an error cannot be printed; tries to report it on stderr."""
    lost = surroundings.fault(error)
    assert lost is not None, "each OSError and MemoryError has a code"
    surroundings.silence()
    with suppress(OSError, MemoryError):
        report_error(lost, Settings())
    return lost.exit_code


class Outcome:
    """How a command ended: its exit code, and the function that prints its error. Not a dataclass: making one
    takes half a millisecond of every start."""

    def __init__(self, code: int, say: Callable[[], None] = lambda: None) -> None:
        self.code, self.say = code, say


def _show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """Prints one line on stderr, also with --json: warnings are not part of the result."""
    code = f"[{message.code}]" if isinstance(message, DslcWarning) else ""
    text = message.message if isinstance(message, DslcWarning) else str(message)
    say(one_line(f"warning{code}: {text}"), err=True)


def _called(args: Sequence[str] | None, options: Settings) -> Outcome:
    given = list(sys.argv[1:] if args is None else args)
    try:
        room.watch()
        # Not app.main(): it turns a closed pipe and an interrupt into exit code 1, which means a difference here.
        columns = min(shutil.get_terminal_size().columns, 80) - 2  # as click, which takes no less than 50
        with app.make_context("dslc", given, obj=options, terminal_width=max(columns, 20)) as ctx:
            result = app.invoke(ctx)
        return Outcome(result if isinstance(result, int) else EXIT_OK)
    except click.exceptions.Exit as done:
        return Outcome(done.exit_code)
    except DslcError as error:
        return _user_error(error, error, options)
    except click.ClickException as error:
        options.json |= "--json" in given  # it may follow the rejected argument and was not parsed then
        return Outcome(error.exit_code, partial(_usage_error, error, options))
    except (click.Abort, KeyboardInterrupt):
        return Outcome(EXIT_SIGINT)
    except BrokenPipeError:
        return Outcome(EXIT_PIPE)
    except Exception as error:  # noqa: BLE001
        # The outermost frame: even a bug of ours must end in one line and its own exit code.
        code = code_of_signal(error)
        if code is not None:
            return Outcome(code)
        refused = surroundings.fault(error)
        if refused is not None:
            surroundings.silence()  # stdout will not accept later what it did not accept now
            return _user_error(refused, error, options)
        return Outcome(EXIT_INTERNAL, partial(_internal_error, error, options))


def _user_error(said: DslcError, error: Exception, options: Settings) -> Outcome:
    """Prints ``said`` for ``error``. Drops the traceback, which keeps memory alive, unless --debug asks for it."""
    if not options.debug:
        error.__traceback__ = None
        return Outcome(said.exit_code, partial(report_error, said, options))

    def both() -> None:
        report_error(said, options)
        _print_traceback(error)

    return Outcome(said.exit_code, both)


def _print_traceback(error: BaseException) -> None:
    import traceback

    say("".join(traceback.format_exception(error)).rstrip("\n"), err=True)


def _usage_error(error: click.ClickException, options: Settings) -> None:
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        hint = habits.option_hint(error.option_name, error.ctx.command.params)
        if hint is not None:
            error = click.UsageError(f"{error.message.rstrip('.')}; {hint}", error.ctx)
        else:
            meant = habits.alike(error.option_name, error.possibilities or ())
            error = click.NoSuchOption(error.option_name, possibilities=meant, ctx=error.ctx)
    elif isinstance(error, click.UsageError) and error.ctx is not None and (extra := _EXTRA.match(error.message)):
        hint = habits.argument_hint(extra[1], error.ctx.command.params)
        if hint is not None:
            error = click.UsageError(f"{error.message}; {hint}", error.ctx)
    if options.json:
        context = error.ctx if isinstance(error, click.UsageError) else None
        help = f"{context.command_path if context else 'dslc'} --help"
        item = {"code": "usage", "message": error.format_message(), "place": None, "help": help}
        print_json({"errors": [item], "exit_code": error.exit_code})
    else:
        shown = io.StringIO()
        error.show(shown)
        say(shown.getvalue().rstrip("\n"), err=True)


def _internal_error(error: Exception, options: Settings) -> None:
    if options.debug:
        _print_traceback(error)
    cause = one_line(f"{type(error).__name__}: {error}".split("\n")[0][:300])
    advice = "this is a bug in dslc: please report it with the source and the output of `dslc --debug ...`"
    if options.json:
        item = {"code": "internal", "message": cause, "place": None, "help": advice}
        print_json({"errors": [item], "exit_code": EXIT_INTERNAL})
    else:
        say(f"internal error: {cause}; {advice}", err=True)
