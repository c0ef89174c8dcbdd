"""What the automatic recipe chose for a run, and what of it is chosen anew when the run is given another time.

training/chosen.json names the settings that nobody had given. The rest of a run is settled with its first update; but a
text that will be read more often needs more dropout, or the model learns it by heart (docs/recipe.md, "The schedule").
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from transduce.data.store import Store
from transduce.files import strict_json
from transduce.files.atomic import write_file
from transduce.files.reading import SMALL, read_bytes
from transduce.files.run_folder import RunFolder
from transduce.settings import config_file
from transduce.settings.entries import flat
from transduce.settings.sections import Overrides, Settings
from transduce.training import checkpoint
from transduce.training.limits import Limits
from transduce.training.recipe import Choice, Recipe, for_more_passes
from transduce.training.state import read_state


def keep_choices(run: RunFolder, wanted: Settings | Recipe) -> None:
    """The names of what is chosen. Also where there are none: what stands there may be of a run that never began."""
    choices = wanted.choices if isinstance(wanted, Recipe) else []
    names = list(dict.fromkeys(choice.name for choice in choices))
    write_file(run.chosen, strict_json.dumps(names, indent=1).encode())


def recipe_of(run: RunFolder, before: Settings, *given: Overrides) -> Recipe | None:
    """The recipe of a run, as it stands: what is given now is given from now on. None: all of it was given, or nobody
    knows; then it stays as it is."""
    names, values = _chosen_names(run), flat(before)
    if not names:
        return None
    settled: dict[str, dict[str, Any]] = {}
    for name in values.keys() - names:
        section, key = name.split(".")
        settled.setdefault(section, {})[key] = values[name]
    recipe = Recipe(settled, *given)
    if run.has_started:
        recipe.choices = [Choice(n, v) for n, v in values.items() if n in names and not recipe.has(n)]
    return recipe


def _chosen_names(run: RunFolder) -> set[str]:
    """None where the note is missing or damaged: it is of use, but no run needs it."""
    try:
        return set(map(str, strict_json.loads(read_bytes(run.chosen, SMALL))))
    except (OSError, ValueError, TypeError):
        return set()


def choose_again(run: RunFolder, recipe: Recipe, text: Store) -> Iterator[str]:
    """For a run that goes on: only where its time is another one than before, so that what was stopped goes on as it
    was. How often the text will be read by then, the run itself has shown. Tells its choices."""
    before = config_file.read_whole(run.config)
    limits = Limits.of(recipe.settings.training)
    newest, _ = checkpoint.latest(run)
    if newest is None or limits.of_decay() == Limits.of(before.training).of_decay():
        return
    state = read_state(newest)
    a_pass = int(text.learned_tokens.sum()) / text.variants
    passes = state.target_tokens / a_pass
    share = limits.share_done(state.step, passes, state.seconds - state.before_updates)
    if share > 0:
        yield from for_more_passes(passes / share, len(text), recipe)
