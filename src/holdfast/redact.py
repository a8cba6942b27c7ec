"""Hides secrets: passwords in URLs, and values with a name that says they are secret. One redactor for logs, errors and
the command line. Imports nothing of ours.

It recognises secrets by their form (`scheme://user:password@`, `password=…`, `"token": "…"`, `Authorization: …`) and,
where the arguments of a job are known, by their value."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec

T = TypeVar("T")

HIDDEN = "***"
SHORTEST = 4  # characters of a value that is searched for in texts; shorter ones occur everywhere by chance
SECRET = object()
MARKS = "$secret"  # stored beside arguments: the names of those marked as secret, for readers without the code

Secret = Annotated[T, SECRET]
"""Marks an argument as secret: `def pay(card: Secret[str])`. The handler gets the plain value."""

Hide = Callable[[str], str]

# Patterns are compiled at first use: that takes milliseconds, and few programs need them.
_WORDS = (
    r"(?:pg|ssl)?pass(?:word|wd|phrase|file)s?|pwd|otp|secrets?|(?:csrf|xsrf|auth)?token|jwt|api[-_ ]?key"
    r"|authorization|credentials?|(?:set-)?cookie|(?:j|php)?sess(?:ion)?id|connect\.sid"
    r"|(?:private|access|secret|signing|encryption|master|hmac|account|service|deploy|licen[sc]e)[-_]?key"
)
# Every text with one of those words contains one of these, in any case. (None has an i: patterns take dotted and
# dotless ones for the same letter.) Searching for these takes microseconds, for the words milliseconds.
_SIGNS = (
    "passw", "passph", "passf", "pwd", "otp", "secret", "token", "jwt", "key", "author", "credent", "cook", "sess",
    "connect.s",
)  # fmt: skip
# Facts *about* a secret are not secret: `password_min_length`, `token_type`, `access_key_id`.
_ABOUT = (
    r"[-_](?:ids?|names?|type|kind|count|len(?:gth)?|min|max|size|limit|url|uri|refs?|fields?|policy|required|reset"
    r"|version|expir[a-z]{1,6}|ttl)(?![a-z])"
)
_SECRET_NAME = rf"(?<![a-z])(?:{_WORDS})(?![a-z]|{_ABOUT})"
_HUMP = r"(?<=[a-z0-9])(?=[A-Z])"

# Every repetition is bounded, and none is nested in another, so hostile texts take no longer than other long ones.
_PORT = r"\d{1,5}(?:[/?#,\s'\")]|$)"
_USER_INFO = rf"(?i)(?<![a-z0-9+.-])([a-z][a-z0-9+.-]{{0,30}}://[^\s:@/\[]{{0,200}}):(?!{_PORT})\S{{0,1000}}@"
_USER_ALONE = r"(?i)(?<![a-z0-9+.-])(https?://)[^\s:@/?#]{16,200}@"  # that long it is a token, not a user name
_BARE = rf"[\w-]{{0,80}}?(?:{_WORDS})(?![A-Za-z])[\w-]{{0,40}}"
_NAME = rf"(?<![\w-]){_BARE}"
_QUOTED = r"'(?:[^'\\]|\\.){0,8000}'?|\"(?:[^\"\\]|\\.){0,8000}\"?"
# A type is not secret, but what follows it may be: `password: str`, `token: Secret[str] | None = "…"`.
_TYPE = (
    r"(?:[a-z]{1,20}\.)?(?:str|bytes|int|float|bool|None|Any|object|SecretStr|SecretBytes"
    r"|(?:Secret|Optional|Union|Annotated|Sequence|Mapping|list|dict|tuple|set)\[[^\]\n=]{1,100}\]{1,3})"
)
_HINT = rf":\s{{0,3}}{_TYPE}(?:\s{{0,3}}\|\s{{0,3}}{_TYPE}){{0,5}}"
_SCHEME = r"(?:(?:bearer|basic|digest|token)\s+)?"
_PAIR = (
    # password=  'token':  Authorization:  password: str =
    rf"(?i)({_NAME})(['\"]?\s{{0,3}}(?:{_HINT}\s{{0,3}}=|=(?!=)|(?!{_HINT}(?:[\s,)\]}}|:=]|$)):)\s{{0,3}})"
    rf"(?!\s|\*\*\*)({_SCHEME}(?:[brf]?(?:{_QUOTED})|[^\s&]{{1,8000}}))"
)
_OPTION = rf"(?i)(?<![\w-])(--{_BARE})(\s{{1,3}})(?!-)({_QUOTED}|\S{{1,8000}})"  # --password x
_TUPLE = rf"(?i)([(\[]\s{{0,3}}b?['\"]{_NAME})(['\"],\s{{0,3}})(b?(?:{_QUOTED}))(?=\s{{0,3}}[)\]])"  # ('password', 'x')
_SAID = rf"(?i)({_NAME})( )('[^'\s]{{4,8000}}'|\"[^\"\s]{{4,8000}}\")"  # with password 'x'
_TAG = rf"(?i)(<(?:\w{{1,40}}:)?{_NAME})((?:\s[^<>]{{0,200}})?>)([^<>]{{1,8000}})(?=</)"  # <password>x</password>
# JSON within a string: \"password\": \"x\"
_ESCAPED = rf"(?i)({_NAME})((\\{{1,15}})['\"]\s{{0,3}}[:=]\s{{0,3}}\3(['\"]))((?:(?!\3\4)[^\n]){{1,8000}})"
_HEADER = (
    r"(?i)(?<![\w-])((?:proxy-)?authorization(?=:\s?(?:aws4-hmac|bearer|basic|digest|hawk|negotiate|token)[\w-]{0,20}\s)"
    r"|(?:set-)?cookie(?=:\s?[^\s=;]{1,200}=)|\w{1,40}-[\w-]{0,40}?signature[\w-]{0,20})"
    r"(:\s{0,3})(?!\s|\*\*\*)(digest [^\r\n]{1,8000}|[^\r\n'\"]{1,8000})"
)
_QUERY = r"(?i)([?&;](?:sig|(?:x-amz-)?signature))(=)([^\s&'\"]{8,})"
_PEM = r"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----)(?:(?!-----)[\s\S]){1,20000}"
_WITHIN_URL = r"(?i)^[^:/]+://[^:@/]*:(.*)@|[?&](?:ssl)?password=([^&]+)|(?:^|\s)(?:ssl)?password\s*=\s*([^&\s]+)"
_BEARER = r"(?i)\b(bearer)\s+[A-Za-z0-9._~+/=-]{16,}"  # shorter ones are words of prose
# Tokens with a known beginning.
_KNOWN = (
    r"(?<![\w-])(?:eyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]{5,}|gh[opsru]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|xox[abeprs]-[\w-]{10,}|[rs]k_(?:live|test)_[A-Za-z0-9]{10,}|sk-(?=[\w-]{0,200}\d)[\w-]{20,}|A(?:KI|SI)A[A-Z0-9]{16}"
    r"|AIza[\w-]{30,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{20,}|hf_[A-Za-z0-9]{30,}|hf[jk]_[\w-]{20,}|SG\.[\w-]{16,}\.[\w-]{16,}"
    r"|dop_v1_[a-f0-9]{32,}|whsec_[A-Za-z0-9+/=]{16,}|ya29\.[\w-]{16,})|(?<=hooks\.slack\.com/services/)\S{8,}"
)
_WRITTEN_OUT = r"\\(?:[nrtfvab]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})(?=[\w-])"
# Values that reveal nothing: a placeholder, true or false.
_PLAIN = r"(?i)(?:true|false|none|null|bearer|basic|\$\d{1,3}|%(?:\(\w{1,40}\))?s|\{\w{0,40}\}|\?)['\",;)\]}]*"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def is_secret_name(name: str) -> bool:
    """Is this the name of a secret? `api_key`, `dbPassword` and `X-Auth-Token` are; `max_tokens` is not."""
    return _compiled(_SECRET_NAME).search(_compiled(_HUMP).sub("_", name).lower()) is not None


def scrub(text: str) -> str:
    """The text without anything that looks like a secret."""
    text = _scrub(text)
    if "\\" in text and _compiled(_WRITTEN_OUT).search(text):
        # What follows an escaped line break (`'a\npassword=…'`, as repr() writes it) is searched apart from it.
        text = _scrub(_compiled(_WRITTEN_OUT).sub("\\g<0>\0", text)).replace("\0", "")
    return text


def _scrub(text: str) -> str:
    if "://" in text:
        text = _compiled(_USER_INFO).sub(rf"\1:{HIDDEN}@", text)
        text = _compiled(_USER_ALONE).sub(rf"\1{HIDDEN}@", text)
    if "-----BEGIN " in text:
        text = _compiled(_PEM).sub(rf"\1{HIDDEN}", text)
    folded = text.casefold()
    named = any(sign in folded for sign in _SIGNS)
    if named and "\\" in text:
        text = _compiled(_ESCAPED).sub(_hide_value, text)
    if named or "gnature" in folded:
        text = _compiled(_HEADER).sub(rf"\1\2{HIDDEN}", text)
    text = _compiled(_QUERY).sub(rf"\1\2{HIDDEN}", text)
    if named:
        for pattern in (_PAIR, _OPTION, _TUPLE, _SAID, _TAG):
            text = _compiled(pattern).sub(_hide_value, text)
    if "bearer" in folded:
        text = _compiled(_BEARER).sub(rf"\1 {HIDDEN}", text)
    return _compiled(_KNOWN).sub(HIDDEN, text)


def _hide_value(pair: re.Match[str]) -> str:
    name, sign, *_, value = pair.groups()
    quoted = "'" in sign or '"' in sign
    if not is_secret_name(name) or _compiled(_PLAIN).fullmatch(value):
        return pair[0]
    if sign.rstrip().endswith(":") and not quoted and len(value) < SHORTEST:
        return pair[0]  # prose: "unexpected token: }"
    rest = (
        "" if value.lstrip("brf")[:1] in "'\"" else value[len(value.rstrip("'\",;)]}")) :]
    )  # belongs to the surrounding text
    return f"{name}{sign}{HIDDEN}{rest}"


def hiding(args: bytes, names: Iterable[str], url: str) -> Hide:
    """`scrub` for the texts of one job, which also knows its secret arguments and the database's password."""
    try:
        given = msgspec.json.decode(args)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # not written by us
        given = None
    passwords = [part for found in _compiled(_WITHIN_URL).findall(url) for part in found if part]
    return scrubber([*passwords, *secret_values(given, names)])


class Hiding:
    """`hiding`, computed when first needed. It must not refer to the attempt, which refers to it."""

    __slots__ = ("_given", "_hide")
    _hide: Hide

    def __init__(self, args: bytes, names: Collection[str], url: str) -> None:
        self._given = (args, names, url)

    def __call__(self, text: str) -> str:
        if not hasattr(self, "_hide"):
            self._hide = hiding(*self._given)
        return self._hide(text)


def scrubber(values: Iterable[str]) -> Hide:
    """`scrub` that also knows these values, and their forms in URLs, in JSON and in repr()."""
    written = {form for value in values if len(value) >= SHORTEST for form in _forms(value)}
    if not written:
        return scrub
    known = re.compile("|".join(re.escape(form) for form in sorted(written, key=len, reverse=True)))
    return lambda text: scrub(known.sub(HIDDEN, text))


def _forms(value: str) -> Iterator[str]:
    import json
    from urllib.parse import quote, unquote

    yield value
    # Tracebacks of exception groups have a prefix on every line.
    lines = value.splitlines()
    yield from (line for line in lines if len(lines) > 1 and len(line) >= SHORTEST)
    yield from _as_bytes(value)
    yield quote(value, safe="")
    yield unquote(value)
    yield repr(value)[1:-1]
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]


def _as_bytes(value: str) -> Iterator[str]:
    """The other forms of a value that is base64, in which bytes are stored."""
    import binascii

    try:
        data = binascii.a2b_base64(value, strict_mode=True)
    except ValueError:
        return
    if len(data) < SHORTEST:
        return
    yield repr(data)[2:-1]
    yield data.hex()
    if (text := data.decode(errors="ignore")).encode() == data:
        yield text


def secret_values(data: Any, names: Iterable[str] = ()) -> Iterator[str]:
    """The secret texts and numbers in JSON values: those in `names`, and those whose own name says so."""
    if isinstance(data, dict):
        names = _marked(data, names)
        for name, value in data.items():
            if name == MARKS:
                continue
            secret = name in names or is_secret_name(str(name))
            yield from _leaves(value) if secret else secret_values(value)
    elif isinstance(data, list):
        for value in data:
            yield from secret_values(value)


def _marked(data: dict[Any, Any], names: Iterable[str]) -> set[Any]:
    marks = data.get(MARKS)
    return {*names, *(mark for mark in marks if isinstance(mark, str))} if isinstance(marks, list) else {*names}


def _leaves(data: Any) -> Iterator[str]:
    if isinstance(data, dict | list):
        for value in data.values() if isinstance(data, dict) else data:
            yield from _leaves(value)
    elif isinstance(data, str | int | float) and not isinstance(data, bool):
        yield str(data)


def hide_secrets(data: Any, names: Iterable[str] = (), hide: Hide = scrub) -> Any:
    """JSON values as they may be shown: without those in `names`, those whose own name says that they are secret, at
    any depth, and secrets within texts."""
    if isinstance(data, dict):
        names = _marked(data, names)
        return {
            name: HIDDEN
            if value is not None and (name in names or is_secret_name(str(name)))
            else hide_secrets(value, hide=hide)
            for name, value in data.items()
            if name != MARKS
        }
    if isinstance(data, list | tuple):
        return [hide_secrets(value, hide=hide) for value in data]
    return hide(data) if isinstance(data, str) else data
