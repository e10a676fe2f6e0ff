"""What is shown of settings and locations: never a secret, always enough to know the place."""

from __future__ import annotations

import pytest

from stateflow.redaction import HIDDEN, Address, redacted, redacted_text

SECRET = "hunter2/with+slash"


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("./images", "./images"),
        ("/mnt/a@b/images", "/mnt/a@b/images"),
        ("s3://bucket/prefix", "s3://bucket/prefix"),
        ("s3://bucket/a@b", "s3://bucket/a@b"),
        ("s3://bucket/prefix?region=eu-1&scheme=http", "s3://bucket/prefix?region=eu-1&scheme=http"),
        (f"s3://AKIA:{SECRET}@bucket/prefix", f"s3://{HIDDEN}@bucket/prefix"),
        ("s3://AKIA:hunter2?/x@bucket/prefix?region=eu", f"s3://{HIDDEN}@bucket/prefix?region=eu"),
        ("s3://AKIA@bucket/prefix", f"s3://{HIDDEN}@bucket/prefix"),
        (
            f"s3://bucket/p?access_key=AKIA&secret_key={SECRET}&region=eu-1",
            f"s3://bucket/p?access_key={HIDDEN}&secret_key={HIDDEN}&region=eu-1",
        ),
        (f"s3://bucket/p?session={SECRET}", f"s3://bucket/p?session={HIDDEN}"),
        (f"s3://bucket/p?{SECRET}", f"s3://bucket/p?{HIDDEN}"),
        (
            f"s3://b/p?endpoint_override=http://me:{SECRET}@host",
            f"s3://b/p?endpoint_override=http://{HIDDEN}@host",
        ),
        (f"hdfs://me:{SECRET}@host:9000/path", f"hdfs://{HIDDEN}@host:9000/path"),
    ],
)
def test_a_location_is_shown_without_its_credentials(location: str, shown: str) -> None:
    address = Address.of(location)
    assert str(address) == location
    assert str(address.shown()) == shown
    assert address.has_credentials == (location != shown)
    assert redacted("images", location) == shown
    assert SECRET not in str(address.public())
    assert not address.public().has_credentials


def test_credentials_in_the_midst_of_a_text_are_hidden() -> None:
    text = f"cannot open 's3://k:{SECRET}@bucket/x': no such host; see https://docs.example/a@b."
    shown = redacted_text(text)
    assert SECRET not in shown
    assert "bucket/x" in shown
    assert "https://docs.example/a@b." in shown


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "ssl.key.password",
        "sasl.jaas.config",
        "sasl.oauthbearer.client.secret",
        "ssl.key.passphrase",
        "aws_access_key_id",
        "client.credentials",
        "ssl.key.pem",
    ],
)
def test_a_secret_is_known_by_its_name(name: str) -> None:
    assert redacted(name, SECRET) == HIDDEN


def test_what_is_no_secret_is_shown() -> None:
    assert redacted("client.id", "me") == "me"
    assert redacted("brokers", "one:9092,two:9092") == "one:9092,two:9092"
