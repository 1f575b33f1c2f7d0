"""Every sample that jupyter_kernel_test asks for; it is run by `jupyter_kernel_test_suite`."""

from __future__ import annotations

from typing import ClassVar

import jupyter_kernel_test

SHOW = "from IPython.display import HTML, Latex, Markdown, SVG, display\n"


class LambdaKernelTests(jupyter_kernel_test.KernelTests):  # type: ignore[misc]
    """The tests of the kernel that is installed as python3."""

    kernel_name = "python3"
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    code_generate_error = "raise ValueError('on purpose')"
    code_page_something = "zip?"
    code_inspect_sample = "zip"
    code_clear_output = "from IPython.display import clear_output; clear_output()"
    code_execute_result: ClassVar = [
        {"code": "6 * 7", "result": "42"},
        {"code": "[n * n for n in range(1, 4)]", "result": "[1, 4, 9]"},
    ]
    code_display_data: ClassVar = [
        {"code": SHOW + "display(HTML('<b>test</b>'))", "mime": "text/html"},
        {"code": SHOW + "display(Latex('$x$'))", "mime": "text/latex"},
        {"code": SHOW + "display(Markdown('*x*'))", "mime": "text/markdown"},
        {"code": SHOW + "display(SVG('<svg></svg>'))", "mime": "image/svg+xml"},
    ]
    code_history_pattern = "6 * 7*"
    supported_history_operations = ("tail", "search")
    completion_samples: ClassVar = [
        {"text": "zi", "matches": {"zip"}},
        {"text": "import itertoo", "matches": {"itertools"}},
        {"text": "'a'.isal", "matches": {"isalnum", "isalpha"}},
    ]
    complete_code_samples: ClassVar = [
        "1",
        "print('hello, world')",
        "def f(x):\n  return x*2\n\n\n",
    ]
    incomplete_code_samples: ClassVar = ["print('''hello", "def f(x):\n  x*2", "for i in range(3):"]
    invalid_code_samples: ClassVar = ["import = 7q", "1 +* 2"]
