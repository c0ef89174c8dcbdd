"""config.yaml: the settings as a file. Plain YAML: sections, keys and values; no tags, no anchors, no aliases."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import yaml

from transduce.errors import SettingsError
from transduce.files.reading import SMALL, followed, read_bytes
from transduce.files.run_folder import CONFIG
from transduce.settings.compose import compose
from transduce.settings.sections import Overrides, Settings

DEEPEST = 10  # levels; settings have two


# Every value stays the text it is: settings know their own types, and no constructor can fail or be tricked.
LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def _refuse_tricks(text: str) -> None:
    """Raise a YAMLError for tags, anchors, aliases, which can unfold to terabytes, and for deep nesting."""
    depth = 0
    for event in yaml.parse(text, LOADER):
        if getattr(event, "anchor", None) or getattr(event, "tag", None):
            raise yaml.MarkedYAMLError(problem="no tags, anchors or aliases", problem_mark=event.start_mark)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise yaml.MarkedYAMLError(problem="too deep", problem_mark=event.start_mark)


def plain_yaml(text: str) -> Any:
    """What YAML says, as text, lists and mappings; a ValueError for what is none, or is more than that."""
    try:
        _refuse_tricks(text)
        return yaml.load(text, LOADER)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        raise ValueError(f"not valid YAML{f' near line {mark.line + 1}' if mark else ''}") from error


def read(path: str | Path, follow_links: bool = True) -> Overrides:
    """The settings that a YAML file gives. A file in a model folder is read without following links."""
    place = followed(Path(path)) if follow_links else Path(path)
    try:
        content = plain_yaml(read_bytes(place, SMALL).decode("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SettingsError(f"cannot read the settings file {path}: {_sentence(reason)}") from error
    except ValueError as error:
        raise SettingsError(f"{path} is {error}; write 'section:' and 'key: value' lines") from error
    if content in (None, ""):
        return {}
    if not isinstance(content, dict):
        kind = "text" if isinstance(content, str) else "a list"
        raise SettingsError(f"{path} must hold sections such as 'model:', not {kind}")
    return content


def _sentence(reason: str | None) -> str:
    return f"it {reason}" if reason and reason.startswith(("is ", "has ", "cannot ")) else str(reason)


def read_whole(path: Path) -> Settings:
    """The settings of a model or a run, from its own config.yaml."""
    return compose(read(path, follow_links=False))


def is_fasttext(folder: Path) -> bool:
    """Whether its config.yaml says that a folder holds fastText's classifier or word vectors. Asked before anything
    large is loaded: numba for those, PyTorch for all others."""
    config = folder / CONFIG
    if not config.is_file():
        return False
    model = read(config, follow_links=False).get("model")
    return isinstance(model, dict) and model.get("kind") == "fasttext"


def write(settings: Settings) -> str:
    """The settings as YAML that `read` takes back."""
    return yaml.safe_dump(dataclasses.asdict(settings), sort_keys=False, allow_unicode=True)
