# SPDX-License-Identifier: Apache-2.0
"""The command as a whole: help, errors and exit codes, which scripts rely on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import click
import pytest

from conv3d_codegen.cli.main import COMMANDS, main

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

    Run = Callable[..., Result]


def test_help_lists_every_command_and_loads_none() -> None:
    script = (
        "import sys\n"
        "from conv3d_codegen.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'sympy', 'jinja2', 'rich', 'conv3d_codegen.cli.emit'}\n"
        "print('loaded', sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "loaded []" in done.stdout
    assert all(f"  {name} " in done.stdout for name in COMMANDS)


def test_importing_the_package_loads_no_library() -> None:
    script = "import sys, conv3d_codegen; print({'numpy', 'sympy', 'jinja2'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_exists_and_takes_json(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    leaves = command.commands.values() if isinstance(command, click.Group) else [command]
    for leaf in leaves:
        assert any("--json" in option.opts for option in leaf.params)
        assert leaf.help


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"],
        ["emit"],
        ["emit", "--no-such-option"],
        ["emit", "--shape", "1,2,3,4,5", "--filter", "1,1,1,1", "--key", "conv3d"],
        ["emit", "--shape", "1,2,3,4,5", "--filter", "1,9,9,9"],
        ["verify", "no-such-file.py"],
        ["inspect", "no-such-file.py"],
    ],
    ids=" ".join,
)
def test_a_wrong_request_is_one_line_and_2(run: Run, arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error[")
    assert result.stderr.count("\n") == 1


def test_without_a_command_help_is_shown(run: Run) -> None:
    assert "Commands:" in run().stdout


def test_doctor_and_targets_print_json(run: Run) -> None:
    assert json.loads(run("doctor", "--json").stdout)["libraries"]["numpy"]
    assert json.loads(run("targets", "--json").stdout)["trn2"]["partitions"] == 128


@pytest.mark.skipif(sys.platform == "win32", reason="pipes end differently there")
def test_a_reader_that_goes_away_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "conv3d_codegen", "targets"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert done.stderr == ""
