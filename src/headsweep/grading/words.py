r"""Words around numbers: what multiplies one, what only says of what it is, and what changes it.

One list for plain text and for ``\text{}``, for the grader of numbers and for that of mathematics.
"""

from fractions import Fraction
from itertools import pairwise


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text, which spaces and line breaks separate."""
    return frozenset(text.split())


_NUMBERS = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen twenty
"""
NUMBERS = {word: number for number, word in enumerate(_NUMBERS.split())}
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
CHANGING = word_set(_CHANGING) | SCALES.keys() | NUMBERS.keys()
"""Words behind a number that change it, or join it to more; all others leave it as it is."""
_CHANGING_ENDINGS = ("teen", "teenth", "tieth", "illion", "illionth")
_COUNTED = {"points", "bases", "roots", "logs", "shorts"}


def scale_of(word: str) -> int:
    """Return what a word multiplies the number before it by; 0 if it does not."""
    return SCALES.get(word) or SCALES.get(word.removesuffix("s"), 0)


def changes(word: str) -> bool:
    """Return whether a word behind a number changes it."""
    word = word.lower()
    singular = word.removesuffix("s")
    is_listed = word in CHANGING or (singular in CHANGING and word not in _COUNTED)
    return is_listed or singular.endswith(_CHANGING_ENDINGS)


SHARE, ANGLE = "share", "angle"
"""What units measure that a number may do without: 50% is 1/2, and 180° is π."""

_UNITS = """
    length 1 m meter metre meters metres
    length 1/1000 mm millimeter millimeters millimetre millimetres
    length 1/100 cm centimeter centimeters centimetre centimetres
    length 1000 km kilometer kilometers kilometre kilometres
    length 0.0254 in inch inches
    length 0.3048 ft foot feet
    length 0.9144 yd yard yards
    length 1609.344 mi mile miles
    mass 1 g gram grams gm
    mass 1/1000 mg milligram milligrams
    mass 1000 kg kilogram kilograms
    mass 453.59237 lb lbs pound pounds
    mass 28.349523125 oz ounce ounces
    time 1 s second seconds
    time 60 min minute minutes
    time 3600 h hr hrs hour hours
    time 86400 day days
    time 604800 week weeks
    years 1 year years yr yrs
    years 1/12 month months
    volume 1 l liter liters litre litres
    volume 1/1000 ml milliliter milliliters
    gallons 1 gallon gallons gal
    gallons 1/4 quart quarts qt
    gallons 1/8 pint pints pt
    dollars 1 dollar dollars usd $
    dollars 1/100 cent cents ¢
    euros 1 euro euros eur €
    sterling 1 gbp £
    yen 1 yen ¥
    rupees 1 rupee rupees ₹
    share 1 percent
    angle 1 degree degrees
    radians 1 radian radians rad
    Celsius 1 celsius
    Fahrenheit 1 fahrenheit
"""
UNITS: dict[str, tuple[str, Fraction]] = {}
"""Units by their words: what they measure, and how many of its first unit they are."""
for _measured, _factor, *_words in map(str.split, _UNITS.strip().splitlines()):
    UNITS |= dict.fromkeys(_words, (_measured, Fraction(_factor)))
UNITS["mph"] = "length / time", UNITS["mile"][1] / UNITS["hour"][1]

_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_RAISED = ("^2", "^3")
_MOST_WORDS = 5


def unit_of(words: list[str]) -> tuple[str, Fraction] | None:
    """Return what a unit measures and its factor; None for words that measure nothing known.

    Words are in small letters; ``/`` stands for "per", ``^2`` and ``^3`` for powers of a unit.
    """
    if len(words) > 1:
        words = [word for word in words if not word.startswith("degree")]
    measured: list[str] = []
    factor = Fraction(1)
    power = 1
    per = False
    for word, after in pairwise(["/" if word == "per" else word for word in words] + [""]):
        if word in _POWERS:
            power = _POWERS[word]
        elif word == "/":
            per = True
        elif word in UNITS:
            power = int(after[1]) if after in _RAISED else power
            dimension, size = UNITS[word]
            if per:
                measured.append("/")
                size = 1 / size
            measured += [dimension] * power
            factor *= size**power
            power = 1
        elif word not in _RAISED:
            return None
    return (" ".join(measured), factor) if measured else None


def leaves_a_number(words: list[str]) -> bool:
    """Return whether words behind a number leave it as it is: a unit, or what is counted."""
    return len(words) <= _MOST_WORDS and not any(map(changes, words))
