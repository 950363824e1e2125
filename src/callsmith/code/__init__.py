"""Code instead of calls: one tool, `run_code`, in which the model writes Python that calls the tools.

    tools = CodeTools(Confirmed(Functions(find_orders, send_mail)))

The code runs in a sandbox, a process of its own that reaches nothing but the tools. It is off unless somebody wants it.
"""

from callsmith.code.code_tools import RUN_CODE, CodeTools
from callsmith.code.sandbox import CodeLimits

__all__ = ["RUN_CODE", "CodeLimits", "CodeTools"]
