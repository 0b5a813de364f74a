"""Estimators as ``help`` shows them: `estimator_class` makes their constructor and completes their docstring."""

import inspect
from typing import Any

from griffe import Class, Docstring, Extension, Function, Parameter, ParameterKind, Parameters, dynamic_import


class CompleteDocstrings(Extension):
    """Takes docstring and signature of an estimator from the class, not from its source."""

    def on_class(self, *, cls: Class, **kwargs: Any) -> None:
        """Replace what stands in the source, where the class is decorated."""
        if any("estimator_class" in str(decorator.value) for decorator in cls.decorators):
            estimator = dynamic_import(cls.path)
            cls.docstring = Docstring(inspect.getdoc(estimator) or "", parent=cls)
            given = (_as_parameter(parameter) for parameter in inspect.signature(estimator).parameters.values())
            first = Parameter("self", kind=ParameterKind.positional_or_keyword)
            cls.set_member("__init__", Function("__init__", parameters=Parameters(first, *given), parent=cls))


def _as_parameter(parameter: inspect.Parameter) -> Parameter:
    kind = ParameterKind[parameter.kind.name.lower()]
    return Parameter(parameter.name, kind=kind, default=repr(parameter.default))
