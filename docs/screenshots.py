"""The pictures of `transduce inspect` in docs/images, taken with a browser.

python docs/screenshots.py runs/demo

Needs the demo's model (`transduce demo`), playwright (`pip install playwright`) and chromium.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

import transduce

SENTENCE = "ich möchte ein bier trinken"
IMAGES = Path(__file__).parent / "images"


def opened(browser: Browser, page: Path, theme: str, layer: int, head: int) -> Page:
    """With one head of the decoder-encoder attention chosen, counted from 0."""
    shown = browser.new_page(viewport={"width": 1200, "height": 950}, color_scheme=theme)
    shown.goto(page.as_uri())
    shown.click(f"#overview [data-layer='{layer}'][data-head='{head}']")
    return shown


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
    main(*sys.argv[1:])
