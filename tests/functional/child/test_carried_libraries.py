"""Objects of libraries that notebooks keep: made in one cell, used two cells later."""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.functional.child.conftest import Notebook

CASES = {
    "duckdb in memory": (
        "import duckdb\nx = duckdb.connect()\nx.execute('create table t as select 5 a')\n"
        "x.execute('create view v as select a + 1 b from t')\n"
        "x.execute('create macro twice(n) as n * 2')\nc = x.cursor()",
        "(x.execute('select twice(b) from v').fetchone(), c.execute('insert into t values (6)')"
        " is c, x.execute('select count(*) from t').fetchone()) == ((12,), True, (2,))",
    ),
    "duckdb file": (
        "import duckdb\nx = duckdb.connect('a.duckdb')\n_ = x.execute('create table t as "
        "select 5 a')",
        "x.execute('from t').fetchone() == (5,)",
    ),
    "boto3 client": (
        "import boto3, os\nfrom botocore.config import Config\n"
        "x = boto3.client('s3', region_name='eu-west-1', config=Config(read_timeout=7))",
        "(x.meta.region_name, x.meta.service_model.service_name, x.meta.config.read_timeout)"
        " == ('eu-west-1', 's3', 7)",
    ),
    "boto3 resource": (
        "import boto3\nx = boto3.resource('s3', region_name='eu-west-1').Bucket('b')",
        "(x.name, x.meta.client.meta.region_name) == ('b', 'eu-west-1')",
    ),
    "boto3 session": (
        "import boto3\nx = boto3.Session(region_name='eu-west-3')",
        "x.region_name == 'eu-west-3'",
    ),
    "httpx client": (
        "import httpx\nx = httpx.Client(base_url='https://a.test/v1', headers={'a': 'b'},"
        " timeout=3, cookies={'c': 'd'}, params={'p': '1'}, follow_redirects=True)",
        "(str(x.base_url), x.headers['a'], x.timeout.read, x.cookies['c'], x.follow_redirects,"
        " x.is_closed, str(x.build_request('GET', 'q').url))"
        " == ('https://a.test/v1/', 'b', 3, 'd', True, False, 'https://a.test/v1/q?p=1')",
    ),
    "requests session": (
        "import requests\nx = requests.Session(); x.headers['a'] = 'b'; x.cookies.set('c', 'd')",
        "x.headers['a'] == 'b' and x.cookies['c'] == 'd' and 'https://' in x.adapters",
    ),
    "tqdm": (
        "from tqdm import tqdm\nx = tqdm(total=10, desc='work'); x.update(4)",
        "(x.update(1), x.n, x.total, x.desc, '5/10' in str(x)) == (True, 5, 10, 'work: ', True)"
        " or (x.n, '5/10' in str(x)) == (5, True)",
    ),
    "closed tqdm": (
        "from tqdm import tqdm\nx = tqdm([1, 2]); _ = list(x)",
        "x.n == 2 and '2/2' in str(x)",
    ),
    "ipywidgets": (
        "import ipywidgets as w\ns = w.IntSlider(3, max=9); x = w.VBox([s, "
        "w.Label('a')])\nlog = []\n"
        "s.observe(lambda change: log.append(change.new), 'value'); i = s.model_id",
        "(x.children[0] is s, s.value, s.max, s.model_id == i, setattr(s, 'value', 4), log)"
        " == (True, 3, 9, True, None, [4])",
    ),
    "matplotlib figure": (
        "import matplotlib.pyplot as plt\nx, ax = plt.subplots(); _ = ax.plot([1, 2, 4])",
        "x.axes[0] is ax and list(ax.lines[0].get_ydata()) == [1, 2, 4]"
        " and x.savefig('a.png') is None",
    ),
    "pandas": (
        "import pandas as pd\nx = pd.DataFrame({'a': [1, 2], 'b': ['x', None]}); g = "
        "x.groupby('a')",
        "x.a.sum() == 3 and len(g) == 2",
    ),
    "polars": (
        "import polars as pl\nx = pl.DataFrame({'a': [1, 2]}); y = "
        "x.lazy().select(pl.col('a') * 2)",
        "x['a'].sum() == 3 and y.collect()['a'].to_list() == [2, 4]",
    ),
    "pyarrow": (
        "import pyarrow as pa\nx = pa.table({'a': [1, 2]})",
        "x.column('a').to_pylist() == [1, 2]",
    ),
    "scikit-learn": (
        "from sklearn.linear_model import LinearRegression as L\n"
        "from sklearn.pipeline import make_pipeline\nfrom sklearn.preprocessing import "
        "StandardScaler\n"
        "x = make_pipeline(StandardScaler(), L()).fit([[0], [1], [2]], [0, 1, 2])",
        "round(float(x.predict([[3]])[0]), 6) == 3.0",
    ),
    "scipy": (
        "import scipy.sparse as sp, scipy.interpolate as si\nx = sp.csr_matrix([[0, 1], [2, 0]])\n"
        "y = si.CubicSpline([0, 1, 2], [0, 1, 4])",
        "x.sum() == 3 and abs(float(y(2)) - 4) < 1e-9",
    ),
    "networkx": (
        "import networkx as nx\nx = nx.path_graph(4); x.nodes[0]['a'] = 1",
        "nx.shortest_path(x, 0, 3) == [0, 1, 2, 3] and x.nodes[0]['a'] == 1",
    ),
    "sympy": (
        "import sympy\ns = sympy.symbols('s'); x = s**2 + sympy.sin(s)\nf = sympy.lambdify(s, x)",
        "x.diff(s) == 2 * s + sympy.cos(s) and bool(f(0) == 0)",
    ),
    "pillow": (
        "from PIL import Image\nx = Image.new('RGB', (2, 2), 'red')",
        "x.getpixel((0, 0)) == (255, 0, 0)",
    ),
    "bs4": (
        "import bs4\nx = bs4.BeautifulSoup('<p>hi <b>you</b></p>', 'html.parser'); b = x.b",
        "b.text == 'you' and x.p.text == 'hi you'",
    ),
    "openpyxl": (
        "import openpyxl\nx = openpyxl.Workbook(); s = x.active; s['A1'] = 5",
        "x.active['A1'].value == 5 and x.active is s",
    ),
    "lxml": (
        "from lxml import etree\nx = etree.fromstring('<a><b>t</b></a>'); t = "
        "etree.ElementTree(x)\n"
        "b = x[0]",
        "etree.tostring(x) == b'<a><b>t</b></a>' and b.text == 't' and t.getroot().tag == 'a'",
    ),
    "plotly": (
        "import plotly.graph_objects as go\nx = go.Figure(go.Scatter(y=[1, 2]))",
        "list(x.data[0].y) == [1, 2]",
    ),
    "altair": (
        "import altair as alt, pandas as pd\n"
        "x = alt.Chart(pd.DataFrame({'a': [1]})).mark_bar().encode(x='a:Q')",
        "x.to_dict()['mark'] == {'type': 'bar'}",
    ),
    "bokeh": (
        "from bokeh.plotting import figure\nx = figure(title='t'); _ = x.line([1, 2], [3, 4])",
        "x.title.text == 't' and list(x.renderers[0].data_source.data['y']) == [3, 4]",
    ),
}
MODULES = {
    "boto3 client": "boto3",
    "boto3 resource": "boto3",
    "boto3 session": "boto3",
    "duckdb in memory": "duckdb",
    "duckdb file": "duckdb",
    "httpx client": "httpx",
    "requests session": "requests",
    "closed tqdm": "tqdm",
    "matplotlib figure": "matplotlib",
    "scikit-learn": "sklearn",
    "pillow": "PIL",
}
INSTALLED = [c for c in CASES if importlib.util.find_spec(MODULES.get(c, c)) is not None]


@pytest.mark.parametrize("case", INSTALLED)
def test_carried(case: str, notebook: Notebook) -> None:
    make, check = CASES[case]

    result = notebook.run(make, "pass", check)

    assert result.text == "True"


REFUSED = {
    "given credentials": (
        "import boto3\nx = boto3.client('s3', region_name='eu-west-1', aws_access_key_id='AKIDOWN',"
        " aws_secret_access_key='verysecretkey')",
        "credentials that were given to it",
    ),
    "session with given credentials": (
        "import boto3\nx = boto3.Session(aws_access_key_id='AKIDOWN',"
        " aws_secret_access_key='verysecretkey', region_name='eu-west-1')",
        "credentials that were given to it",
    ),
    "duckdb transaction": ("import duckdb\nx = duckdb.connect(); _ = x.begin()", "x.commit()"),
    "duckdb relation": ("import duckdb\nc = duckdb.connect(); x = c.sql('select 1')", "x = x.df()"),
    "duckdb registered frame": (
        "import duckdb, pandas\nx = duckdb.connect()\n"
        "_ = x.register('frame', pandas.DataFrame({'a': [1]}))",
        "registered tables (frame)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_a_hint(case: str, notebook: Notebook) -> None:
    make, hint = REFUSED[case]

    result = notebook.run(make)

    assert hint in result.stream("stderr")
    for body in notebook.objects.bodies.values():
        # The source of a cell is stored as it is, and as JSON.
        rest = body.replace(make.encode(), b"").replace(json.dumps(make)[1:-1].encode(), b"")
        assert b"verysecretkey" not in rest


def test_a_widget_is_not_announced_again(notebook: Notebook) -> None:
    notebook.run("import ipywidgets as w\nx = w.IntSlider(3)")

    result = notebook.run("x.value = 5")

    assert not result.of_type("comm_open")
    (message,) = result.of_type("comm_msg")
    assert message["content"]["data"]["state"] == {"value": 5}
