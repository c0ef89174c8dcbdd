"""The pictures of `transduce inspect`, and of commands in a terminal, in docs/images, taken with a browser.

python docs/screenshots.py runs/demo
python docs/screenshots.py watch.png "transduce watch runs/demo runs/rnn --every 1" "transduce runs runs"

Needs the demo's model (`transduce demo`), playwright (`pip install playwright`) and chromium. A command is given a
terminal of 120 columns; of one that does not end by itself, what stands there after some seconds is shown.
"""

import fcntl
import html
import os
import pty
import re
import select
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

import transduce

SENTENCE = "ich möchte ein bier trinken"
IMAGES = Path(__file__).parent / "images"


def opened(browser: Browser, page: Path, theme: str, layer: int, head: int) -> Page:
    """With one head of the encoder-decoder attention chosen, counted from 0."""
    shown = browser.new_page(viewport={"width": 1200, "height": 950}, color_scheme=theme)
    shown.goto(page.as_uri())
    shown.click(f"#overview [data-layer='{layer}'][data-head='{head}']")
    return shown


def screen(command: str, seconds: float = 6.0) -> str:
    """What a command leaves on a terminal."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    process = subprocess.Popen(shlex.split(command), stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    os.close(slave)
    seen, until = b"", time.monotonic() + seconds
    while time.monotonic() < until and (process.poll() is None or select.select([master], [], [], 0.2)[0]):
        if select.select([master], [], [], 0.2)[0]:
            try:
                seen += os.read(master, 65536)
            except OSError:  # the terminal's other end is closed
                break
    process.kill()
    text = seen.decode(errors="replace").rpartition("\x1b[2K")[2]  # after the last time that a line was wiped
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "").rstrip()


def terminal(picture: str, *commands: str) -> None:
    """Commands and what they show, as a picture."""
    shown = "\n\n".join(f"<b>$ {html.escape(command)}</b>\n{html.escape(screen(command))}" for command in commands)
    style = "margin: 0; padding: 18px; background: #1e1e1e; color: #ddd; font: 14px/1.25 'DejaVu Sans Mono', monospace"
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1060, "height": 200})
        page.set_content(f'<pre style="{style}">{shown}</pre>')
        page.locator("pre").screenshot(path=IMAGES / picture)
        browser.close()


def main(model: str) -> None:
    trace = transduce.load(model).trace(SENTENCE)
    entropy = trace.entropy("cross")
    layer, head = divmod(int(entropy.argmin()), entropy.shape[1])  # the sharpest
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = trace.save(Path(folder) / "page.html")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for theme in ("light", "dark"):
            opened(browser, page, theme, layer, head).screenshot(path=IMAGES / f"inspect-{theme}.png")
        shown = opened(browser, page, "light", layer, head)
        shown.locator("#cell").scroll_into_view_if_needed()
        shown.locator("#lines [role=option]", has_text="drink").hover()
        top = shown.locator("#head-title").bounding_box()["y"] - 16
        clip = {"x": 0, "y": top, "width": 800, "height": shown.locator("#cell").bounding_box()["y"] - top + 40}
        shown.screenshot(path=IMAGES / "inspect-hover.png", clip=clip)
        shown = opened(browser, page, "light", layer, head)
        shown.keyboard.press("w")
        shown.screenshot(path=IMAGES / "inspect-words.png")
        shown = opened(browser, page, "light", layer, head)
        alignment, steps = (shown.locator(f"{name}").bounding_box() for name in ("#alignment-title", "#steps"))
        between = {
            "x": 0,
            "y": alignment["y"] - 12,
            "width": 1200,
            "height": steps["y"] + steps["height"] - alignment["y"] + 20,
        }
        shown.screenshot(path=IMAGES / "inspect-steps.png", full_page=True, clip=between)
        shown.locator("#beams-section").screenshot(path=IMAGES / "inspect-beams.png")
        browser.close()


if __name__ == "__main__":
    terminal(*sys.argv[1:]) if sys.argv[1].endswith(".png") else main(*sys.argv[1:])
