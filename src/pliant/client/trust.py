"""Which certificates a server may show: those of a file that was named, else those that the system trusts."""

import ssl

from pliant.client.errors import PliantError


def untrusted(error: OSError) -> str:
    """What is wrong with the server's certificate, as a sentence without its subject; empty: nothing."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"shows a certificate that is not trusted ({error.verify_message})."
    if isinstance(error, ssl.SSLError):
        return "does not speak TLS: https:// is for a server that was started with --tls."
    return ""


def trusting(authority: str | None) -> ssl.SSLContext:
    """How a connection checks who is at its other end; `authority` is a file of certificates. PliantError."""
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
