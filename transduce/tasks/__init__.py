"""One function a command, which reads as the whole story of that command; its parameters are the command's flags.

Nothing here prints or exits: results are returned (text as an iterator of lines), talk goes to the `report`. Rooms
that need torch or numpy are imported inside the functions, so that `transduce --help` does not wait for them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from transduce.report import Report

Hidden = Annotated[Report, Parameter(parse=False)]  # handed in by cli.py, not a flag
Output = Annotated[Path | None, Parameter(alias="-o")]
