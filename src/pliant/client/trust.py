"""Checks a server's certificate against a named file of certificates, else against the system's."""

import ssl

from pliant.client.errors import PliantError


def untrusted(error: OSError) -> str:
    """Why the server is not trusted, as a sentence without its subject; "" if `error` has another cause."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"shows a certificate that is not trusted ({error.verify_message})."
    if isinstance(error, ssl.SSLError):
        return "does not speak TLS: https:// is for a server that was started with --tls."
    return ""


def trusting(authority: str | None) -> ssl.SSLContext:
    """The TLS context that verifies a server; `authority` is a file of certificates. Raises PliantError."""
    context = ssl.create_default_context()
    if authority is None:
        return context
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cafile=authority)
    except ssl.SSLError as error:
        raise PliantError(f"{authority} holds no certificates in PEM form.") from error
    except OSError as error:
        raise PliantError(f"Cannot read {authority}: {error.strerror}.") from error
    return context
