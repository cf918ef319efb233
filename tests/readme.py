# SPDX-License-Identifier: Apache-2.0
"""The README's tour, run for real: `python tests/readme.py` rewrites the outputs it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import conv3d_codegen

README = Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)


def with_real_outputs(text: str) -> str:
    """Run the commands of all console blocks in one empty folder and put their outputs below."""
    with tempfile.TemporaryDirectory() as folder:
        return BLOCK.sub(lambda block: _run_block(block[0], folder), text)


def _run_block(block: str, folder: str) -> str:
    commands = [line for line in block.splitlines() if line.startswith("$ ")]
    return "".join(f"{line}\n{_output(line[2:], folder)}" for line in commands)


def _output(command: str, folder: str) -> str:
    script = f'conv3d-codegen() {{ "{sys.executable}" -m conv3d_codegen "$@"; }}\n{command}'
    package = Path(conv3d_codegen.__file__).parents[1]
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(package), "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return "".join(line.rstrip() + "\n" for line in done.stdout.splitlines())


if __name__ == "__main__":
    README.write_text(with_real_outputs(README.read_text()))
