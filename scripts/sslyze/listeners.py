"""Scans listeners with TLS by SSLyze, and compares what it finds with what they are meant to accept."""

import sys
from pathlib import Path

from sslyze import (CertificateInfoExtraArgument, ClientAuthenticationCredentials, ScanCommand, ScanCommandAttemptStatusEnum,
                    ScanCommandsExtraArguments, Scanner, ServerNetworkConfiguration, ServerNetworkLocation, ServerScanRequest)
from sslyze.mozilla_tls_profile.tls_config_checker import (MozillaTlsConfiguration, ServerNotCompliantWithTlsConfiguration,
                                                           TlsConfigurationEnum, check_server_against_tls_configuration)
from sslyze.plugins.scan_commands import ScanCommandsRepository

from harness.process import PATIENCE, Failed, run, shell
from harness.sidecar import Sidecar
from harness.suite import Suite, title

NAME = "app.test"

# Cipher suites with forward secrecy and authenticated encryption, by the key of the certificate.
SUITES = {key: {f"TLS_ECDHE_{name}_WITH_{cipher}" for cipher in (
    "AES_128_GCM_SHA256", "AES_256_GCM_SHA384", "CHACHA20_POLY1305_SHA256")} for key, name in (("ec", "ECDSA"), ("rsa", "RSA"))}
SUITES_1_3 = {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}


def expected(key, oldest):
    """What SSLyze must find at a listener with such a key, and this oldest version of TLS."""
    return {
        "SSL 2.0": set(), "SSL 3.0": set(), "TLS 1.0": set(), "TLS 1.1": set(),
        "TLS 1.2": SUITES[key] if oldest == "1.2" else set(),
        "TLS 1.3": SUITES_1_3,
        "curves": {"X25519", "secp256r1", "secp384r1", "secp521r1"},
        "compression": False, "early data": False, "Heartbleed": False, "CCS injection": False,
        "ROBOT": "NOT_VULNERABLE_RSA_NOT_SUPPORTED",
        "fallback to older versions is refused": True,
        "renegotiation is secure": True, "renegotiation by the client": False,
        "extended master secret": True,
        "resumption by session id": "NOT_SUPPORTED" if oldest == "1.2" else "SERVER_IS_TLS_1_3_ONLY",
        "tickets": True,
        # What Mozilla recommends otherwise: its list of curves has no P-521, which is no weaker than the others.
        "Mozilla's recommendation": {"tls_curves"},
    }


FACTS = {
    **{version: (version.lower().replace(" ", "_").replace(".", "_") + "_cipher_suites",
                 lambda r: {s.cipher_suite.name for s in r.accepted_cipher_suites})
       for version in ("SSL 2.0", "SSL 3.0", "TLS 1.0", "TLS 1.1", "TLS 1.2", "TLS 1.3")},
    "curves": ("elliptic_curves", lambda r: {c.name for c in r.supported_curves}),
    "compression": ("tls_compression", lambda r: r.supports_compression),
    "early data": ("tls_1_3_early_data", lambda r: r.supports_early_data),
    "Heartbleed": ("heartbleed", lambda r: r.is_vulnerable_to_heartbleed),
    "CCS injection": ("openssl_ccs_injection", lambda r: r.is_vulnerable_to_ccs_injection),
    "ROBOT": ("robot", lambda r: r.robot_result.name),
    "fallback to older versions is refused": ("tls_fallback_scsv", lambda r: r.supports_fallback_scsv),
    "renegotiation is secure": ("session_renegotiation", lambda r: r.supports_secure_renegotiation),
    "renegotiation by the client": ("session_renegotiation", lambda r: r.is_vulnerable_to_client_renegotiation_dos),
    "extended master secret": ("tls_extended_master_secret", lambda r: r.supports_ems_extension),
    "resumption by session id": ("session_resumption", lambda r: r.session_id_resumption_result.name),
}


def gives_tickets(port, own):
    """Reports whether a listener gives tickets to resume sessions with. For SSLyze those that are good once are none."""
    said = shell(f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | openssl s_client -connect 127.0.0.1:{port} -servername {NAME} -tls1_3 -ign_eof"
                 f" -CAfile {own['ca']} -verify_return_error -cert {own['cert']} -key {own['key']} 2>&1", check=False).stdout
    if "Verify return code: 0 (ok)" not in said:
        raise Failed(said)
    return "New Session Ticket arrived" in said


def fact(result, command, value):
    """A value of what a scan command has found."""
    attempt = getattr(result.scan_result, command)
    if attempt.status != ScanCommandAttemptStatusEnum.COMPLETED:
        trace = attempt.error_trace
        return f"{attempt.status.name} {attempt.error_reason} {''.join(trace.format()) if trace else ''}"
    return value(attempt.result)


def issues(result, profile):
    """The names of what differs from a recommendation of Mozilla."""
    try:
        check_server_against_tls_configuration(result, MozillaTlsConfiguration.get(profile))
    except ServerNotCompliantWithTlsConfiguration as e:
        print(f"      {e.issues}")
        return set(e.issues)
    return set()


class Listeners:
    """A sidecar with listeners to be scanned."""

    def __init__(self, suite):
        self.suite, self.requests, self.wants = suite, [], {}
        app = suite.replica("app", "--mode", "fast").start()
        self.sidecar = Sidecar(suite, "sidecar")
        self.sidecar.service("app", "http", app.port)
        self.own = {key: self.certificate(key) for key in SUITES}

    def certificate(self, key):
        """The files of a certificate, its key and its authority."""
        ca, ca_key, cert, secret = (self.suite.path(f"{key}-{name}.pem") for name in ("ca", "ca-key", "cert", "key"))
        make = ["openssl", "req", "-x509", "-nodes", "-days", "1", "-newkey",
                *{"ec": ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"], "rsa": ["rsa:2048"]}[key]]
        run([*make, "-subj", "/CN=authority", "-addext", "keyUsage=critical,keyCertSign", "-keyout", ca_key, "-out", ca])
        run([*make, "-subj", f"/CN={NAME}", "-CA", ca, "-CAkey", ca_key, "-addext", "basicConstraints=CA:FALSE",
             "-addext", f"subjectAltName=DNS:{NAME}", "-keyout", secret, "-out", cert])
        return {"cert": cert, "key": secret, "ca": ca}

    def add(self, name, protocol, key="ec", oldest="1.2", mutual=False, **tls):
        """Adds a listener, and what must be found there."""
        own = self.own[key]
        files = {"cert": own["cert"], "key": own["key"], **({"ca": own["ca"], "peers": [NAME]} if mutual else {})}
        port = self.sidecar.listener(protocol, "app", tls={**files, **tls})
        credentials = ClientAuthenticationCredentials(Path(own["cert"]), Path(own["key"]), "") if mutual else None
        self.requests.append(ServerScanRequest(
            ServerNetworkLocation(NAME, port, ip_address="127.0.0.1"),
            ServerNetworkConfiguration(NAME, tls_client_auth_credentials=credentials, network_timeout=PATIENCE),
            ScanCommandsRepository.get_all_scan_commands() - {ScanCommand.HTTP_HEADERS},
            ScanCommandsExtraArguments(CertificateInfoExtraArgument(Path(own["ca"])))))
        wants = expected(key, oldest)
        if protocol == "link":
            # SSLyze sends a request of HTTP before early data, at which a link ends. Without a ticket there is none.
            del wants["early data"]
            wants["tickets"] = False
        self.wants[port] = (name, own, wants, TlsConfigurationEnum.MOZILLA_INTERMEDIATE if oldest == "1.2" else TlsConfigurationEnum.MOZILLA_MODERN)

    def scan(self):
        """Scans all, and makes a check of each fact."""
        self.sidecar.start()
        scanner = Scanner()
        scanner.queue_scans(self.requests)
        for result in scanner.get_results():
            name, own, wants, profile = self.wants[result.server_location.port]
            title(name)
            if result.scan_result is None:
                raise Failed(f"{name}: {''.join(result.connectivity_error_trace.format())}")
            got = {what: fact(result, *how) for what, how in FACTS.items()}
            got["tickets"] = gives_tickets(result.server_location.port, own)
            got["Mozilla's recommendation"] = issues(result, profile)
            for what, want in wants.items():
                self.suite.check(f"{name}: {what}: {want or 'none'}", got[what] == want, got[what])


def main():
    suite = Suite()
    listeners = Listeners(suite)
    listeners.add("HTTPS", "http")
    listeners.add("HTTPS with an RSA key", "http", key="rsa")
    listeners.add("HTTPS of TLS 1.3", "http", oldest="1.3", min_version="1.3")
    listeners.add("HTTPS with certificates of clients", "http", mutual=True, client_certificate="required")
    listeners.add("link", "link", oldest="1.3", mutual=True)
    listeners.scan()
    sys.exit(suite.finish())


if __name__ == "__main__":
    main()
