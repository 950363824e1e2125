"""Chat templates out of weights files that loop, grow and recurse: rendering ends with an error that says so."""

import json
import subprocess
import sys
from threading import Thread

import pytest

from callsmith.core.errors import ModelError, UsageError
from callsmith.formats.prompt.template import Template
from tests.attack.hostile_templates import HOSTILE, MEGABYTES, SECONDS

N = "{% set n = namespace(s='aaaa', l=[1]) %}{% for i in range(60) %}"
LOOPS = {
    "nested loops": "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    "loops over lists": "{% set l = range(9999)|list %}{% for a in l %}{% for b in l %}{% endfor %}{% endfor %}",
    "loops over generators": "{% for a in range(9999) %}{% for b in range(9999)|map('string') %}{% endfor %}{% endfor %}",
    "a sum in a loop": "{% for a in range(99999) %}{% if range(99999)|sum %}{% endif %}{% endfor %}",
    "a macro that doubles": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "a recursive loop": "{% for x in [range(9999)] recursive %}{{ loop([range(9999)]) }}{% endfor %}",
    "a text times a number": "{{ 'a' * 999999999999 }}",
    "a list times a number": "{{ ([1] * 99999999999)|length }}",
    "a power": "{{ 9 ** 999999999 }}",
    "doubling by +": N + "{% set n.s = n.s + n.s %}{% endfor %}{{ n.s }}",
    "doubling by ~": N + "{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}",
    "doubling in a block": N + "{% set x %}{{ n.s }}{{ n.s }}{% endset %}{% set n.s = x %}{% endfor %}",
    "doubling in arguments": "{% macro f(s, n) %}{% if n %}{{ f(s ~ s, n - 1) }}{% endif %}{% endmacro %}{{ f('aaaa', 60) }}",
    "doubling lists": N + "{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l|tojson }}",
    "doubling by append": N
    + "{% set m = [] %}{{ m.append(n.l) }}{{ m.append(n.l) }}{% set n.l = m %}{% endfor %}{{ n.l|tojson }}",
    "squaring by replace": "{% set s = 'a' * 999999 %}{{ s|replace('a', s)|length }}",
    "squaring by the method": "{% set s = 'a' * 999999 %}{{ s.replace('a', s)|length }}",
    "squaring by join": "{% set s = 'a' * 999999 %}{{ (range(99999)|list)|join(s)|length }}",
    "centering": "{{ 'a'|center(99999999999) }}",
    "padding": "{{ 'a'.ljust(99999999999) }}",
    "a wide format": "{{ '%99999999999d'|format(1) }}",
    "a wide format method": "{{ '{:99999999999}'.format(1) }}",
    "a wide percent": "{{ '%99999999999d' % 1 }}",
    "indenting": "{{ ('a\n' * 99999)|indent(9999999) }}",
    "batches": "{{ [1]|batch(99999999999, 0)|list }}",
    "a lot of output": "{% set s = 'a' * 99999 %}{% for i in range(99999) %}{{ s }}{% endfor %}",
}


@pytest.mark.parametrize("source", LOOPS.values(), ids=LOOPS)
def test_a_template_has_a_limited_number_of_steps(source: str):
    with pytest.raises(ModelError, match=r"step|text|power|wide|recursion|not offered|No filter named"):
        Template(source).render([{"role": "user", "content": "hi"}])


def test_what_a_template_has_used_is_not_counted_for_the_next_rendering():
    template = Template("{% for a in range(2000) %}{% endfor %}{{ messages[0].content }}")
    assert [template.render([{"role": "user", "content": "hi"}]) for _ in range(500)] == ["hi"] * 500


def test_renderings_in_other_threads_do_not_give_a_template_more_steps():
    other = Template("{{ messages[0].content }}")
    other.render([{"role": "user", "content": "hi"}])

    def render_elsewhere(form: str) -> str:
        thread = Thread(target=other.render, args=([{"role": "user", "content": "hi"}],))
        thread.start()
        thread.join()
        return form

    loops = "{% for a in range(50) %}{% for b in range(99999) %}{% endfor %}{{ strftime_now('%d' % a) }}{% endfor %}"
    with pytest.raises(ModelError, match="steps"):
        Template(loops, now=render_elsewhere).render([{"role": "user", "content": "hi"}])


@pytest.fixture(scope="module")
def became() -> dict[str, tuple[float, int, str]]:
    """What became of each hostile template: seconds, megabytes, and the answer. One that ended its process is not there."""
    known: dict[str, tuple[float, int, str]] = {}
    names = list(HOSTILE)
    while names:
        child = subprocess.run([sys.executable, "-m", "tests.attack.hostile_templates", *names], capture_output=True, text=True)
        lines = [json.loads(line) for line in child.stdout.splitlines()]
        known |= {name: (seconds, megabytes, body) for name, seconds, megabytes, body in lines}
        names = names[len(lines) + 1 :]
    return known


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured as Linux has it")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_ends_soon_and_takes_little_memory(name: str, became: dict[str, tuple[float, int, str]]):
    assert name in became, f"it took more than {SECONDS} s, or {MEGABYTES} MB, or crashed"
    seconds, megabytes, outcome = became[name]
    assert seconds < SECONDS and megabytes < MEGABYTES and "MemoryError" not in outcome, became[name]


def test_a_collection_of_templates_is_small():
    with pytest.raises(UsageError, match="at most 16"):
        Template({f"template{number}": "" for number in range(1000)})
    with pytest.raises(UsageError, match="at most 16"):
        Template([{"name": "default", "template": 5}])  # pyright: ignore
