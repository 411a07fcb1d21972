"""What `sightline demo` shows when models come with the install: translations at once, and where the model looked.

No torch here until the page, the last of it, is made.
"""

from __future__ import annotations

from pathlib import Path

from sightline.console import program
from sightline.plot import Heatmap, terminal
from sightline.translator import Translator, load

# Neither the corpus nor the text of the last rounds has one of these.
LINES = {
    "en-de": (
        "Could you show me the way to the museum?",
        "I forgot my umbrella on the bus.",
        "Why didn't you call me yesterday?",
        "It is cold today. Can you close the window?",
    ),
    "de-en": (
        "Ich habe gestern einen alten Freund getroffen.",
        "Können Sie mir sagen, wo der Bahnhof ist?",
        "Kannst du mir helfen? Ich habe meinen Schlüssel verloren.",
    ),
}
LOOKED_AT = {"en-de": "Tom doesn't want to go to school today.", "de-en": "Tom will heute nicht zur Schule gehen."}


def show(models: dict[str, Path], output: Path) -> None:
    """Translates a few sentences with bundled models, and draws what one of them looked at, here and into a page."""
    translators = {name: load(folder) for name, folder in models.items() if name in LINES}
    width = max(len(line) for name in translators for line in LINES[name])
    for name, translator in translators.items():
        print(f"\n{program()} translate {name}\n")
        for one in translator.translate(LINES[name], align=False, token_scores=False):
            print(f"  {one.source:<{width}}  →  {one.text}")
    name, translator = next(iter(translators.items()))
    looked_at = LOOKED_AT[name]
    one = translator.translate(looked_at, token_scores=False)
    if one.weights is not None:
        print(f"\nWhere {name} looked while it wrote each word of a translation:\n")
        print(terminal(Heatmap(one.source_words, one.words, one.weights, "", one.links or [])))
    page(translator, [looked_at, *LINES[name]], output / "alignment.html")
    print(f"\nTranslate something yourself:  echo 'Good morning!' | {program()} translate {name}")
    print(f"Watch a model learn, 6 minutes from nothing:  {program()} demo train")


def page(translator: Translator, lines: list[str], path: Path) -> None:
    """All layers and heads of the lines' translations, to explore."""
    from sightline.alignments import align_corpus, draw

    draw([translator], [list(align_corpus(translator, lines))], lines, path, None, None)
    print(f"\nAll layers and heads, to explore in a browser: {path}")
