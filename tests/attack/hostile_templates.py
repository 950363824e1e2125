"""Chat templates made to take all time or memory: by hand, and by putting large values to everything that templates are offered.

    python -m tests.attack.hostile_templates NAME…   renders those, and prints a line of JSON for each: seconds, MB, the answer

A template that is not done after `SECONDS` of processor time, or takes more than `MEGABYTES`, ends the process.
"""

# ruff: noqa: E501

import json
import signal
import sys
from pathlib import Path
from time import process_time

SECONDS, MEGABYTES = 3.0, 200

BIG = "{% set t = 'ab cd\n' * 4999 %}"  # as large as a small conversation allows, in one go
N = "{% set n = namespace(s='aaaa', l=[1], i=3) %}{% for i in range(64) %}"
DEEP = "{% set n = namespace(l=[1]) %}{% for i in range(200) %}{% set n.l = [n.l] %}{% endfor %}"
TWINS = "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(64) %}{% set n.a = [n.a, n.a] %}{% set n.b = [n.b, n.b] %}{% endfor %}"
TUPLES = "{% set n = namespace(a=(1, 2)) %}{% for i in range(64) %}{% set n.a = (n.a, n.a) %}{% endfor %}"
SAME_HASH = (
    "{% set n = namespace(l=[], i=0) %}{% for i in range(30000) %}{{ n.l.append(i * 2305843009213693951) or '' }}{% endfor %}"
)

BY_HAND = {
    "wide JSON": "{{ {'a': [1]}|tojson(indent=1000000000) }}",
    "wide JSON, by a text": "{{ {'a': [1]}|tojson(indent=' ' * 99999999) }}",
    "deep and wide JSON": DEEP.replace("[1]", "range(9999)|list") + "{{ n.l|tojson(indent=90) }}",
    "long separators": "{{ range(9999)|list|tojson(separators=('x' * 30000, ':')) }}",
    "JSON of ranges": "{{ ([range(99999)] * 9999)|tojson }}",
    "squaring a number": N + "{% set n.i = n.i * n.i %}{% endfor %}{{ n.i }}",
    "squaring a number, then comparing": N + "{% set n.i = n.i * n.i %}{% endfor %}{{ n.i > 5 }}",
    "a tower of powers": "{{ 9 ** 9 ** 9 }}",
    "a power of a float": "{{ 9.9 ** 99999999 }}",
    "a power by powers": N + "{% set n.i = n.i ** 9 %}{% endfor %}",
    "a number of many digits": "{{ 0x" + "f" * 60_000 + " * 7 }}",
    "a number of many decimal digits": "{{ " + "9" * 60_000 + " }}",
    "a number out of a text": "{{ ('f' * 30000)|int(0, 16) * 3 }}",
    "rounding to many places": "{{ 1|round(-1000000000) }}",
    "rounding up to many places": "{{ 1|round(1000000000, 'ceil') }}",
    "shifting by a method": "{{ (1).__lshift__(99999999999) }}",
    "bytes of a number": "{{ (1).to_bytes(9999999999, 'big')|length }}",
    "an odd format": "{% if ('%' ~ '9999999999d') is odd %}{% endif %}",
    "an even format": "{% if ('%' ~ '9999999999d') is even %}{% endif %}",
    "a divisible format": "{% if ('%' ~ '9999999999d') is divisibleby 3 %}{% endif %}",
    "a format of a mapping": "{{ '%(a)9999999999s' % {'a': 1} }}",
    "a format of a nested key": "{{ '%(a(b)c)9999999999s' % {'a(b)c': 1} }}",
    "a nested width": "{{ '{:{}}'.format('a', 9999999999) }}",
    "a named width": "{{ '{0:{w}}'.format('a', w=9999999999) }}",
    "a format of many fields": "{% set t = 'a' * 99999 %}{{ ('{0}' * 1000).format(t) }}",
    "a percent of many fields": "{% set t = 'a' * 99999 %}{{ ('%s' * 1000) % (([t] * 1000)) }}",
    "a format map": "{{ '{a:9999999999}'.format_map({'a': 1}) }}",
    "a format of safe text": "{{ ('{:9999999999}'|safe).format(1) }}",
    "padding safe text": "{{ ('a'|safe).ljust(9999999999) }}",
    "filling with zeros": "{{ 'a'.zfill(9999999999) }}",
    "tabs": "{{ ('\t' * 9999).expandtabs(9999999) }}",
    "tables of characters": "{{ ('a' * 99999).translate({97: 'b' * 99999}) }}",
    "encoding": "{% for i in range(9999) %}{% set x = ('a' * 99999).encode('idna') %}{% endfor %}",
    "wrapping": BIG + "{{ (t * 99)|wordwrap(1) }}",
    "links": "{{ ('http://a.b ' * 99999)|urlize }}",
    "tags": "{{ ('<' * 999999)|striptags }}",
    "pretty printing": "{{ range(99999)|list|pprint }}",
    "words of nonsense": "{{ lipsum(n=99999) }}",
    "a cycle": "{% set c = cycler(*range(99999)) %}{% for i in range(99999) %}{{ c.next() }}{% endfor %}",
    "twins compared": TWINS + "{{ n.a == n.b }}",
    "twins in order": TWINS + "{{ n.a < n.b }}",
    "twins as a test": TWINS + "{{ n.a is eq n.b }}",
    "a twin in a list": TWINS + "{{ n.a in [n.b] }}",
    "a twin found": TWINS + "{{ [n.b].index(n.a) }}",
    "a twin counted": TWINS + "{{ [n.b].count(n.a) }}",
    "twins selected": TWINS + "{{ [n.a]|select('eq', n.b)|list|length }}",
    "twins sorted": TWINS + "{{ [n.a, n.b]|sort|length }}",
    "twins in a loop": TWINS + "{% for x in [n.a, n.b] %}{{ loop.changed(x) }}{% endfor %}",
    "a tree printed": TWINS + "{{ n.a }}",
    "a tree joined": TWINS + "{{ n.a ~ '' }}",
    "a tree as text": TWINS + "{{ n.a|string|length }}",
    "a tree in a format": TWINS + "{{ '%s' % n.a }}",
    "a tree raised": TWINS + "{{ raise_exception(n.a) }}",
    "a tree as JSON": TWINS + "{{ n.a|tojson }}",
    "a tree as JSON with an indent": TWINS + "{{ n.a|tojson(indent=2) }}",
    "a tree by dict": "{% set n = namespace(d=1) %}{% for i in range(64) %}{% set n.d = dict(a=n.d, b=n.d) %}{% endfor %}{{ n.d }}",
    "a tree by namespaces": "{% set n = namespace(d=1) %}{% for i in range(64) %}{% set n.d = namespace(a=n.d, b=n.d) %}{% endfor %}{{ n.d }}",
    "a tree that grows later": "{% set l = [] %}{% set n = namespace(a=l) %}{% for i in range(14) %}{% set n.a = [n.a, n.a] %}{% endfor %}"
    "{% for i in range(9999) %}{{ l.append(i) or '' }}{% endfor %}{{ n.a|tojson|length }}",
    "a tree of arguments": "{% macro f(n) %}{% if n %}{{ f(n - 1, varargs, varargs) }}{% else %}{{ varargs }}{% endif %}{% endmacro %}{{ f(50, 1, 2) }}",
    "a list in itself": "{% set l = [] %}{{ l.append(l) }}{{ l|tojson }}{{ l == [l] }}",
    "a list in itself, joined": "{% set l = [] %}{{ l.append(l) or '' }}{{ l.append(l) or '' }}{{ l|join }}",
    "tuples as keys": TUPLES + "{{ {n.a: 1} }}",
    "tuples looked up": TUPLES + "{{ {'a': 1}[n.a] }}",
    "tuples got": TUPLES + "{{ {'a': 1}.get(n.a) }}",
    "tuples among keys": TUPLES + "{{ n.a in {'a': 1} }}",
    "tuples once": TUPLES + "{{ [n.a]|unique|list|length }}",
    "one hash": SAME_HASH + "{{ n.l|unique|list|length }}",
    "one hash, as keys": SAME_HASH + "{{ dict(n.l|map('list'))|length }}",
    "one hash, small numbers": SAME_HASH.replace("2305843009213693951", "2305843009213693") + "{{ n.l|unique|list|length }}",
    "differences of keys": "{% set d = dict(a=1) %}{% for i in range(99999) %}{% if d.items() - d.items() %}{% endif %}{% endfor %}",
    "stripping by many": "{% set t = 'a' * 30000 %}{% for i in range(999) %}{% if t.strip('b' * 30000 ~ 'a') %}{% endif %}{% endfor %}",
    "trimming by many": "{% set t = 'a' * 30000 %}{% for i in range(999) %}{% if t|trim('b' * 30000 ~ 'a') %}{% endif %}{% endfor %}",
    "searching from the end": "{% set t = 'a' * 300000 %}{% set p = 'b' ~ 'a' * 100000 %}{{ t.rfind(p) }}",
    "splitting from the end": "{% set t = 'a' * 300000 %}{% set p = 'b' ~ 'a' * 100000 %}{{ t.rsplit(p)|length }}",
    "searching small texts": "{% set t = 'a' * 29999 %}{% set p = 'a' * 50 ~ 'b' ~ 'a' * 48 %}{% for i in range(99999) %}{% if p in t %}{% endif %}{% endfor %}",
    "replacing in small texts": "{% set t = 'a' * 29999 %}{% set p = 'a' * 50 ~ 'b' ~ 'a' * 48 %}{% for i in range(99999) %}{% if t.replace(p, '') %}{% endif %}{% endfor %}",
    "texts compared": "{% set t = 'a' * 3000000 %}{% set u = 'a' * 3000000 %}{% for i in range(99999) %}{% if t == u %}{% endif %}{% endfor %}",
    "texts in order": "{% set t = 'a' * 3000000 %}{% set u = 'a' * 3000000 %}{% for i in range(99999) %}{% if t < u %}{% endif %}{% endfor %}",
    "sliced texts": "{% set t = 'a' * 3000000 %}{% for i in range(99999) %}{% if t[1:] %}{% endif %}{% endfor %}",
    "turned texts": "{% set t = 'a' * 3000000 %}{% for i in range(99999) %}{% if t[::-1] %}{% endif %}{% endfor %}",
    "sliced lists": "{% set l = range(9999)|list %}{% for i in range(9999) %}{% if l[1:] %}{% endif %}{% endfor %}",
    "lists added": "{% set l = range(9999)|list %}{% for i in range(9999) %}{% if l + l %}{% endif %}{% endfor %}",
    "lists popped": "{% set l = range(99999)|list %}{% for i in range(99999) %}{{ l.pop(0) }}{% endfor %}",
    "a line for each letter": BIG + "{% for i in range(999) %}{% if t.splitlines() %}{% endif %}{% endfor %}",
    "kept texts": "{% set l = [] %}{% for i in range(9999) %}{{ l.append('a' * 99999 ~ i) or '' }}{% endfor %}",
    "kept wide texts": "{% set l = [] %}{% for i in range(9999) %}{{ l.append('😀' * 9999 ~ i) or '' }}{% endfor %}",
    "kept lists": "{% set l = [] %}{% for i in range(9999) %}{{ l.append(range(9999)|list) or '' }}{% endfor %}",
    "kept letters": "{% set l = [] %}{% for i in range(999) %}{{ l.append(('😀' * 9999)|list) or '' }}{% endfor %}",
    "kept words": "{% set l = [] %}{% for i in range(999) %}{{ l.append(('a ' * 9999).split()) or '' }}{% endfor %}",
    "kept mappings": "{% set l = [] %}{% for i in range(99999) %}{{ l.append({'a': i, 'b': i, 'c': i}) or '' }}{% endfor %}",
    "kept namespaces": "{% set l = [] %}{% for i in range(99999) %}{{ l.append(namespace(a=i)) or '' }}{% endfor %}",
    "kept pairs": "{% set d = dict(a=1, b=2) %}{% set l = [] %}{% for i in range(99999) %}{{ l.append(d|items) or '' }}{% endfor %}",
    "a large block": "{% for a in range(99999) %}" + "{% if messages[0].a %}{% endif %}" * 500 + "{% endfor %}",
    "a large expression": "{% for a in range(99999) %}{% if " + " or ".join(["messages[0].a"] * 200) + " %}{% endif %}{% endfor %}",
    "a large list in a loop": "{% for a in range(99999) %}{% set l = [" + "1," * 2000 + "] %}{% endfor %}",
    "a test in a loop": "{% for a in range(99999) if " + " or ".join(["messages[0].a"] * 200) + " %}{% endfor %}",
    "a loop over letters": "{% for a in 'a' * 3000000 %}{% for b in 'a' * 3000000 %}{% endfor %}{% endfor %}",
    "a loop over a loop": "{% for a in range(9999) %}{% for b in loop %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}",
    "macros in macros": "{% macro f(n) %}{% for i in range(9) %}{{ f(n - 1) if n }}{% endfor %}{% endmacro %}{{ f(30) }}",
    "a macro without an end": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "a caller that calls": "{% macro f(n) %}{{ caller() }}{{ caller() }}{% endmacro %}" + "{% call f(1) %}" * 15 + "x" + "{% endcall %}" * 15,
    "blocks": "{% block a %}{{ self.a() }}{% endblock %}",
    "including": "{% include '/etc/passwd' %}",
    "filtered blocks": "{% filter replace('a', 'a' * 9999) %}" * 10 + "a" + "{% endfilter %}" * 10,
    "a long date": "{{ strftime_now('%Y' * 99999) }}",
    "a wide date": "{{ strftime_now('%999999999Y') }}",
    "a long complaint": "{{ raise_exception('a' * 3000000) }}",
    "nested lists in the source": "{{ " + "[" * 5000 + "]" * 5000 + " }}",
    "nested brackets in the source": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "nested blocks in the source": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "nested loops in the source": "{% for a in [1] %}" * 60 + "{% endfor %}" * 60,
    "nested macros in the source": "{% macro a() %}" * 90 + "{% endmacro %}" * 90,
    "a chain of nots": "{{ " + "not " * 9000 + "1 }}",
    "a chain of sums": "{{ 1" + " + 1" * 9000 + " }}",
    "a chain of names": "{{ a" + ".a" * 9000 + " }}",
    "a chain of filters": "{{ 1" + "|string" * 9000 + " }}",
    "a chain of comparisons": "{{ 1" + " < 1" * 9000 + " }}",
    "many outputs": "{{ a }}" * 9_000,
    "many assignments": "".join(f"{{% set a{i} = 1 %}}{{% if a{i} %}}{{% endif %}}" for i in range(1500)),
    "a long source": "a" * 40_000_000,
    "a long source of digits": "{{ " + "1" * 60_000 + " }}",
    "a long source of underscores": "{{ " + "1_" * 30_000 + "x }}",
    "a long source of quotes": "{{ '" + "\\" * 60_000 + " }}",
    "a long source of spaces": "{%" + " " * 60_000 + "x",
    "a long source of openings": "{%" * 30_000,
    "a long source of comments": "{#" * 30_000,
    "a long source of raw blocks": "{% raw %}" + "{% endra" * 7_000,
    "a long source of lines": "{{ a\n" * 12_000,
    "folding a power": "{% set a = 7 ** 9999999 %}",
    "folding a text": "{% set a = 'a' * 9999999999 %}",
    "folding a filter": "{{ 'a'|center(9999999999) }}",
    "folding a list": "{{ ([0] * 9999999999)|length }}",
    "folding a join": "{{ ('a' * 99999)|join('b' * 99999) }}",
    "folding a replacement": "{{ ('a' * 9999)|replace('a', 'b' * 99999) }}",
    "a twin in a loop": TWINS + "{% for a in [n.a, n.a] %}{{ n.b in loop }}{% endfor %}",
    "a loop as JSON": TWINS + "{% for a in [n.a, n.a] %}{{ loop|tojson }}{% endfor %}",
    "a loop joined": TWINS + "{% for a in [n.a, n.a] %}{{ loop|join }}{% endfor %}",
    "a loop sorted": TWINS + "{% for a in [n.a, n.b, n.a] %}{{ loop|sort|length }}{% endfor %}",
    "a list that its own loop adds to": "{% set l = [1] %}{% for a in l %}{{ l.append(a) }}{% endfor %}",
    "a list that its own test adds to": "{% set l = [1] %}{% for a in l if l.append(a) %}{% endfor %}",
    "letters as arguments": "{% set t = '😀' * 4000000 %}{{ range(*t) }}",
    "letters as arguments of a filter": "{% set t = '😀' * 4000000 %}{{ 1|default(*t) }}",
    "lists of lists": "{% set l = [] %}{% for i in range(99999) %}{{ l.append([" + "[]," * 900 + "]) or '' }}{% endfor %}",
    "long names of attributes": "{{ (range(9999)|list)|map(attribute='a" + ".a" * 9999 + "')|list }}",
    "escaping all": "{% autoescape true %}{% for i in range(99999) %}{{ '<' * 99999 }}{% endfor %}{% endautoescape %}",
    "probing for long": "{% for a in range(60000) %}{% endfor %}{{ messages[0].content }}",
    "probing for long, by text": "{% for a in range(30) %}{% set t = 'a' * 99999 %}{% endfor %}{{ messages[0].content }}",
}  # fmt: skip

VALUES = {"text": "t", "list": "(range(30000)|list)", "tree": "n.a"}
FILTERS = (
    "abs", "capitalize", "count", "default(t)", "dictsort", "escape", "first", "float", "format(t)", "indent(90)", "int", "items",
    "join(t)", "last", "list", "lower", "map('upper')|map('title')|map('list')", "max", "min", "reject('in', t)", "replace('a', t)",
    "reverse", "round", "safe", "select('in', t)", "selectattr('a', 'in', t)", "sort", "string", "title", "tojson",
    "tojson(indent=99)", "trim", "unique", "upper",
)  # fmt: skip
NOT_OFFERED = (
    "batch(3)", "center(999999999)", "filesizeformat", "forceescape", "groupby('a')", "pprint", "random", "slice(3)",
    "sum(start=[])", "truncate(3)", "urlencode", "wordcount", "xmlattr",
)  # fmt: skip
METHODS = (
    "capitalize()", "casefold()", "center(99999999)", "count('a')", "encode()", "endswith(t)", "find(t)", "format(t, t)", "index('cd')",
    "isalnum()", "join(t)", "lower()", "lstrip(t)", "partition('b')", "replace('a', t)", "rfind(t)", "rsplit('b')", "rstrip(t)",
    "split('b')", "split()", "splitlines()", "startswith(t)", "strip(t)", "swapcase()", "title()", "upper()", "zfill(99999999)",
)  # fmt: skip


def _generated() -> dict[str, str]:
    """Every filter on every value, and every method on texts, again and again."""
    start = TWINS + BIG + "{% for i in range(99999) %}{% if "
    end = " %}{% endif %}{% endfor %}"
    filters = {f"{item} of a {name}": f"{start}{value}|{item}{end}" for item in FILTERS for name, value in VALUES.items()}
    filters |= {f"{item} of a text": f"{BIG}{{{{ t|{item} }}}}" for item in NOT_OFFERED}
    return filters | {f"{item} of a text, as a method": f"{start}t.{item}{end}" for item in METHODS}


HOSTILE = BY_HAND | _generated()


def main(names: list[str]) -> None:
    import resource

    from callsmith.core.errors import CallsmithError
    from callsmith.formats.prompt.template import Template, fixed_date

    Template("{{ messages }}").render([{"role": "user", "content": "hi"}])
    before = _megabytes()
    limit = (int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()) + (MEGABYTES << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for name in names:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # its signal ends the process, whatever it does
        begun = process_time()
        try:
            outcome = f"{len(Template(HOSTILE[name], now=fixed_date).render([{'role': 'user', 'content': 'hi'}]))} characters"
        except CallsmithError as error:
            outcome = str(error)
        print(json.dumps([name, process_time() - begun, _megabytes() - before, outcome[:300]]), flush=True)


def _megabytes() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


if __name__ == "__main__":
    main(sys.argv[1:] or list(HOSTILE))
