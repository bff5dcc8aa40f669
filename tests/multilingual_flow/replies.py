"""What the simulated model answers: eight runs, each with mistakes of its own."""

# ruff: noqa: RUF001  # Greek letters that look like Latin ones are what this is about

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flows.engine.simulated_model import Fault, FaultKind, Script

SALE = "Ο Πωλητής πωλεί στον Αγοραστή 40 τόνους ελαιολάδου."
PRICE = "Το τίμημα ανέρχεται σε 180.000 ευρώ, πληρωτέο εντός 30 ημερών."
LIABILITY = "يتحمل البائع المسؤولية الكاملة وغير المحدودة عن أي ضرر مباشر أو غير مباشر."
TERMINATION = "يجوز للمشتري إنهاء هذا العقد في أي وقت دون إشعار مسبق."
LAW = "Εφαρμοστέο είναι το ελληνικό δίκαιο (قانون اليونان) και αρμόδια τα δικαστήρια Αθηνών."
CLAUSES = {"1.1": SALE, "1.2": PRICE, "2.1": LIABILITY, "2.2": TERMINATION, "3.1": LAW}
CONTRACT = "\n\n".join(f"{number} {text}" for number, text in CLAUSES.items())

_RISKS = [
    ("1.1", "low", 1, "scope", "Η ποσότητα και το προϊόν είναι σαφή."),
    ("1.2", "high", 8, "payment", "Η προθεσμία των 30 ημερών είναι μεγάλη για τον πωλητή."),
    ("2.1", "high", 9, "liability", "«غير المحدودة» is unlimited: cap it at 100% of the price (ثمن البيع)."),
    ("2.2", "high", 8, "termination", "يسمح البند 2.2 للمشتري بالإنهاء دون إشعار؛ المعتاد 30 يومًا على الأقل."),
    ("3.1", "low", 2, "law", "Greek law and Athens courts, usual for the seller."),
]
_CAPPED = "تقتصر مسؤولية البائع على ثمن البيع، ولا تشمل الأضرار غير المباشرة."
_REDRAFTS = [
    ("1.2", PRICE, "Το τίμημα ανέρχεται σε 180.000 ευρώ, πληρωτέο εντός 10 ημερών.", "Shorter term."),
    ("2.1", LIABILITY, _CAPPED, "Liability is capped."),
    ("2.2", TERMINATION, "يجوز للمشتري إنهاء هذا العقد بإشعار مسبق مدته 30 يومًا.", "Notice of 30 days."),
]
_SUMMARY = {
    "verdict": "negotiate",
    "summary_en": "Three of five clauses need work. Liability is the worst of them.",
    "summary_el": "Τρεις από τους πέντε όρους χρειάζονται αλλαγές. Χειρότερος είναι ο όρος για την ευθύνη.",
    "summary_ar": "ثلاثة من خمسة بنود تحتاج إلى تعديل. أسوأها بند المسؤولية.",
}
RUNS = ("smooth", "careless", "stubborn", "english", "smooth", "careless", "reset", "invented")
"""What goes wrong in each run, in their order; ``stubborn`` fails, as the same output comes again and again."""


def build_input(number: int) -> dict[str, str]:
    """The input of run ``number``, from 0."""
    return {"party": "seller" if number % 2 == 0 else "buyer", "contract": CONTRACT}


def build_script(kind: str) -> Script:
    """What the model answers in a run where ``kind`` of mistakes are made."""
    clauses = [{"number": number, "text": text} for number, text in CLAUSES.items()]
    invented = [*clauses[:3], {"number": "2.2", "text": "يجوز للبائع إنهاء العقد."}, *clauses[4:]]
    wrong_language = [*_REDRAFTS[:1], ("2.1", LIABILITY, "The seller's liability is limited to the price.", "Capped.")]
    replies: dict[str, Sequence[Any]] = {
        "extract_clauses": [_extract(clauses)],
        "classify_risk": [_rate(_RISKS)],
        "propose_redrafts": [_redraft(_REDRAFTS)],
        "translate_redrafts": [{"translations": [{"number": "1.2", "english": "The price is EUR 180,000."}]}],
        "summarise_review": [_SUMMARY],
    }
    careless = _rate(_change({"1.1": {"reason": "ok"}, "1.2": {"score": 4, "reason": "Πληρωμή"}, "2.1": {"score": 5}}))
    match kind:
        case "careless":
            replies["classify_risk"] = [careless, careless, _rate(_RISKS)]
            replies["summarise_review"] = [{**_SUMMARY, "summary_en": "Three of five clauses need work"}]
        case "stubborn":
            replies["classify_risk"] = [careless]
        case "english":
            replies["propose_redrafts"] = [_redraft(wrong_language), _redraft(_REDRAFTS)]
        case "reset":
            replies["translate_redrafts"] = [Fault(FaultKind.RESET), *replies["translate_redrafts"]]
        case "invented":
            replies["extract_clauses"] = [_extract(invented), _extract(clauses)]
    return Script(replies)


def _change(changes: Mapping[str, Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    names = ("number", "level", "score", "category", "reason")
    return [tuple({**dict(zip(names, risk, strict=True)), **changes.get(risk[0], {})}.values()) for risk in _RISKS]


def _extract(clauses: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    return {"language_mix": "Greek, Arabic", "clauses": list(clauses)}


def _rate(risks: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    names = ("number", "level", "score", "category", "quote", "reason")
    return {"risks": [dict(zip(names, (*risk[:4], CLAUSES[risk[0]], risk[4]), strict=True)) for risk in risks]}


def _redraft(drafts: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    return {"redrafts": [dict(zip(("number", "before", "after", "why"), draft, strict=True)) for draft in drafts]}
