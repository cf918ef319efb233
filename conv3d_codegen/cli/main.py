# SPDX-License-Identifier: Apache-2.0
"""The `conv3d-codegen` command: finds a subcommand, loads it alone, and reports errors.

A subcommand's module is imported when it is called, never for `--help` of the whole, so that
help is instant.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

import click

from conv3d_codegen import __version__
from conv3d_codegen.cli.output import Exit, one_line, say
from conv3d_codegen.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

# Subcommand → what it is for. The module of the same name in this package holds `command`; names
# that Python keeps for itself have an underscore behind.
COMMANDS = {
    "emit": "Write the kernel of a geometry.",
    "verify": "Run a kernel in the bundled simulator and compare it with the reference.",
    "plan": "Show the schedule of a geometry, what else was considered, and the index maps.",
    "inspect": "Show what a reviewer wants to know about a kernel.",
    "diff": "Compare two kernels: plans first, then text.",
    "import": "Read convolutions in another notation and write a LAYERS file.",
    "compile": "Compile a kernel with the Neuron toolchain, where that is installed.",
    "cache": "Look after the kernels kept on this machine.",
    "pack": "Make, check and compare packs: kernels for the layers of a model in one file.",
    "bench": "Time the kernels of 54 real layers against the roofline.",
    "catalog": "Check, rewrite or compare the committed kernels in generated/.",
    "targets": "Show the hardware tables that planning and simulation use.",
    "doctor": "Show versions, paths and what is installed.",
}


class CommandGroup(click.Group):
    """A group that loads subcommands on demand and prints every error as one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the subcommands, in the order of the work."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of one subcommand."""
        if cmd_name not in COMMANDS:
            return None
        stem = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        command = import_module(f"conv3d_codegen.cli.{stem}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        *_: Any,
        **extra: Any,
    ) -> Any:
        """Run, and leave with the exit code that the subcommand returned."""
        extra["standalone_mode"] = False
        sys.exit(self._run(args, prog_name, extra))

    def _run(self, args: Sequence[str] | None, prog_name: str | None, extra: dict[str, Any]) -> int:
        try:
            return int(super().main(args, prog_name, **extra) or Exit.DONE)
        except RequestError as error:
            say(one_line(error.code, error.message))
        except click.ClickException as error:
            say(one_line("usage", error.format_message()))
        except BrokenPipeError:
            # The reader of a pipe has gone. Python would report it once more when it flushes.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 128 + signal.SIGPIPE
        except OSError as error:
            say(one_line("file", f"{error.filename or 'file system'}: {error.strerror or error}"))
        except click.Abort:
            say("interrupted")
            return 128 + signal.SIGINT
        return Exit.REQUEST


@click.group(
    cls=CommandGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="conv3d-codegen")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Turn one 3-D convolution geometry into one specialised NKI backward kernel.

    Exit codes: 0 done, 1 a check failed, 2 the request is wrong, 3 drift found.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
