"""Templates and tokenizers of strangers: they end, and they say the same at any time."""

import json
import time
from datetime import datetime
from pathlib import Path

import pytest
import tiny_models
from jinja2.defaults import DEFAULT_FILTERS, DEFAULT_NAMESPACE
from jinja2.runtime import BlockReference, LoopContext, Macro
from jinja2.utils import Cycler, Joiner, Namespace
from transformers.utils import chat_template_utils

from headsweep.answers.prepare import prepare_model
from headsweep.benchmarks.prompts import check_prompts, check_reading, prompt_text
from headsweep.cli.main import main
from headsweep.config import Decoding, parse
from headsweep.errors import BenchmarkError, ModelError
from headsweep.files import paths
from headsweep.machine import limited
from headsweep.machine.limited import within_limits
from headsweep.models import chat_templates
from headsweep.models.load import load_tokenizer
from headsweep.store.layout import Store
from headsweep.store.revisions import resolve

CLOCK = "{{ strftime_now('%d %b %Y %H:%M:%S.%f') }}"
LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
SAID = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
HUGE = "{% set ns = namespace(a='a' * 99999) %}{% for i in range(99) %}{% set ns.a = ns.a + ns.a %}"
HUGE += "{% endfor %}"


@pytest.fixture
def model(tmp_path):
    return tiny_models.save_qwen2(tmp_path / "model", chat_template=SAID)


def with_template(folder, template):
    (folder / "chat_template.jinja").write_text(template)
    return folder


@pytest.mark.parametrize("template", [CLOCK, "{% set now = strftime_now %}{{ now('%f') }}"])
def test_a_template_sees_no_clock(template, model):
    tokenizer = load_tokenizer(with_template(model, template + SAID))
    said = {prompt_text(tokenizer, "Why?", Decoding(), "math") for _ in range(3)}
    assert len(said) == 1
    assert ("26 Jul 2024 00:00:00.000000" in said.pop()) == (template == CLOCK)
    # Whoever renders, transformers itself, too: the recovery of a pruned model does.
    messages = [{"role": "user", "content": "Why?"}]
    assert str(datetime.now().year) not in tokenizer.apply_chat_template(messages, tokenize=False)


@pytest.mark.parametrize(
    "template",
    [
        "{{ [1, 2, 3] | random }}",
        "{{ [[1, 2, 3]] | map('ran' ~ 'dom') | list }}",
        "{{ lipsum() }}",
        "{{ [[(1, 'a'), ('a', 1)]] | map('pprint') | list }}",
        "{{ {'a': 1, 'b': 2}.keys() - [] }}",
        "{{ strftime_now }}",
        "{{ joiner() }}",
        "{{ ''.join }}",
        "{{ (strftime_now | string)[-6:-2] }}",
        "{{ '%.20s' % raise_exception }}",
        "{{ ('a'.upper ~ '')[:9] }}",
        "{{ '{0.title!s:.20}'.format('a') }}",
        "{{ [{1: cycler('a')}] | join | last }}",
        "{{ dict | replace(' at 0x', '') }}",
        "{{ 1 / 0 }}",
        "{{ range(10 ** 9) }}",
        "{% if x %}",
        "{{ raise_exception('no') }}",
    ],
)
def test_a_template_of_chance_or_one_that_fails_is_refused_in_one_line(template, model):
    with_template(model, template + SAID)
    with pytest.raises(ModelError, match=r"^the chat template .*; correct it, or use another") as e:
        check_reading(model, [Decoding()])
    assert "\n" not in str(e.value)


def test_a_template_that_never_ends_is_ended(model, monkeypatch):
    monkeypatch.setattr("headsweep.benchmarks.prompts._SECONDS", 1.0)
    with_template(model, LOOP + SAID)
    with pytest.raises(ModelError, match="takes more than 1 s"):
        check_reading(model, [Decoding()])


def test_a_template_that_fills_the_memory_is_ended(model, monkeypatch):
    monkeypatch.setattr(limited, "_MEMORY_MIB", 512)
    with_template(model, "{% if 'odd' in messages[-1]['content'] %}" + HUGE + "{% endif %}" + SAID)
    check_reading(model, [Decoding()])
    check_prompts(model, {"a": "even"}, Decoding(), "math")
    with pytest.raises(ModelError, match="512 MiB of memory"):
        check_prompts(model, {"a": "even", "b": "odd"}, Decoding(), "math")


def test_a_template_that_fails_is_refused_by_check_and_before_its_model_is_ready(
    model, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    with_template(model, "{{ lipsum() }}")
    sizes = {"layers": tiny_models.LAYERS, "heads": tiny_models.QUERY_HEADS}
    tiny = {"source": str(model), **sizes, "kv_heads": tiny_models.KV_HEADS, "billions": 0.001}
    values = {"run": "own", "models": {"tiny": tiny}, "decodings": {"greedy": {}}}
    Path("own.json").write_text(json.dumps(values))
    assert main(["check", "own.json"]) == 2
    assert "error: models.tiny: the chat template of" in capsys.readouterr().err
    store = Store(resolve(parse(values)))
    with pytest.raises(ModelError, match=r"^the chat template of"):
        prepare_model(store, "tiny")
    assert not store.path(paths.MODEL, model="tiny").exists()


def test_what_is_computed_within_limits_comes_back_and_errors_keep_their_kind():
    assert within_limits(lambda: [1, {"a": None}], "it", 5) == [1, {"a": None}]
    with pytest.raises(BenchmarkError, match=r"^why$"):
        within_limits(lambda: fail(BenchmarkError("why")), "it", 5)
    with pytest.raises(ModelError, match=r"^it cannot be read \(ZeroDivisionError: .*\); use"):
        within_limits(lambda: 1 // 0, "it", 5)
    begun = time.monotonic()
    with pytest.raises(ModelError, match=r"^it takes more than 0 s; use another model$"):
        within_limits(lambda: time.sleep(60), "it", 0.1)  # wall time, ten times as much
    assert time.monotonic() - begun < 30


VALUES = {
    "'a'": "a",
    "[1]": [1],
    "{'a': 1}": {"a": 1},
    "(1,)": (1,),
    "1": 1,
    "1.5": 1.5,
    "range(2)": range(2),
    "namespace(a=1)": Namespace(a=1),
    "cycler(1)": Cycler(1),
    "joiner()": Joiner(),
    "m": Macro,
    "self.b": BlockReference,
    "loop": LoopContext,
}
"""What a template can make or get, as it writes it, and something that has its attributes."""


def test_nothing_that_a_template_gets_has_an_address():
    """Each global, each attribute of each value, what its call returns, and what filters make."""
    environment = chat_template_utils._compile_jinja_template("").environment
    gets = [*DEFAULT_NAMESPACE, *environment.globals, *VALUES]
    for written, value in VALUES.items():
        for name in dir(value):
            if not name.startswith("_"):  # the sandbox keeps these
                gets += [f"{written}[{name!r}]", f"({written}).{name}"]
    gets += [f"{get}()" for get in gets]
    gets += [f"{written} | {name}" for written in ("'a'", "[1]") for name in DEFAULT_FILTERS]
    before = "{% macro m() %}m{% endmacro %}{% block b %}{% endblock %}"
    refused, texts = [], []
    for get in gets:
        template = f"{before}{{% for one in [1] %}}{{{{ ({get}) | string }}}}{{% endfor %}}"
        try:
            texts.append(environment.from_string(template).render())
        except Exception as error:
            refused.append(str(error))
    assert [text for text in texts if " at 0x" in text] == []
    counts = sum("writes an object" in reason for reason in refused), len(texts)
    assert min(counts) > 100, counts


def fail(error):
    raise error


def test_the_date_in_prompts_is_one_of_llama_s_templates():
    assert chat_templates.TODAY.strftime("%d %b %Y") == "26 Jul 2024"
