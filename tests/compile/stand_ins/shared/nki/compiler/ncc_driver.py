# SPDX-License-Identifier: Apache-2.0
"""The compiler behind the front ends: writes what it was given where a NEFF would go."""

import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass
class CompileOptions:
    target: str
    lnc: int
    output_path: str
    artifacts_dir: str
    neuronx_cc_args: tuple = ()


class CompiledKernel:
    @classmethod
    def from_frontend(cls, result, options):
        assert not list(Path(options.artifacts_dir).iterdir()), "NCC_IDRV077: folder not empty"
        print("compiling", result["kernel"])
        behaviour = os.environ.get("STAND_IN", "")
        if behaviour == "refuse l3" and "_i3_" in result["kernel"]:
            behaviour = "refuse"
        if behaviour == "hang":
            child = subprocess.Popen(["sleep", "600"])
            Path(os.environ["STAND_IN_PID"]).write_text(str(child.pid))
            time.sleep(600)
        elif behaviour == "grow":
            bytearray(64 << 30)
        elif behaviour == "refuse":
            raise RuntimeError("NCC_EBVF030: too many instructions")
        elif behaviour != "forget":
            seen = {"target": options.target, "lnc": options.lnc, **result}
            Path(options.output_path).write_text(json.dumps(seen))
        return cls()
