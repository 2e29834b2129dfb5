"""Limits that are a number or a percentage: `IntOrString` of the Kubernetes API."""


def scaled_value(limit: int | str, total: int, *, round_up: bool = False) -> int:
    """A number as it is, and a percentage of the total, as GetScaledValueFromIntOrPercent of apimachinery."""
    if isinstance(limit, int):
        return limit
    hundredths = int(limit.removesuffix("%")) * total
    return -(-hundredths // 100) if round_up else hundredths // 100
