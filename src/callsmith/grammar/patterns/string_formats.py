"""The values of `format` for strings, as regular expressions over the content of the string.

Each allows every spelling of its standard, but not all values: no leap seconds, no host name with two hyphens in a row, no
comments or quotes in an email address.
"""

_MONTH_DAY = r"((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
_LEAP_YEAR = r"([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
_DATE = rf"([0-9]{{4}}-{_MONTH_DAY}|{_LEAP_YEAR}-02-29)"
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?([Zz]|[+\-]([01][0-9]|2[0-3]):[0-5][0-9])"
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_BYTE}(\.{_BYTE}){{3}}"
_LABEL = "[A-Za-z0-9](-?[A-Za-z0-9]){0,31}"
_HOST = rf"{_LABEL}(\.{_LABEL})*"
_ATEXT = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\-]"
_HEX4 = "[0-9A-Fa-f]{1,4}"
_LAST32 = f"({_HEX4}:{_HEX4}|{_IPV4})"
_IPV6 = "|".join(
    (
        f"({_HEX4}:){{6}}{_LAST32}",
        f"::({_HEX4}:){{5}}{_LAST32}",
        f"({_HEX4})?::({_HEX4}:){{4}}{_LAST32}",
        f"(({_HEX4}:){{0,1}}{_HEX4})?::({_HEX4}:){{3}}{_LAST32}",
        f"(({_HEX4}:){{0,2}}{_HEX4})?::({_HEX4}:){{2}}{_LAST32}",
        f"(({_HEX4}:){{0,3}}{_HEX4})?::{_HEX4}:{_LAST32}",
        f"(({_HEX4}:){{0,4}}{_HEX4})?::{_LAST32}",
        f"(({_HEX4}:){{0,5}}{_HEX4})?::{_HEX4}",
        f"(({_HEX4}:){{0,6}}{_HEX4})?::",
    )
)
_PCHAR = r"([A-Za-z0-9._~!$&'()*+,;=:@\-]|%[0-9A-Fa-f]{2})"
_USER = r"([A-Za-z0-9._~!$&'()*+,;=:\-]|%[0-9A-Fa-f]{2})*@"
_NAMED = r"([A-Za-z0-9._~!$&'()*+,;=\-]|%[0-9A-Fa-f]{2})*"
_AUTHORITY = rf"({_USER})?({_NAMED}|\[({_IPV6})\])(:[0-9]{{0,5}})?"
_TAIL = rf"(\?({_PCHAR}|[/?])*)?(#({_PCHAR}|[/?])*)?"
_CLOCK = "T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)"
_CALENDAR = "([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)"

FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}[Tt]{_TIME}",
    "duration": f"P({_CALENDAR}({_CLOCK})?|{_CLOCK}|[0-9]+W)",
    "uuid": "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}",
    "email": rf"{_ATEXT}+(\.{_ATEXT}+)*@{_HOST}",
    "hostname": _HOST,
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "uri": rf"[A-Za-z][A-Za-z0-9+.\-]*:(//{_AUTHORITY}(/{_PCHAR}*)*|/({_PCHAR}+(/{_PCHAR}*)*)?|{_PCHAR}+(/{_PCHAR}*)*){_TAIL}",
}
