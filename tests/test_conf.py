"""The one setting: what is refused names key, value and what fits."""

import pytest

from adk_django.conf import DEFAULT_STORES, Settings, get_settings, load, unknown_keys
from adk_django.exceptions import ConfigurationError

# What the README shows, with values other than the defaults.
FULL = {
    "STORES": {"checkpoints": {"BACKEND": "some.Store", "OPTIONS": {"using": "other"}}},
    "CHECKPOINTS": {
        "boundaries": ["after_model_call"],
        "max_bytes": 10,
        "ttl_seconds": 60.5,
        "save_timeout_seconds": 1,
    },
    "LEASES": {"ttl_seconds": 30, "renew_within_seconds": 10},
    "TOOLS": {
        "time_limit_seconds": 1,
        "grace_seconds": 0,
        "max_concurrent": 1,
        "max_result_bytes": 1,
        "on_unkept_result": "fail_run",
    },
    "RESUME": {
        "max_deaths": 1,
        "batch": 1,
        "max_live": 1,
        "max_live_per_tenant": None,
        "strict": True,
        "backoff_seconds": [1, 2.5],
    },
    "REDACT": {"enabled": False, "personal_data": True, "extra_patterns": ["a+"]},
    "STORE_THREADS": 1,
}


def test_nothing_written_is_every_default():
    settings = load({})
    assert settings == Settings()
    assert {name: path for name, (path, _) in settings.stores.items()} == DEFAULT_STORES
    assert (settings.checkpoints.max_bytes, settings.leases.ttl_seconds, settings.store_threads) == (1_048_576, 60, 8)


def test_every_value_is_kept():
    settings = load(FULL)
    assert settings.stores["checkpoints"] == ("some.Store", {"using": "other"})
    assert settings.stores["leases"] == (DEFAULT_STORES["leases"], {})
    assert settings.checkpoints.boundaries == ("after_model_call",)
    assert (settings.checkpoints.ttl_seconds, settings.tools.grace_seconds) == (60.5, 0)
    assert (settings.resume.backoff_seconds, settings.resume.strict) == ((1, 2.5), True)
    assert (settings.redact.extra_patterns, settings.redact.enabled) == (("a+",), False)
    assert settings.store_threads == 1


@pytest.mark.parametrize(
    ("raw", "unknown"),
    [
        ({"LEASE": {}}, "LEASE"),
        ({"leases": {}}, "leases"),
        ({"LEASES": {"ttl": 60}}, "LEASES.ttl"),
        ({"STORES": {"cache": {"BACKEND": "a.B"}}}, "STORES.cache"),
        ({"STORES": {"leases": {"BACKEND": "a.B", "OPTION": {}}}}, "STORES.leases.OPTION"),
    ],
)
def test_an_unknown_key_is_named_by_its_place(raw, unknown):
    assert unknown_keys(raw) == [unknown]
    with pytest.raises(ConfigurationError, match=f"unknown keys: {unknown}$"):
        load(raw)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ([], "ADK is []: must be a dictionary"),
        ({"LEASES": 60}, "ADK['LEASES'] is 60: must be a dictionary"),
        ({"LEASES": {"ttl_seconds": "60"}}, "ADK['LEASES']['ttl_seconds'] is '60': must be a valid number"),
        ({"LEASES": {"ttl_seconds": True}}, "ADK['LEASES']['ttl_seconds'] is True: must be a valid number"),
        ({"LEASES": {"ttl_seconds": None}}, "ADK['LEASES']['ttl_seconds'] is None: must be a valid number"),
        ({"LEASES": {"ttl_seconds": 10}}, "renew_within_seconds is 20: expected less than ttl_seconds (10)"),
        ({"LEASES": {"ttl_seconds": float("inf")}}, "ADK['LEASES']['ttl_seconds'] is inf: must be a finite number"),
        ({"LEASES": {"ttl_seconds": 86_401}}, "ADK['LEASES']: LeasePolicy.ttl_seconds is 86401"),
        ({"CHECKPOINTS": {"max_bytes": 0}}, "ADK['CHECKPOINTS']['max_bytes'] is 0: must be greater than 0"),
        ({"CHECKPOINTS": {"max_bytes": 1.5}}, "ADK['CHECKPOINTS']['max_bytes'] is 1.5: must be a valid integer"),
        ({"CHECKPOINTS": {"ttl_seconds": -1}}, "ADK['CHECKPOINTS']['ttl_seconds'] is -1: must be greater than 0"),
        ({"CHECKPOINTS": {"boundaries": "after_model_call"}}, "must be a valid list"),
        ({"CHECKPOINTS": {"boundaries": ["after_tool"]}}, "must be 'after_model_call', 'after_tool_result' or 'before"),
        (
            {"TOOLS": {"grace_seconds": -0.1}},
            "ADK['TOOLS']['grace_seconds'] is -0.1: must be greater than or equal to 0",
        ),
        ({"TOOLS": {"on_unkept_result": "stop"}}, "must be 'go_on' or 'fail_run'"),
        ({"TOOLS": {"max_concurrent": 0}}, "ADK['TOOLS']['max_concurrent'] is 0"),
        ({"RESUME": {"max_deaths": 0}}, "ADK['RESUME']['max_deaths'] is 0"),
        ({"RESUME": {"strict": "yes"}}, "ADK['RESUME']['strict'] is 'yes': must be a valid boolean"),
        ({"RESUME": {"backoff_seconds": [5]}}, "ADK['RESUME']['backoff_seconds'] is [5]: "),
        ({"RESUME": {"backoff_seconds": [9, 5]}}, "ADK['RESUME']: backoff_seconds is [9, 5]"),
        ({"REDACT": {"extra_patterns": [1]}}, "ADK['REDACT']['extra_patterns'] is [1]: must be a valid string"),
        ({"STORE_THREADS": 0}, "ADK['STORE_THREADS'] is 0: must be greater than 0"),
        ({"STORES": {"leases": "a.B"}}, "ADK['STORES']['leases'] is 'a.B': must be {'BACKEND': a dotted path"),
        ({"STORES": {"leases": {}}}, "ADK['STORES']['leases'] is {}: must be {'BACKEND': a dotted path"),
        ({"STORES": {"leases": {"BACKEND": "a.B", "OPTIONS": []}}}, "ADK['STORES']['leases']['OPTIONS'] is []"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_what_does(raw, said):
    with pytest.raises(ConfigurationError) as caught:
        load(raw)
    assert said in str(caught.value)


def test_settings_are_read_again_when_they_change(settings):
    assert get_settings().store_threads == 8
    settings.ADK = {"STORE_THREADS": 3}
    assert get_settings().store_threads == 3
    settings.ADK = {}
    assert get_settings().store_threads == 8
