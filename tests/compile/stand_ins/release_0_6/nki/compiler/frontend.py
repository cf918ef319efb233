# SPDX-License-Identifier: Apache-2.0
"""Front ends as of 0.6: inside a context, tracing or parsing."""

import os


class TracerFrontend:
    def __init__(self, enable_backend_opt=True):
        pass

    def compile(self, context, kernel, *, inputs, target, lnc, artifacts_dir):
        assert context == "context"
        assert os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] == target
        forms = {name: [str(array.dtype), *array.shape] for name, array in inputs.items()}
        return {"kernel": kernel.func.__name__, "inputs": forms, "frontend": "tracer"}
