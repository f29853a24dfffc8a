"""Filter expressions in a dialect of SQL92, compiled to a predicate.

    expression ::= term { OR term }            term ::= factor { AND factor }
    factor     ::= NOT factor | ( expression ) | operand [ test ]
    test       ::= ( = | <> | < | <= | > | >= ) operand
                 | [NOT] BETWEEN number AND number | [NOT] IN ( literal { , literal } )
                 | [NOT] ( CONTAINS | STARTSWITH | ENDSWITH ) string | IS [NOT] NULL
    operand    ::= name | 'string' | number | TRUE | FALSE
    name       ::= letters, digits, _ and $, not a keyword; any other in "double quotes"

Keywords in any case; a quote inside quotes is doubled. Rules of meaning:

1. Three values: an attribute that is missing is NULL, a comparison with NULL is unknown, and so is
   one of values that do not compare (a word with a number, a word by < or >). NOT unknown is
   unknown. A message is taken only if the whole is true.
2. Some writers' attributes are strings, all of them: one compared with a number or TRUE counts as
   what it spells.
3. Mistakes that show in the expression itself (`a < 'x'`, BETWEEN 5 AND 1) are refused.

Pure; the only error is KernelError INVALID_ARGUMENT with the position of the mistake.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import eq, ge, gt, le, lt, ne
from typing import NamedTuple, NoReturn

from ..common.errors import Code, KernelError

EXPRESSION_CHARACTERS_MAX = 4_096
"""Longer than any filter somebody writes; bounds the work per message."""

DEPTH_MAX = 64
"""Nested parentheses and NOTs."""

NUMBER_CHARACTERS_MAX = 40
"""Digits of a number that can be told apart: beyond it an attribute is a word."""

Lookup = Callable[[str], object]
"""Attribute by name; None if it is missing."""
Predicate = Callable[[Lookup], bool | None]
Operand = Callable[[Lookup], object]

_KEYWORDS = frozenset(
    "AND OR NOT BETWEEN IN IS NULL TRUE FALSE CONTAINS STARTSWITH ENDSWITH".split()  # noqa: SIM905
)
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_$.]))
      | (?P<word>[A-Za-z_$][A-Za-z0-9_$]*)
      | (?P<string>'(?:[^']|'')*')
      | (?P<quoted>"(?:[^"]|"")+")
      | (?P<sign><>|<=|>=|[=<>(),+-])
    )""",
    re.VERBOSE,
)
_SPELLED_NUMBER = re.compile(r"\s*[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?\s*")
_EQUALITIES: dict[str, Callable[[object, object], bool]] = {"=": eq, "<>": ne}
_ORDERS: dict[str, Callable[[float, float], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
_SEARCHES: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": lambda text, part: part in text,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


class _Token(NamedTuple):
    kind: str
    """number, word, keyword, string, quoted, sign or end."""
    text: str
    at: int


class _Literal(NamedTuple):
    value: str | int | float | bool


def compile_sql(text: str) -> Predicate:
    """The predicate of an expression. Raises KernelError INVALID_ARGUMENT."""
    if len(text) > EXPRESSION_CHARACTERS_MAX:
        _refuse(f"an expression has at most {EXPRESSION_CHARACTERS_MAX} characters")
    return _Parser(_tokens(text)).parse()


def _refuse(why: str, at: int | None = None) -> NoReturn:
    where = "" if at is None else f" at character {at + 1}"
    raise KernelError(Code.INVALID_ARGUMENT, f"SQL filter{where}: {why}")


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    end = len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            _refuse(f"{_shown(text[at])} is not understood here", at)
        kind = found.lastgroup or ""
        word, start = found.group(kind), found.start(kind)
        if kind == "word" and word.upper() in _KEYWORDS:
            kind, word = "keyword", word.upper()
        tokens.append(_Token(kind, word, start))
        at = found.end()
    tokens.append(_Token("end", "", end))
    return tokens


def _shown(text: str) -> str:
    return ascii(text)


class _Parser:
    """Recursive descent; depth is bounded by DEPTH_MAX."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def parse(self) -> Predicate:
        found = self._expression()
        if self._next.kind != "end":
            self._unexpected("the end, AND or OR")
        return found

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, *texts: str) -> str | None:
        """Take the next token if it is one of these keywords or signs."""
        token = self._next
        if token.kind in {"keyword", "sign"} and token.text in texts:
            self._at += 1
            return token.text
        return None

    def _need(self, text: str) -> None:
        if self._take(text) is None:
            self._unexpected(text)

    def _unexpected(self, wanted: str) -> NoReturn:
        token = self._next
        found = "the end" if token.kind == "end" else _shown(token.text)
        _refuse(f"{wanted} expected, not {found}", token.at)

    def _expression(self) -> Predicate:
        terms = [self._term()]
        while self._take("OR"):
            terms.append(self._term())
        return terms[0] if len(terms) == 1 else lambda look: _any(terms, look)

    def _term(self) -> Predicate:
        factors = [self._factor()]
        while self._take("AND"):
            factors.append(self._factor())
        return factors[0] if len(factors) == 1 else lambda look: _all(factors, look)

    def _factor(self) -> Predicate:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            _refuse(f"nested deeper than {DEPTH_MAX}", self._next.at)
        try:
            if self._take("NOT"):
                return _negated(self._factor())
            if self._take("("):
                inner = self._expression()
                self._need(")")
                return inner
            return self._test()
        finally:
            self._depth -= 1

    def _test(self) -> Predicate:
        start = self._next.at
        left = self._operand()
        operator = self._take(*_EQUALITIES, *_ORDERS)
        if operator is not None:
            return self._comparison(left, operator)
        if self._take("IS"):
            is_not = self._take("NOT") is not None
            self._need("NULL")
            value = _operand(left)
            return lambda look: (value(look) is None) != is_not
        is_not = self._take("NOT") is not None
        test: Predicate
        if self._take("BETWEEN"):
            test = self._between(left)
        elif self._take("IN"):
            test = self._in(left)
        elif (search := self._take(*_SEARCHES)) is not None:
            test = self._search(left, _SEARCHES[search])
        elif is_not:
            self._unexpected("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")
        else:
            if isinstance(left, _Literal) and not isinstance(left.value, bool):
                _refuse("a condition expected, not a value by itself", start)
            value = _operand(left)
            return lambda look: _as_bool(value(look))
        return _negated(test) if is_not else test

    def _operand(self) -> str | _Literal:
        """A literal, or the name of an attribute."""
        token = self._next
        if token.kind == "word":
            self._at += 1
            return token.text
        if token.kind == "quoted":
            self._at += 1
            return token.text[1:-1].replace('""', '"')
        return _Literal(self._literal())

    def _literal(self) -> str | int | float | bool:
        token = self._next
        if token.kind == "string":
            self._at += 1
            return token.text[1:-1].replace("''", "'")
        if self._take("TRUE"):
            return True
        if self._take("FALSE"):
            return False
        return self._number()

    def _number(self) -> int | float:
        sign = -1 if self._take("+", "-") == "-" else 1
        token = self._next
        if token.kind != "number":
            self._unexpected("a name or a value")
        if len(token.text) > NUMBER_CHARACTERS_MAX:
            _refuse(f"a number has at most {NUMBER_CHARACTERS_MAX} characters", token.at)
        self._at += 1
        return sign * _number(token.text)

    def _comparison(self, left: str | _Literal, operator: str) -> Predicate:
        at = self._next.at
        right = self._operand()
        first, second = _operand(left), _operand(right)
        equal = _EQUALITIES.get(operator)
        if equal is not None:

            def same(look: Lookup) -> bool | None:
                pair = _alike(first(look), second(look))
                return None if pair is None else equal(*pair)

            return same
        for side in (left, right):
            if isinstance(side, _Literal) and isinstance(side.value, str | bool):
                _refuse(f"{operator} compares numbers", at)
        order = _ORDERS[operator]

        def ordered(look: Lookup) -> bool | None:
            pair = _numbers(first(look), second(look))
            return None if pair is None else order(*pair)

        return ordered

    def _between(self, left: str | _Literal) -> Predicate:
        at = self._next.at
        low = self._number()
        self._need("AND")
        high = self._number()
        if low > high:
            _refuse("BETWEEN needs the smaller number first", at)
        value = _operand(left)

        def test(look: Lookup) -> bool | None:
            number = _as_number(value(look))
            return None if number is None else low <= number <= high

        return test

    def _in(self, left: str | _Literal) -> Predicate:
        self._need("(")
        members = [self._literal()]
        while self._take(","):
            members.append(self._literal())
        self._need(")")
        value = _operand(left)

        def test(look: Lookup) -> bool | None:
            found = value(look)
            pairs = [_alike(found, member) for member in members]
            if any(pair is not None and pair[0] == pair[1] for pair in pairs):
                return True
            return None if all(pair is None for pair in pairs) else False

        return test

    def _search(self, left: str | _Literal, search: Callable[[str, str], bool]) -> Predicate:
        token = self._next
        if token.kind != "string":
            self._unexpected("a string")
        part = self._literal()
        value = _operand(left)

        def test(look: Lookup) -> bool | None:
            text = value(look)
            return search(text, str(part)) if isinstance(text, str) else None

        return test


def _operand(operand: str | _Literal) -> Operand:
    if isinstance(operand, _Literal):
        value = operand.value
        return lambda _: value
    return lambda look: _plain(look(operand))


def _plain(value: object) -> object:
    """An attribute's value; NULL for a kind that nothing compares with."""
    return value if isinstance(value, str | int | float) else None


def _negated(test: Predicate) -> Predicate:
    def negated(look: Lookup) -> bool | None:
        found = test(look)
        return None if found is None else not found

    return negated


def _all(tests: Sequence[Predicate], look: Lookup) -> bool | None:
    found: bool | None = True
    for test in tests:
        each = test(look)
        if each is False:
            return False
        if each is None:
            found = None
    return found


def _any(tests: Sequence[Predicate], look: Lookup) -> bool | None:
    found: bool | None = False
    for test in tests:
        each = test(look)
        if each:
            return True
        if each is None:
            found = None
    return found


def _number(text: str) -> int | float:
    """A number as it is spelled: bounded, so that no conversion takes long or overflows."""
    return int(text) if text.strip().lstrip("+-").isdigit() else float(text)


def _as_number(value: object) -> int | float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    if isinstance(value, str) and len(value) <= NUMBER_CHARACTERS_MAX:
        return _number(value) if _SPELLED_NUMBER.fullmatch(value) else None
    return None


def _as_bool(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.lower())
    return None


def _alike(left: object, right: object) -> tuple[object, object] | None:
    """Two values as ones of one kind; None if they do not compare."""
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        return left, right
    if isinstance(left, bool) or isinstance(right, bool):
        pair: tuple[object, object] = (_as_bool(left), _as_bool(right))
    else:
        return _numbers(left, right)
    return None if pair[0] is None or pair[1] is None else pair


def _numbers(left: object, right: object) -> tuple[int | float, int | float] | None:
    """Two values as numbers; None if they are not."""
    first, second = _as_number(left), _as_number(right)
    return None if first is None or second is None else (first, second)
