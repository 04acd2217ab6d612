"""The form of texts that people choose or write by a grammar, for the description.

The code that reads a text refuses other forms, with more detail; tests hold both together.
"""

from typing import Annotated

from pliant.wire.limits import Amount, Length, Looks, Name, Word

_PART = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DOMAIN = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_MAIL = r"[A-Za-z0-9._+-]+@[A-Za-z0-9.-]+"
MAIL = f"^{_MAIL}$"
_LETTER = "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f"
_PERSON = f"^[!-9;-~{_LETTER}]{{1,127}}[!-9;-~{_LETTER}]$"
_TITLE = f"^[{_LETTER}][ -~{_LETTER}]{{0,126}}[!-~{_LETTER}]$"
_PATH = r"/[^\x00-\x1f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]*"
ABSOLUTE = f"^{_PATH}$"
MAIL_OR_ABSOLUTE = f"^({_MAIL}|{_PATH})$"
CHANNEL = f"^(email|{_MAIL})$"

UserName = Annotated[str, Length(255, least=2, word=True), Looks(_PERSON)]
RoleName = Annotated[str, Length(128, least=2, word=True), Looks(_TITLE)]
Label = Annotated[Name, Looks(r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$")]
"""A DNS-1035 label."""

ClassName = Annotated[Name, Looks(r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$")]
LABEL_KEY = rf"^({_DOMAIN}(\.{_DOMAIN})?/)?{_PART}$"
LabelKey = Annotated[Name, Looks(LABEL_KEY)]
LabelValue = Annotated[Word, Looks(rf"^({_PART})?$")]
PlacedLabel = Annotated[Name, Looks(rf"^{_PART}$")]
"""The value of a label that must not be empty."""

Cores = Annotated[Amount, Looks(least=0, step=0.001)]
_REST = r"(\.[0-9]{1,3})?"
Memory = Annotated[Word, Looks(rf"^([0-9]{{1,18}}|[0-9]{{1,6}}{_REST}(k|[KMGT]i?))B?$")]
GpuMemory = Annotated[
    Word,
    Looks(
        rf"^([1-9][0-9]{{8,14}}|[1-9][0-9]{{2,6}}{_REST}Mi?|[1-9][0-9]{{0,3}}{_REST}Gi?|0\.[1-9][0-9]{{0,2}}Gi?)B?$"
    ),
]
"""100 MB at least."""

Duration = Annotated[Word, Looks(r"^([0-9]{1,7}|([0-9]{1,7}(\.[0-9]{1,3})?(ms|s|m|h|d))+)$")]
Moment = Annotated[Word, Looks(format="date-time")]
"""RFC 3339."""

Stamp = Annotated[str, Looks(format="date-time")]
"""The same in an answer: in UTC, with milliseconds."""
