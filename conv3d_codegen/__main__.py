# SPDX-License-Identifier: Apache-2.0
"""`python -m conv3d_codegen`."""

from conv3d_codegen.cli.main import main

if __name__ == "__main__":
    main(prog_name="python -m conv3d_codegen")
