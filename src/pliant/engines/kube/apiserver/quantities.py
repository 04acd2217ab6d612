"""Amounts as Kubernetes writes them: 8, 500m, 64Gi, 12e6."""

from decimal import ROUND_CEILING, Decimal

_UNITS = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}


def count_of(text: str) -> int:
    """Rounds up, as Kubernetes does. Raises ValueError if the text is no amount."""
    return _scaled(text, 1)


bytes_of = count_of


def millicores_of(text: str) -> int:
    return _scaled(text, 1000)


def _scaled(text: str, factor: int) -> int:
    unit = next((unit for unit in (text[-2:], text[-1:]) if unit in _UNITS), "")
    try:
        value = Decimal(text.removesuffix(unit)) * _UNITS.get(unit, 1) * factor
        return int(value.to_integral_value(ROUND_CEILING))
    except ArithmeticError:
        raise ValueError(f"{text!r} is no amount") from None
