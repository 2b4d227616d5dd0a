"""Words around numbers: what multiplies one, what only says of what it is, and what changes it.

One list for plain text and for ``\\text{}``, for the grader of numbers and for that of mathematics.
"""

from fractions import Fraction

NUMBERS = dict(
    zip(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
        "fifteen sixteen seventeen eighteen nineteen twenty".split(),
        range(21),
        strict=True,
    )
)
"""Words that are a number where they stand alone."""

SCALES = {"dozen": 12, "hundred": 100, "score": 20, "gross": 144, "lakh": 10**5, "crore": 10**7}
SCALES |= {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
"""Words that multiply the number before them."""

_CHANGING = """
    mil grand half halves third quarter fourth fifth sixth seventh eighth ninth tenth eleventh
    twelfth hundredth thousandth thirty forty fifty sixty seventy eighty ninety
    and or not no to than less more fewer short except without between if when where until unless
    plus minus over under below above negative positive point base remainder raised divided
    multiplied squared cubed factorial mod modulo sqrt root log ln exp cis sin cos tan cot sec csc
    sinh cosh tanh arcsin arccos arctan inf infinity i e pi alpha beta gamma delta epsilon zeta eta
    theta lambda rho sigma tau phi psi omega
    am pm bc bce ad ce st nd rd th
"""
CHANGING = frozenset(_CHANGING.split()) | SCALES.keys() | NUMBERS.keys()
"""Words behind a number that change it, or join it to more; all others leave it as it is."""
_CHANGING_ENDINGS = ("teen", "teenth", "tieth", "illion", "illionth")
_COUNTED = {"points", "bases", "roots", "logs", "shorts"}


def changes(word: str) -> bool:
    """Return whether a word behind a number changes it."""
    word = word.lower()
    singular = word.removesuffix("s")
    is_listed = word in CHANGING or (singular in CHANGING and word not in _COUNTED)
    return is_listed or singular.endswith(_CHANGING_ENDINGS)


SHARE, ANGLE = "share", "angle"
"""What units measure that a number may do without: 50% is 1/2, and 180° is π."""

_UNITS: dict[str, tuple[str, dict[str, str]]] = {
    "length": (
        "m meter metre meters metres",
        {
            "1/1000": "mm millimeter millimeters millimetre millimetres",
            "1/100": "cm centimeter centimeters centimetre centimetres",
            "1000": "km kilometer kilometers kilometre kilometres",
            "0.0254": "in inch inches",
            "0.3048": "ft foot feet",
            "0.9144": "yd yard yards",
            "1609.344": "mi mile miles",
        },
    ),
    "mass": (
        "g gram grams gm",
        {
            "1/1000": "mg milligram milligrams",
            "1000": "kg kilogram kilograms",
            "453.59237": "lb lbs pound pounds",
            "28.349523125": "oz ounce ounces",
        },
    ),
    "time": (
        "s second seconds",
        {
            "60": "min minute minutes",
            "3600": "h hr hrs hour hours",
            "86400": "day days",
            "604800": "week weeks",
        },
    ),
    "years": ("year years yr yrs", {"1/12": "month months"}),
    "volume": ("l liter liters litre litres", {"1/1000": "ml milliliter milliliters"}),
    "gallons": ("gallon gallons gal", {"1/4": "quart quarts qt", "1/8": "pint pints pt"}),
    "dollars": ("dollar dollars usd $", {"1/100": "cent cents ¢"}),
    "euros": ("euro euros eur €", {}),
    "pounds sterling": ("£ gbp", {}),
    "yen": ("yen ¥", {}),
    "rupees": ("rupee rupees ₹", {}),
    SHARE: ("percent", {}),
    ANGLE: ("degree degrees", {}),
    "radians": ("radian radians rad", {}),
    "temperature": ("celsius", {}),
    "temperature in Fahrenheit": ("fahrenheit", {}),
}
UNITS: dict[str, tuple[str, Fraction]] = {}
"""Units by their words: what they measure, and how many of its first unit they are."""
for _measured, (_first, _others) in _UNITS.items():
    for _factor, _words in {"1": _first, **_others}.items():
        UNITS |= {word: (_measured, Fraction(_factor)) for word in _words.split()}

_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_MOST_WORDS = 5


def unit_of(words: list[str]) -> tuple[str, Fraction] | None:
    """Return what a unit measures and its factor; None for words that measure nothing known.

    Words are in small letters; ``/`` stands for "per", ``^2`` and ``^3`` behind a unit for its powers.
    """
    if words == ["mph"]:
        words = ["mile", "/", "hour"]
    if len(words) > 1:
        words = [word for word in words if not word.startswith("degree")]
    words = ["/" if word == "per" else word for word in words]
    measured, factor, power, sign = "", Fraction(1), 1, 1
    for word in words:
        if word in _POWERS:
            power = _POWERS[word]
        elif word == "/":
            sign = -1
        elif word in ("^2", "^3"):
            extra = int(word[1]) - 1
            measured += f" {last[0]}" * extra
            factor *= last[1] ** (sign * extra)
        elif word in UNITS:
            last = UNITS[word]
            measured += (" /" if sign < 0 else "") + f" {last[0]}" * power
            factor *= last[1] ** (sign * power)
            power = 1
        else:
            return None
    return (measured, factor) if measured else None


def leaves_a_number(words: list[str]) -> bool:
    """Return whether words behind a number leave it as it is: a unit, or what is counted."""
    return len(words) <= _MOST_WORDS and not any(map(changes, words))
