"""What credentials and personal data look like.

Every pattern takes time that grows with the length of the text, whatever the text: it begins with a fixed word or
behind a fixed neighbour, and from there it is bounded, or runs to a character it cannot pass and never gives back. No
repetition is nested in another that could share its characters out in two ways.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

Match = re.Match[str]

SHORT = 100  # characters: a longer value is no placeholder, expression or word of prose; one that is refused is skipped


class Pattern(NamedTuple):
    """What to mask: of each match its last named group, or all of it, where ``accept`` agrees.

    A text is searched only if it holds one of ``words`` in whatever case, or if there are none. ``folded`` patterns
    search, and ``accept`` sees, the text in lower case.
    """

    kind: str
    regex: re.Pattern[str]
    words: tuple[str, ...] = ()
    accept: Callable[[Match], bool] = lambda match: True
    folded: bool = False


def _token(kind: str, regex: str, *words: str) -> Pattern:
    """Describe a credential that begins with a prefix of its own."""
    return Pattern(kind, re.compile(r"(?<![A-Za-z0-9])(?:" + regex + ")", re.ASCII), words)


_KEYS = "api|access|account|auth|private|signing|encryption|master|secret|shared|subscription"
_KEYS_BEFORE = "|".join(f"(?<={lead}{gap}key)" for lead in _KEYS.split("|") for gap in ("", "[ _-]"))
# The end of a key whose value is a credential. Behind ``::``, ``*:`` or a digit and a colon it is a resource's name.
_NAMED = re.compile(
    rf"""(?<!::)(?<![0-9*]:)(?:pass(?:word|wd|phrase)|pwd|authorization|secret|(?:{_KEYS})[ _-]?key
    |(?:(?P<lead>access|refresh|auth|api|bearer|secret|session|bot|id|page|next|continuation|sync)[ _-]?)?token)$""",
    re.VERBOSE | re.IGNORECASE,
)
_ASSIGNED = re.compile(
    rf"""(?P<word>pass(?:word|wd|phrase)|pwd|secret|token|key(?:{_KEYS_BEFORE}))"""
    r"""(?:(?P<quoted>\\{0,3}["'])? {0,4}(?:=>|:=|[:=])(?P<space>\s{0,4})| is(?P<is> ))"""
    r"""(?:"(?P<double>(?:[^"\\\n]|\\.)++)(?="|\Z)|'(?P<single>(?:[^'\\\n]|\\.)++)(?='|\Z)"""
    r"""|\\{1,3}["'](?P<escaped>(?:[^"'\\\n]|\\(?!\\{0,2}["']))++)(?=\\{1,3}["']|\Z)"""
    r"""|(?P<bare>[^\s"'`&,;<>(){}\[\]|\\]++))"""
)
_PLACEHOLDER = re.compile(
    r"[*.x]+|<[^>]*>|\$\{?\w+\}?|%\(\w*\)s|%s|\{+[\w. ]*\}+|none|null|true|false|undefined", re.IGNORECASE
)
_END = r"(?![\w.~+/=-])"
_PEM = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_GAP = r"(?:[\s\"']|\\+[nr])*+"
_BODY = r"[A-Za-z0-9+/=\s\\:,.\"']*+"


def is_secret(key: str, value: str) -> bool:
    """Tell whether what stands under a key is a credential by the key's name, and no placeholder or page's token."""
    named = _NAMED.search(key)
    if named is None or not value or _PLACEHOLDER.fullmatch(value):
        return False
    name, digits = named[0].lower(), any(map(str.isdigit, value))
    if name.startswith(("pass", "pwd", "auth")):
        return value.lower() != name
    if name.endswith("token"):
        if named["lead"] is None:
            return (digits and len(value) >= 16) or len(value) > SHORT
        if named["lead"].lower() in ("page", "next", "continuation", "sync"):
            return False
    letters = re.sub("[^a-z]", "", value.lower())
    placeholder = not digits and len(value) <= SHORT and re.sub("[^a-z]", "", name) in letters
    return not placeholder  # such as your-api-key-here


def _is_assigned(match: Match) -> bool:
    """Tell an assigned credential from an expression in source code and from prose, too."""
    text, value, word, bare = match.string, match[match.lastgroup or 0], match["word"], match["bare"]
    apart = bool(match["space"] or match["is"])
    if bare and len(value) <= SHORT:
        after = text[match.end() : match.end() + 1]
        digits = any(map(str.isdigit, value))
        if apart and not (len(value) >= 6 and (digits or any(map("@#$^~".__contains__, value)))):
            return False
        if not digits and (len(value) < 3 or after in (")", ",")) and not apart:
            return False
        if after in ("(", "[", "{") or (word == "pwd" and value[0] in "/~."):
            return False
        if (apart or not digits) and re.fullmatch(r"[a-z_]\w*(?:\.[a-z_]\w*)+", value):
            return False
    elif apart and not match["quoted"] and value[0] in "),":
        return False  # the quote was the end of a prompt, as in ask("Password: ")
    return is_secret(text[max(0, match.start() - 24) : match.end("word")], value)


def _luhn(match: Match) -> bool:
    digits = [int(character) for character in match[0] if character.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return (sum(digits[::-2]) + sum(doubled)) % 10 == 0


CREDENTIALS = (
    Pattern(
        "private-key",
        re.compile(
            rf"-----BEGIN {_PEM}{_GAP}(?=[A-Za-z0-9+/=]{{16}}|[A-Za-z-]{{4,20}}:)"
            rf"(?:{_BODY}(?:-{{1,4}}(?!-){_BODY}){{0,16}}+-----END {_PEM}"
            rf"|(?:[A-Za-z0-9+/=]{{40,}}+{_GAP})++[A-Za-z0-9+/=]*+)"
        ),
        ("private key",),
    ),
    _token("aws", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])", "akia", "asia", "abia", "acca"),
    _token("github", r"gh[pousr]_[A-Za-z0-9]{36,}+|github_pat_\w{22,}+", "gh", "github_pat_"),
    _token("gitlab", r"glpat-[\w-]{20,}+", "glpat-"),
    _token("slack", r"xox[a-z]-[A-Za-z0-9-]{10,}+|xapp-\d-[A-Za-z0-9-]{10,}+", "xox", "xapp-"),
    _token(
        "stripe", r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}+|whsec_[A-Za-z0-9+/=]{24,}+", "k_live_", "k_test_", "whsec_"
    ),
    _token("anthropic", r"sk-ant-[\w-]{16,}+", "sk-ant-"),
    _token("openai", r"sk-(?:(?:proj|svcacct|admin|or-v1)-[\w-]{20,}+|[A-Za-z0-9]{20,}+[\w-]*+)", "sk-"),
    _token("google", r"AIza[\w-]{35}(?![\w-])", "aiza"),
    _token("pypi", r"pypi-AgE[\w-]{32,}+", "pypi-age"),
    _token("npm", r"npm_[A-Za-z0-9]{36,}+", "npm_"),
    _token("sendgrid", r"SG\.[\w-]{16,32}\.[\w-]{16,64}", "sg."),
    _token("jwt", r"(?<![_-])eyJ[\w-]{8,}+\.[\w-]*+\.[\w-]{4,}+(?:\.[\w-]*+){0,2}", "eyj"),
    Pattern(
        "authorization",
        re.compile(
            r"""(?i:authorization)(?:\\{0,3}["'])?\s{0,4}[:=]\s{0,4}(?:\\{0,3}["'])?(?i:bearer|basic|token|apikey)\s{1,4}"""
            rf"(?P<secret>(?![a-z]++{_END})[\w.~+/=-]{{4,}}+)"
        ),
        ("authorization",),
    ),
    Pattern(
        "bearer", re.compile(r"\b(?i:bearer)\s{1,4}(?P<secret>(?=[A-Za-z.~+/=_-]*+\d)[\w.~+/=-]{20,}+)"), ("bearer",)
    ),
    Pattern(
        "url-password",
        re.compile(
            r"""(?<=://)[^\s:/?#@"'<>]{0,256}:(?P<secret>(?!(?:\$\{?\w{1,64}\}?|\{[^{}@]{0,64}\}|\*{1,64}|%s)@)"""
            r"""[^\s/?#"'<>]{1,512})@"""
        ),
        ("://",),
    ),
    Pattern("assigned", _ASSIGNED, ("pass", "pwd", "secret", "key", "token"), _is_assigned, folded=True),
)
PERSONAL_DATA = (
    Pattern(
        "email",
        re.compile(r"(?<![\w.%+-])[\w.%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w@])"),
        ("@",),
    ),
    Pattern(
        "card",
        re.compile(
            r"(?<![\w.-])(?:[2-6][0-9]{3}([ -])[0-9]{4}\1[0-9]{4}\1[0-9]{4}"
            r"|3[47][0-9]{2}([ -])[0-9]{6}\2[0-9]{5}|[2-6][0-9]{12,18})(?![\w-])"
        ),
        tuple("23456"),
        _luhn,
    ),
    Pattern(
        "phone",
        re.compile(
            r"(?<![\w.+-])(?:\+[1-9][0-9]{0,2}[ .-]?(?:\([0-9]{1,4}\)[ .-]?)?[0-9]{2,5}(?:[ .-]?[0-9]{2,4}){2,4}"
            r"|\([0-9]{3}\) ?[0-9]{3}[.-][0-9]{4}|[0-9]{3}[.-][0-9]{3}[.-][0-9]{4})(?![\w-])"
        ),
        tuple("0123456789"),
    ),
)
