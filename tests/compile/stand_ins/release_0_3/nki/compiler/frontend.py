# SPDX-License-Identifier: Apache-2.0
"""The front end as of 0.3: a parser, no context, fewer arguments."""


class ParserFrontend:
    def compile(self, kernel, inputs, target):
        forms = {name: [str(array.dtype), *array.shape] for name, array in inputs.items()}
        return {"kernel": kernel.func.__name__, "inputs": forms, "frontend": "parser"}
