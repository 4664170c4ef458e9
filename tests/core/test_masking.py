"""Credentials are masked wherever they stand, everything else comes through unchanged, and a mask tells nothing."""

import base64
import random
import uuid
from collections import namedtuple
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from hashlib import sha256
from string import ascii_letters, digits
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from adk_django.core.codec import EncodeError
from adk_django.core.masking.redactor import Redactor, contains_mask
from adk_django.core.messages import BinaryPart, Message, TextPart, ToolCall

REDACTOR = Redactor()


def made(length, alphabet=ascii_letters + digits):
    """Return so many letters and digits that look random and begin with a digit."""
    return "7" + "".join(random.Random(length).choices(alphabet, k=length - 1))  # noqa: S311


ALNUM = made(48)
PEM = "-----BEGIN {0}-----\n{1}\n{1}\n-----END {0}-----"
JWT = f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI3In0.{made(43)}"
NAMED_BARE = ["password={}", "PASSWORD={}\n", "DB_PASSWORD={}", "?access_token={}&a=b", "Server=x;Pwd={};", "apiKey={}"]
NAMED_QUOTED = [
    '{{"api_key": "{}"}}',
    '"api_key":"{}"',
    "client_secret = '{}'",
    'passphrase: "{}"',
    "{{'auth-token': '{}'}}",
]
NAMED_SPACED = ["password: {}", "my password is {}, keep it", "API key: {}", "x-api-key: {}", "Secret = {}"]
NAMED_ESCAPED = ['"{{\\"password\\": \\"{}\\", \\"user\\": \\"ada\\"}}"', '\\\\\\"password\\\\\\": \\\\\\"{}\\\\\\"']
# kind, the secret, and texts with a place for it
SECRETS = [
    ("aws", "AKIA" + "Z2" * 8, ["{}", "use {}.", "id={}&x=1", "{{'id': '{}'}}", "https://x.example/{}/a"]),
    ("aws", "ASIA" + "Z2" * 8, ["key {}"]),
    *(("github", prefix + made(36), ["{}", "https://{}@github.com/a/b"]) for prefix in ("ghp_", "gho_", "ghs_")),
    ("github", "github_pat_" + made(22) + "_" + made(59), ["export GH={}"]),
    ("gitlab", "glpat-" + made(20), ["{}", "PRIVATE-TOKEN: {}"]),
    *(("slack", f"xox{letter}-" + "-".join([made(12, digits), made(24)]), ["{}", "<{}>"]) for letter in "abprs"),
    *(("stripe", prefix + made(24), ["{}", "-u {}:"]) for prefix in ("sk_live_", "rk_live_", "sk_test_")),
    ("anthropic", "sk-ant-api03-" + made(40) + "-_" + made(20), ["{}", "'{}'"]),
    ("openai", "sk-" + ALNUM, ["{}", "key is {}, ok?"]),
    ("openai", "sk-proj-" + made(30) + "_-" + made(30), ["({})"]),
    ("google", "AIza" + made(35), ["{}", "?key={}&q=1"]),
    ("pypi", "pypi-AgEIcHlwaS5vcmc" + made(60), ["{}"]),
    ("npm", "npm_" + made(36), ["//registry.example/:_authToken={}"]),
    ("sendgrid", f"SG.{made(22)}.{made(43)}", ["{}"]),
    ("jwt", JWT, ["{}", "session {};", "a\n{}\nb"]),
    *(
        ("private-key", PEM.format(label, made(64)), ["{}", "before\n{}\nafter"])
        for label in ("PRIVATE KEY", "RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK")
    ),
    ("private-key", PEM.format("EC PRIVATE KEY", made(64)).replace("\n", "\\n"), ['"{}"']),
    ("private-key", PEM.format("RSA PRIVATE KEY", f"Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-1,77\n\n{made(64)}"), ["{}"]),
    ("private-key", f"-----BEGIN PRIVATE KEY-----\n{made(64)}\n{made(64)}", ["{}", "cut: {}"]),
    ("authorization", "dXNlcjpwYXNz", ["Authorization: Basic {}", "authorization:basic {}"]),
    ("authorization", "abc_def+/9==", ["curl -H 'AUTHORIZATION: BEARER {}'"]),
    ("authorization", "abc.def-9", ['{{"Authorization": "Bearer {}"}}', '{{\\"authorization\\": \\"Bearer {}\\"}}']),
    ("bearer", made(24), ["send Bearer {} with it", "bearer {}"]),
    *(
        ("url-password", secret, ["postgres://app:{}@db.example:5432/app", "(redis://:{}@h/0)", "see https://a.b:{}@c.example?x=y"])
        for secret in ("hunter2", "p@ss:word!", "x" * 200, "%24ecret")
    ),
    *(
        ("assigned", secret, NAMED_BARE)
        for secret in ("hunter2", "correcthorse", "a:b=c==", "q" * 5000)
    ),
    *(
        ("assigned", secret, NAMED_QUOTED)
        for secret in ("hunter2", "two words, and more", "pa\\\"ss", "q" * 5000)
    ),
    ("assigned", "hunter2", NAMED_SPACED),
    ("assigned", "hunter2 & more", NAMED_ESCAPED),
    ("assigned", "cut in two", ['{{"password": "{}', "'secret': '{}"]),
    ("assigned", made(20), ["token={}", '"token": "{}"']),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "secret", "around"),
    [(kind, secret, around) for kind, secret, texts in SECRETS for around in texts],
    ids=lambda value: value[:20],
)
def test_a_credential_is_masked_and_nothing_around_it(kind, secret, around):
    masked = REDACTOR.redact_text(around.format(secret))
    before, mask, after = masked.partition("[[adk:masked:")
    mask += after[: after.index("]]") + 2]
    assert masked == around.format(mask)
    assert mask.startswith(f"[[adk:masked:{kind}:")
    assert contains_mask(masked)
    assert REDACTOR.redact_text(masked) == masked


UNCHANGED = [
    *("", "plain prose", "1.1", "booking-7", "run_1", "call_abc123DEF456ghi789", "toolu_01A09q90qw90lq917835lq9"),
    *(str(uuid.UUID(int=7**40)), sha256(b"x").hexdigest(), f"sha256:{sha256(b'y').hexdigest()}", "req-" + "ab12" * 6),
    f"data:image/png;base64,{base64.b64encode(random.Random(1).randbytes(200_000)).decode()}",  # noqa: S311
    base64.urlsafe_b64encode(random.Random(2).randbytes(50_000)).decode(),  # noqa: S311
    *(
        "https://example.org:8080/a?b=c@d",
        "https://a.example/@user:pw",
        "ssh://git@github.com:22/a",
        "http://[::1]:80/",
    ),
    *("postgres://app:${DB_PASSWORD}@db/app", "https://u:{password}@h/", "redis://:***@h/0"),
    "The password must be changed. Password: required. A token is a word; the secret is out, the key is here.",
    "Basic understanding of bearer bonds. Authorization: Basic authentication is used here.",
    *(
        "Bearer of internationalization",
        "skeleton-key sk-fading-circle-of-the-spinner-element",
        "task-sk-1",
        "pypi-publish",
    ),
    *(
        "max_tokens=100",
        '{"total_tokens": 123, "token": "the"}',
        "next_page_token=CAUQAA1234567890abcdef",
        "monkey=banana7",
    ),
    *(
        '{"nextPageToken": "CAUQAA1234567890abcdef"}',
        "token_type=bearer",
        "password_reset_url=/a/b7",
        "tokens: 12345678",
    ),
    *("password=", 'password=""', "password=None", 'password="***"', "api_key=<your key>", "api_key=${API_KEY}"),
    *("password=%s", "password={password}", "token=YOUR_TOKEN", 'api_key="your-api-key"', "PWD=/home/app7"),
    "arn:aws:secretsmanager:eu-west-1:123456789012:secret:prod/db7",
    'getpass("Password: ") or input("Secret: ")\n',
    "-----BEGIN PUBLIC KEY-----\n" + made(64) + "\n-----END PUBLIC KEY-----",
    'START = b"-----BEGIN OPENSSH PRIVATE KEY-----"\nEND = b"-----END OPENSSH PRIVATE KEY-----"\n',
    "[[adk:masked:aws:00000000]]",
]
SOURCE = '''
def login(self, password: str, token: str | None = None, *, secret=None) -> Session:
    """Log in. The password is hashed; see https://docs.example.org/auth#token."""
    self.password = password
    user = authenticate(username=username, password=password)
    connect(password=read_value("a1"), access_key=pick[7], passphrase=ask2(7))
    connect(password=settings.DB_PASSWORD, token=request.headers["X-Token"], secret=get_secret("a1"))
    api_key = os.environ["API_KEY"]
    private_key: ed25519.Ed25519PrivateKey = load(path)
    fields = {"password": forms.CharField(), "token": token, "key": "value7"}
'''


@pytest.mark.parametrize("text", [*UNCHANGED, *SOURCE.splitlines(), SOURCE], ids=lambda text: text[:30])
def test_what_is_no_credential_comes_through_unchanged(text):
    assert REDACTOR.redact_text(text) == text
    assert not contains_mask(text)
    value = {"text": [text]}
    assert REDACTOR.redact(value) is value


class Colour(Enum):
    RED = "sk-" + ALNUM


@dataclass(frozen=True)
class Login:
    user: str
    password: str = field(repr=False)


class Account(BaseModel, extra="allow"):
    login: Login
    note: str = ""


Point = namedtuple("Point", "x y")
TOKEN = "sk-" + ALNUM
MASK = REDACTOR.redact_text(TOKEN)
ASSIGNED = REDACTOR.redact_text("password=hunter2").removeprefix("password=")


def test_every_text_in_a_value_is_masked_and_its_types_stay():
    value = {
        "list": [TOKEN, ("plain", {TOKEN, "b"}, frozenset({TOKEN})), {TOKEN: 1, ("a", TOKEN): TOKEN, 7: None}],
        "password": "hunter2",
        "keys": {
            "api_key": ["one", 2],
            "Authorization": "Digest x",
            "token": "the",
            "page_token": "x" * 50,
            "secret": "",
        },
        "kept": [TOKEN.encode(), Decimal("1.10"), datetime(2024, 5, 1, tzinfo=UTC), Colour.RED, None, True, 1.5],
    }
    assert REDACTOR.redact(value) == {
        "list": [MASK, ("plain", {MASK, "b"}, frozenset({MASK})), {MASK: 1, ("a", MASK): MASK, 7: None}],
        "password": ASSIGNED,
        "keys": {
            "api_key": [ASSIGNED, 2],
            "Authorization": ASSIGNED,
            "token": "the",
            "page_token": "x" * 50,
            "secret": "",
        },
        "kept": value["kept"],
    }
    masked = REDACTOR.redact(value)
    assert REDACTOR.redact(masked) is masked
    assert contains_mask(masked)


def test_a_secret_that_another_mask_lays_bare_is_masked_at_once():
    redactor = Redactor([r"EMP-\d+"])
    masked = redactor.redact_text("EMP-12AKIA" + "Z2" * 8)
    assert "AKIA" not in masked
    assert redactor.redact_text(masked) == masked


def test_a_pattern_that_looks_at_its_neighbours_comes_to_an_end():
    assert contains_mask(Redactor(["b(?!b)"]).redact_text("b" * 200_000))


def test_an_enum_stays_a_member():
    assert Redactor(["RED"]).redact([Colour.RED, "RED"])[0] is Colour.RED


def test_two_keys_under_one_mask_stay_two():
    other = "sk-" + made(50)
    value = {TOKEN: 1, other: 2, f"{MASK} 2": 3, "a": 4}
    masked = REDACTOR.redact(value)
    assert masked == {MASK: 1, f"{MASK} 3": 2, f"{MASK} 2": 3, "a": 4}
    assert REDACTOR.redact(masked) is masked


def test_dataclasses_and_models_are_masked_within_and_stay_what_they_are():
    account = Account(login=Login("ada", "hunter2"), extra=TOKEN)
    masked = REDACTOR.redact([account])[0]
    assert masked == Account(login=Login("ada", ASSIGNED), extra=MASK)
    assert contains_mask(masked)
    assert account.login == Login("ada", "hunter2")


def test_a_message_is_masked_but_for_its_bytes():
    image = BinaryPart(TOKEN.encode(), "image/png")
    message = Message("user", (TextPart(f"use {TOKEN}"), image, ToolCall("call_1", "login", {"password": "hunter2"})))
    assert message.encoded
    masked = REDACTOR.redact(message)
    assert masked.parts == (TextPart(f"use {MASK}"), image, ToolCall("call_1", "login", {"password": ASSIGNED}))
    assert contains_mask(masked.encoded)
    assert not contains_mask(message.encoded)


@pytest.mark.parametrize("value", [Point(TOKEN, 1), MappingProxyType({"a": TOKEN}), SecretStr(TOKEN), object()])
def test_what_the_codec_refuses_is_left_to_it(value):
    assert REDACTOR.redact(value) is value


@pytest.mark.parametrize("ask", [REDACTOR.redact, contains_mask])
def test_a_value_within_itself_is_refused(ask):
    value = []
    value.append({"a": (value,)})
    with pytest.raises(EncodeError, match="within itself"):
        ask(value)


def test_a_mask_depends_on_its_kind_alone():
    assert REDACTOR.redact_text("sk-" + made(30)) == MASK
    assert REDACTOR.redact_text("password=other2") == f"password={ASSIGNED}"
    assert MASK != ASSIGNED
    assert MASK.isascii()


def test_only_a_real_mask_is_one():
    assert contains_mask({"a": [f"x{MASK}y"]})
    assert contains_mask({MASK: 1})
    for text in (
        MASK[:-3],
        MASK.replace("openai", "aws"),
        "[[adk:masked:openai:00000000]]",
        "[[adk:masked]]",
        "masked",
    ):
        assert not contains_mask({"a": [text], text: 1})


PIECES = [
    "password=", '"', "'", "\\", " ", "\n", ":", "@", "https://u:", "token: ", "Bearer ", TOKEN, JWT, MASK, "x7",
    "AKIA" + "Z2" * 8, "secret is ", "-----BEGIN PRIVATE KEY-----", made(64),
    "[[adk:masked:", "]]", "api_key=", "é",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=3)).map("".join))
def test_masking_again_changes_nothing(text):
    redactor = Redactor([r"\w+7", "^a", "masked"], personal_data=True)
    masked = redactor.redact_text(text)
    assert redactor.redact_text(masked) == masked
    assert TOKEN not in masked


HOSTILE = [
    *(
        "password=",
        'password="',
        "password='\\",
        'password=\\"',
        "token=",
        "token:token:",
        "key=",
        "api_key:::",
        "secret is ",
    ),
    *(
        "eyJ",
        "eyJ-",
        "-eyJaaaaaaaa",
        "eyJaaaaaaaa.",
        "sk-",
        "sk-ant-",
        "glpat-",
        "SG.aaaaaaaaaaaaaaaaaaaa.",
        "AKIAZ",
        "1:token=",
    ),
    *(
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\naaaaaaaaaaaaaaaa-",
        "-----BEGIN ",
        "Proc-Type: ",
        "-",
    ),
    *(
        "authorization: ",
        "authorization",
        "Bearer ",
        "bearer a",
        "://",
        "://a:",
        "://a:b",
        "https://u:p@",
        "@",
        "a@a.",
        "a@",
    ),
    *(
        "[[adk:masked:",
        MASK,
        "[[",
        "1",
        "4 ",
        "+1 ",
        "a.",
        " ",
        "\n",
        "\\",
        '"',
        "{{",
        "${",
        "<",
        "é",
        "\ud83d",
        "AIza",
        "xoxb-",
    ),
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_takes_time_that_grows_with_its_length(piece):
    # A pattern that takes quadratic time needs minutes for one of these, one that takes exponential time never ends.
    text = piece * (500_000 // len(piece))
    assert TOKEN not in Redactor(personal_data=True).redact_text(f"{text} {TOKEN}")


PERSONAL = [
    "ada.b+c@mail.example.org",
    "+49 170 1234567",
    "(555) 123-4567",
    "555-123-4567",
    "4111 1111 1111 1111",
    "4111-1111-1111-1111",
    "3782 822463 10005",
    "5500000000000004",
]


@pytest.mark.parametrize("text", PERSONAL)
def test_personal_data_is_masked_where_asked_to(text):
    assert REDACTOR.redact_text(f"reach {text}, ok") == f"reach {text}, ok"
    for after in (", ok", " ok", ".", "\n"):
        masked = Redactor(personal_data=True).redact_text(f"reach {text}{after}")
        assert masked.startswith("reach [[adk:masked:")
        assert masked.endswith(f"]]{after}")


def test_a_card_number_is_found_before_its_date_and_code():
    masked = Redactor(personal_data=True).redact_text("4111 1111 1111 1111 12/27 123")
    assert masked.startswith("[[adk:masked:card:")
    assert masked.endswith("]] 12/27 123")


@pytest.mark.parametrize(
    "text",
    [
        *(text for text in UNCHANGED if "git@" not in text),
        SOURCE,
        "2024-05-01T10:00:00+02:00",
        "4111111111111112",
        "1714555555555",
        "+0200",
        "v1.2.3",
    ],
)
def test_ids_and_instants_are_no_personal_data(text):
    assert Redactor(personal_data=True).redact_text(text) == text


def test_patterns_of_the_user_s_own_are_checked_when_given_and_mask_all_they_match():
    redactor = Redactor([r"EMP-(?P<number>\d+)", "^mask"])
    assert redactor.redact_text("mask EMP-12 mask") == redactor.redact_text(redactor.redact_text("mask EMP-12 mask"))
    masked = Redactor([r"EMP-(?P<number>\d+)"]).redact({"id": "EMP-12", "n": 12})
    assert masked["id"].startswith("[[adk:masked:custom:")
    assert masked["n"] == 12
    assert contains_mask(masked)
    with pytest.raises(ValueError, match=r"'\(EMP'.*no regular expression"):
        Redactor(["EMP", "(EMP"])
    with pytest.raises(ValueError, match=r"'x\*'.*empty"):
        Redactor(["x*"])
