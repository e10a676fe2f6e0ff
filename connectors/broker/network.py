"""What a Java child needs to reach the network as the user's other tools do: certificates, proxies."""

from __future__ import annotations

import hashlib
import os
import shutil
import ssl
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path

from stateflow.connectors.broker.java import Java
from stateflow.connectors.broker.places import cache_dir
from stateflow.errors import SetupError

BUNDLE_VARIABLES = (
    "STATEFLOW_CA_BUNDLE",
    "SSL_CERT_FILE",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
)
STORE_PASSWORD = "changeit"  # noqa: S105 - the password that every Java trust store of public certificates has
KEYTOOL_TIMEOUT_SECONDS = 120.0
"""A call takes a second or two; one that hangs must not keep a broker from starting without a word."""
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def network_arguments(java: Java) -> list[str]:
    """JVM arguments for the user's certificate bundle and proxies; empty when Java's own defaults agree."""
    return [*_trust_arguments(java), *_proxy_arguments()]


def certificate_bundle() -> Path | None:
    """The PEM bundle that the user's other tools trust: by variable, else OpenSSL's default."""
    for variable in BUNDLE_VARIABLES:
        if (named := os.environ.get(variable)) and Path(named).is_file():
            return Path(named)
    default = ssl.get_default_verify_paths().cafile
    return Path(default) if default and Path(default).is_file() else None


def split_pem(text: str) -> list[str]:
    """The certificates of a bundle, each with its BEGIN and END line; text between them is dropped."""
    blocks = text.split(_BEGIN)[1:]
    return [f"{_BEGIN}{block.split(_END)[0]}{_END}\n" for block in blocks if _END in block]


def _trust_arguments(java: Java) -> list[str]:
    """Point a runtime at a trust store that also knows the bundle's certificates.

    A distribution's own Java usually follows the system's certificates, a wheel's knows the public ones only.
    The merged store is made once per (bundle, runtime) and kept in the cache.
    """
    bundle, base = certificate_bundle(), java.home / "lib" / "security" / "cacerts"
    keytool = java.home / "bin" / "keytool"
    if bundle is None or not base.is_file() or not keytool.is_file():
        return []
    digest = hashlib.sha256(bundle.read_bytes() + base.read_bytes()).hexdigest()[:16]
    store = cache_dir() / "trust" / f"{digest}.p12"
    if not store.is_file():
        _merge(keytool, base, bundle, store)
    return [f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={STORE_PASSWORD}"]


def _merge(keytool: Path, base: Path, bundle: Path, store: Path) -> None:
    store.parent.mkdir(parents=True, exist_ok=True)
    known = _keytool(keytool, "-list", "-v", "-keystore", str(base)).replace(":", "").lower()
    unknown = [pem for pem in split_pem(bundle.read_text(errors="replace")) if _fingerprint(pem) not in known]
    draft = store.with_suffix(f".{os.getpid()}")
    shutil.copyfile(base, draft)
    try:
        for number, pem in enumerate(unknown):
            alias = f"stateflow-{number}"
            _keytool(keytool, "-importcert", "-noprompt", "-alias", alias, "-keystore", str(draft), stdin=pem)
        draft.replace(store)
    finally:
        draft.unlink(missing_ok=True)


def _fingerprint(pem: str) -> str:
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()


def _keytool(keytool: Path, *arguments: str, stdin: str | None = None) -> str:
    try:
        done = subprocess.run(
            [str(keytool), *arguments, "-storepass", STORE_PASSWORD],
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=KEYTOOL_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired as expired:
        raise SetupError(
            f"keytool did not answer for {KEYTOOL_TIMEOUT_SECONDS:g} s: {keytool}",
            action="Try that program by hand; or choose another Java with STATEFLOW_JAVA.",
        ) from expired
    if done.returncode != 0:
        raise SetupError(
            f"keytool could not extend the trust store: {(done.stdout + done.stderr).strip()[-300:]}",
            action="Point STATEFLOW_CA_BUNDLE at a PEM file of certificates, or unset it.",
        )
    return done.stdout


def _proxy_arguments() -> list[str]:
    """Java ignores http_proxy, https_proxy and no_proxy: hand them on as its own properties."""
    arguments = []
    proxies = urllib.request.getproxies()
    for scheme in ("http", "https"):
        address = urllib.parse.urlsplit(proxies.get(scheme, ""))
        if address.hostname:
            port = address.port or (443 if address.scheme == "https" else 80)
            arguments += [f"-D{scheme}.proxyHost={address.hostname}", f"-D{scheme}.proxyPort={port}"]
    if arguments and (direct := proxies.get("no", "")):
        hosts = [
            f"*{host}" if host.startswith(".") else host
            for host in direct.replace(" ", "").split(",")
            if host
        ]
        arguments.append(f"-Dhttp.nonProxyHosts={'|'.join(hosts)}")
    return arguments
