"""Settings made in one cell, observed two cells later."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.functional.child.conftest import Notebook

CASES = {
    "doctest mode": (
        "%doctest_mode",
        "noted = get_ipython().meta.doctest_mode; noted.mode, noted.xmode",
        "(True, 'Context')",
    ),
    "plotly": (
        "import plotly.io as pio\npio.renderers.default = 'svg'",
        "pio.renderers.default",
        "'svg'",
    ),
    "altair": (
        "import altair as alt\n_ = alt.renderers.enable('mimetype')\n"
        "_ = alt.data_transformers.disable_max_rows()",
        "alt.renderers.active, alt.data_transformers.options",
        "('mimetype', {'max_rows': None})",
    ),
    "umask": ("import os\n_ = os.umask(0o077)", "os.umask(0o077)", "63"),
    "recursion limit": (
        "import sys\nsys.setrecursionlimit(4321)",
        "sys.getrecursionlimit()",
        "4321",
    ),
    "digits of integers": (
        "import sys\nsys.set_int_max_str_digits(9999)",
        "sys.get_int_max_str_digits()",
        "9999",
    ),
    "locale": (
        "import locale\n_ = locale.setlocale(locale.LC_NUMERIC, 'C')",
        "locale.setlocale(locale.LC_NUMERIC)",
        "'C'",
    ),
    "decimal": (
        "import decimal\ndecimal.getcontext().prec = 5\n"
        "decimal.getcontext().traps[decimal.DivisionByZero] = False",
        "str(decimal.Decimal(1) / 3), str(decimal.Decimal(1) / 0)",
        "('0.33333', 'Infinity')",
    ),
    "warnings as errors": (
        "import warnings\nwarnings.simplefilter('error', UserWarning)",
        "[f[0] for f in warnings.filters if f[2] is UserWarning]",
        "['error']",
    ),
    "warnings of own text": (
        "import warnings\nwarnings.filterwarnings('ignore', 'noise.*')",
        "warnings.filters[0][1].pattern",
        "'noise.*'",
    ),
    "no warning filters": ("import warnings\nwarnings.resetwarnings()", "warnings.filters", "[]"),
    "environment": ("import os\nos.environ['OWN'] = '1'", "os.environ['OWN']", "'1'"),
    "current directory": (
        "import os\nos.mkdir('sub'); os.chdir('sub')",
        "os.path.basename(os.getcwd())",
        "'sub'",
    ),
    "levels of loggers": (
        "import logging\nlogging.getLogger('own.part').setLevel(10)\nlogging.root.setLevel(40)\n"
        "logging.disable(5)",
        "logging.getLogger('own.part').level, logging.root.level, logging.root.manager.disable",
        "(10, 40, 5)",
    ),
    "captured warnings": (
        "import logging\nlogging.captureWarnings(True)",
        "logging._warnings_showwarning is not None",
        "True",
    ),
    "extension": (
        "import sys\nopen('own_ext.py', 'w').write('def load_ipython_extension(ip):\\n'\n"
        "    '    ip.push({\"loaded\": True}, interactive=False)')\n%load_ext own_ext",
        "'own_ext' in get_ipython().extension_manager.loaded",
        "True",
    ),
    "autoreload": (
        "%load_ext autoreload\n%autoreload 2",
        "[(m._reloader.enabled, m._reloader.check_all)"
        " for m in [get_ipython().magics_manager.registry['AutoreloadMagics']]]",
        "[(True, True)]",
    ),
    "alias": (
        "%alias greet echo hi %s",
        "dict(get_ipython().alias_manager.aliases)['greet']",
        "'echo hi %s'",
    ),
    "line magic": (
        "from IPython.core.magic import register_line_magic\nsuffix = '!'\n@register_line_magic\n"
        "def shout(line):\n    return line.upper() + suffix",
        "%shout hi",
        "'HI!'",
    ),
    "magics class": (
        "from IPython.core.magic import Magics, magics_class, line_magic\n@magics_class\n"
        "class Own(Magics):\n    @line_magic\n    def twice(self, line):\n        return line * 2\n"
        "get_ipython().register_magics(Own)",
        "%twice ab",
        "'abab'",
    ),
    "%config": (
        "%config InteractiveShell.ast_node_interactivity = 'all'",
        "get_ipython().ast_node_interactivity",
        "'all'",
    ),
    "%config of plots": (
        "%matplotlib inline\n%config InlineBackend.print_figure_kwargs = {'dpi': 33}",
        "get_ipython().run_line_magic('config', 'InlineBackend.print_figure_kwargs')",
        "{'dpi': 33}",
    ),
    "matplotlib": (
        "import matplotlib.pyplot as plt\nplt.rcParams['lines.linewidth'] = 7.5",
        "plt.rcParams['lines.linewidth']",
        "7.5",
    ),
    "matplotlib style": (
        "import matplotlib.pyplot as plt\nplt.style.use('ggplot')",
        "plt.rcParams['axes.facecolor']",
        "'#E5E5E5'",
    ),
    "pandas": (
        "import pandas as pd\npd.set_option('display.max_rows', 7)",
        "pd.get_option('display.max_rows')",
        "7",
    ),
    "numpy": (
        "import numpy as np\nnp.set_printoptions(precision=2)\n_ = np.seterr(divide='raise')",
        "str(np.array([1.23456])), np.geterr()['divide']",
        "('[1.23]', 'raise')",
    ),
    "event callback": (
        "seen = []\ndef note(*_):\n    seen.append(1)\n"
        "get_ipython().events.register('pre_run_cell', note)",
        "len(seen) > 0",
        "True",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_setting_survives_two_cells(case: str, notebook: Notebook) -> None:
    make, observe, expected = CASES[case]

    result = notebook.run(make, "pass", observe)

    if expected is not None:
        assert result.text == expected


def test_a_handler_of_basic_config_goes_on_writing(notebook: Notebook) -> None:
    notebook.run(
        "import logging\nlogging.basicConfig(filename='own.log', level=20, format='%(message)s',"
        " force=True)\nlogging.info('one')",
        "logging.info('two')",
    )

    assert notebook.run("logging.info('three')\nopen('own.log').read()").text == (
        "'one\\ntwo\\nthree\\n'"
    )


def test_a_handler_writes_to_the_cell_that_logs(notebook: Notebook) -> None:
    notebook.run("import logging\nlogging.basicConfig(format='<%(message)s>', force=True)", "pass")

    assert notebook.run("logging.warning('hi')").stream("stderr") == "<hi>\n"


def test_a_module_imported_later_gets_its_settings(notebook: Notebook) -> None:
    notebook.run("import pandas\npandas.set_option('display.width', 33)", "1", "2")

    assert notebook.run("import pandas\npandas.get_option('display.width')").text == "33"


def test_a_removed_alias_stays_removed(notebook: Notebook) -> None:
    notebook.run("%unalias ls", "pass")

    assert notebook.run("'ls' in dict(get_ipython().alias_manager.aliases)").text == "False"


def test_a_session_without_settings_carries_none(notebook: Notebook) -> None:
    notebook.run("x = 1", "import lambda_kernel.child.side_state as s, gc")

    collected = notebook.run(
        "[s.collect(b) for b in gc.get_objects() if isinstance(b, s.Baseline)]"
        " or [s.collect(b) for c in gc.get_objects() if type(c).__name__ == 'WholeNamespace'"
        " for b in [c._baseline]]"
    )

    assert "warnings" not in collected.text
    assert "config" not in collected.text
    assert "logging" not in collected.text


DRAWS = (
    "import random\nrandom.seed(5)\nout = [random.random()]\nown = random.Random(7)",
    "out.append(random.gauss(0, 1)); out.append(own.random())",
    "out.append(random.gauss(0, 1)); out.append(own.random())",
    "random.shuffle(out)",
)


def test_random_draws_are_those_of_one_process(notebook: Notebook) -> None:
    expected: dict[str, list[float]] = {}
    state = random.getstate()
    for cell in DRAWS:
        exec(cell, expected)
    random.setstate(state)

    notebook.run(*DRAWS)

    assert notebook.run("repr(out)").text == repr(repr(expected["out"]))


def test_numpy_draws_are_those_of_one_process(notebook: Notebook) -> None:
    cells = (
        "import numpy as np\nnp.random.seed(3)\nout = []\nrng = np.random.default_rng(4)",
        "out.append(float(np.random.normal())); out.append(float(rng.normal()))",
        "out.append(float(np.random.normal())); out.append(int(rng.integers(9)))",
        "out.append(float(np.random.rand())); out.append(float(rng.random()))",
    )
    notebook.run(*cells)
    apart = notebook.run("repr(out)").text
    together = notebook.run("\n".join(cells) + "\nrepr(out)").text

    assert apart == together


def test_a_figure_format_lasts_that_is_set_before_anything_is_drawn(notebook: Notebook) -> None:
    result = notebook.run(
        "%config InlineBackend.figure_format = 'retina'\nfrom matplotlib import rcParams",
        "import matplotlib.pyplot as plt\nplt.plot([1, 2]);",
    )

    (figure,) = result.of_type("display_data")
    assert "image/png" in figure["content"]["metadata"]


def test_names_of_pylab_are_there_in_later_cells(notebook: Notebook) -> None:
    notebook.run("%pylab inline", "pass")

    assert notebook.run("linspace(0, 1, 3).tolist()").text == "[0.0, 0.5, 1.0]"


def test_a_colormap_that_another_library_registered_is_there(notebook: Notebook) -> None:
    notebook.run(
        "import matplotlib, matplotlib.colors as c\n"
        "matplotlib.colormaps.register(c.ListedColormap(['red', 'blue'], 'ours'))\n"
        "matplotlib.rcParams['image.cmap'] = 'ours'",
        "pass",
    )

    code = "import matplotlib\nmatplotlib.colormaps[matplotlib.rcParams['image.cmap']].colors"
    assert notebook.run(code).text == "['red', 'blue']"
