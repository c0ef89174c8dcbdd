"""The command line as people meet it: a process, its output, its exit code."""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from conftest import bundled_pairs
from processes import transduce
from rich.console import Console

from transduce import cli
from transduce.report import Table
from transduce.terminal import Terminal, table_lines

QUICK = ["--model.layers=1", "--model.d_model", "32", "--model.heads=2", "--model.d_ff=32", "--text.vocabulary=300"]
QUICK += ["--training.bleu_lines=5", "--training.log_every=1", "--device=cpu"]


def refused(capfd: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """The one sentence of a command that must fail with exit code 2."""
    assert cli.main([str(word) for word in words]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert "Traceback" not in err
    assert err.startswith("transduce: ")
    assert len(err.strip().splitlines()) == 1, err
    return err.strip().removeprefix("transduce: ")


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    pairs = bundled_pairs(120)
    (tmp_path / "a.de").write_text("".join(f"{s}\n" for s, _ in pairs))
    (tmp_path / "a.en").write_text("".join(f"{t}\n" for _, t in pairs))
    return tmp_path / "a.de", tmp_path / "a.en"


# ---- train, translate, evaluate, score: the path through the house


def test_from_two_files_to_scores(files: tuple[Path, Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["train", run, "--source", files[0], "--target", files[1], *QUICK, "--training.steps=3"]
    command = [sys.executable, "-m", "transduce", *map(str, words)]
    trained = subprocess.run(command, capture_output=True, text=True, check=False)
    assert trained.returncode == 0, trained.stderr
    assert trained.stdout == ""
    assert "6 of 120 pairs are set aside" in trained.stderr
    assert "slots empty" in trained.stderr
    assert "all steps done" in trained.stderr
    for name in ("config.yaml", "model.safetensors", "tokenizer.model", "manifest.json", "metrics.jsonl", "curve.png"):
        assert (run / name).exists(), name
    again = transduce("train", run, "--training.steps=5")
    assert "going on from step 2, before its learning rate fell" in again.stderr
    assert again.returncode == 0

    translated = transduce("translate", run, files[0])
    assert translated.returncode == 0
    assert translated.stdout.count("\n") == 120
    piped = transduce("translate", run, text=files[0].read_text())
    assert piped.stdout == translated.stdout
    written = transduce("translate", run, files[0], "-o", tmp_path / "out.en")
    assert written.stdout == ""
    assert (tmp_path / "out.en").read_text() == translated.stdout

    words = ["evaluate", run, "--source", files[0], "--reference", files[1], "--against", tmp_path / "out.en"]
    scored = transduce(*words, "--json")
    result = json.loads(scored.stdout)
    assert set(result["scores"]) == {"BLEU", "chrF", "TER"}
    assert result["scores"]["BLEU"]["signature"].startswith("nrefs:1|")
    assert result["against"]["BLEU"]["ours"] == result["against"]["BLEU"]["theirs"]
    shown = transduce(*words).stdout
    assert f"BLEU: {result['scores']['BLEU']['signature']}" in shown
    assert "have the same BLEU" in shown

    probabilities = transduce("score", run, "--source", files[0], "--target", files[1])
    values = [float(line) for line in probabilities.stdout.splitlines()]
    assert len(values) == 120
    assert max(values) < 0
    first = json.loads(
        transduce("score", run, "--source", files[0], "--target", files[1], "--json").stdout.splitlines()[0]
    )
    assert first["log_probability"] == pytest.approx(values[0], abs=1e-3)

    drawn = transduce("plot", "curve", run, "-o", tmp_path / "c.svg")
    assert drawn.returncode == 0
    assert (tmp_path / "c.svg").exists()


def test_a_thousand_lines_of_all_kinds(model_folder: Path, tmp_path: Path) -> None:
    lines = [f"ich trinke {i} biere" for i in range(1000)]
    for i in range(50):
        lines[i * 20 + 3] = ("", "  ", "\t")[i % 3]
    lines[7], lines[8], lines[9] = "abc " * 5000, "😀 ich 👍🏽", "ich\ttrinke\tbier"
    (tmp_path / "in").write_bytes(b"\xef\xbb\xbf" + "\n".join(lines).encode() + b"\n")
    done = transduce("translate", model_folder, tmp_path / "in", "--json", "--beam", "1")
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in done.stdout.split("\n")[:-1]]
    assert [r["line"] for r in records] == list(range(1, 1001))
    statuses = [r["status"] for r in records]
    assert statuses.count("empty") == 50
    assert statuses[7] == "long"
    assert set(statuses) <= {"ok", "empty", "long", "length"}
    assert len(records[7]["parts"]) > 1
    assert records[0]["source"] == lines[0]
    assert "status long (a sentence of more than 63 tokens, translated in pieces): 1 in all, line 8" in done.stderr
    whole = transduce("translate", model_folder, tmp_path / "in", "--json", "--beam", "1", "--no-split")
    assert json.loads(whole.stdout.split("\n")[7])["status"] == "truncated"
    assert "status truncated (more than 63 tokens, the rest left out): 1 in all, line 8" in whole.stderr
    plain = transduce("translate", model_folder, tmp_path / "in", "--beam", "1")
    assert plain.stdout.count("\n") == 1000


def test_n_best_lines(model_folder: Path) -> None:
    done = transduce("translate", model_folder, "--n-best", "2", text="ich schlafe\n\ndu schläfst\n")
    rows = [line.split("\t") for line in done.stdout.split("\n")[:-1]]
    assert [row[0] for row in rows] == ["1", "1", "2", "3", "3"]
    assert rows[2] == ["2", "0.0000", ""]


# ---- what stops it


def test_a_flag_that_is_given_too_often(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--forbid", "x"], ["--forbid=x"]):
        assert cli.main(["translate", "model", *words * 3000]) == 2
        told = capsys.readouterr().err
        assert "--forbid is given 3,000 times, and a command line takes a flag 300 times at most" in told


ESCAPES = "\x1b[2J\x1b]0;title\x07\x9b31m\r\x7f"
ESCAPED = r"\x1b[2J\x1b]0;title\x07\x9b31m\x0d\x7f"
SPARED = "中文e\u0301 \u05e9\u05dc\u05d5\u05dd\u200f \u202bعربي\u202c \U0001f468\u200d\U0001f469"


def test_names_do_not_steer_the_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli.main(["translate", f"no {SPARED}{ESCAPES} model"]) == 2
    told = capsys.readouterr().err
    assert f"{SPARED}{ESCAPED}" in told
    terminal = Terminal()
    terminal.say(ESCAPES)
    terminal.warn(ESCAPES)
    with terminal.progress(f"translate with {ESCAPES}") as bar:
        monkeypatch.setattr("transduce.terminal.EVERY", 0.0)
        bar.update(1)
    table = Table([ESCAPES], [[ESCAPES]], [ESCAPES], [ESCAPES])
    shown = [*capsys.readouterr().err.splitlines(), *table_lines(table, at_terminal=False)]
    assert len(shown) == 3 + 4
    assert all(ESCAPED in line and not set(ESCAPES[:1]) & set(line) for line in shown)


def test_a_bar_shows_any_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brackets are no markup there, and escape sequences none either."""
    shown = io.StringIO()
    terminal = Terminal()
    terminal.console = Console(file=shown, force_terminal=True, width=200)
    with terminal.progress(f"translate with [/red]{ESCAPES}") as bar:
        bar.update(1, lines="1")
    assert f"translate with [/red]{ESCAPED}" in shown.getvalue()
    stdout = io.StringIO()
    monkeypatch.setattr(stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", stdout)
    cli.show(iter([f"{SPARED}{ESCAPES}"]))
    assert stdout.getvalue() == f"{SPARED}{ESCAPED}\n"


def test_a_closed_pipe_is_no_error(model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("ich schlafe\n" * 20_000)  # several chunks, and nothing to compile for them
    words = f"translate {model_folder} {tmp_path / 'in'} --beam 1 --search.engine plain"
    command = f"{sys.executable} -m transduce {words} | head -n 2"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False)
    assert done.stdout.count("\n") == 2
    assert done.returncode == 0
    told = [line for line in done.stderr.splitlines() if not line.startswith("translate: lines")]  # how far it is
    assert told == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_training_is_saved_and_goes_on(tmp_path: Path, number: int, code: int) -> None:
    run = tmp_path / "run"
    (tmp_path / "a.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in bundled_pairs(120)))
    words = ["train", str(run), "--source", str(tmp_path / "a.tsv"), *QUICK, "--training.steps=100000"]
    process = subprocess.Popen([sys.executable, "-m", "transduce", *words], stderr=subprocess.PIPE, text=True)
    while not (run / "metrics.jsonl").exists():
        time.sleep(0.1)
        assert process.poll() is None
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert "the run is saved, the same command goes on" in err
    assert "Traceback" not in err
    (saved,) = (run / "training").glob("step-*")
    step = int(saved.name.removeprefix("step-"))
    more = transduce("train", run, f"--training.steps={step + 2}")
    assert more.returncode == 0, more.stderr
    assert f"going on from step {step:,}" in more.stderr
    assert (run / "curve.png").exists()


def test_interrupted_translation_ends_quietly(model_folder: Path) -> None:
    reads, writes = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "transduce", "translate", str(model_folder)],
        stdin=reads,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # whatever these tests were started with
    )
    os.write(writes, b"ich schlafe\n")
    while unread(reads):  # until it has read that, and waits for more
        time.sleep(0.1)
        assert process.poll() is None
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    os.close(reads)
    os.close(writes)
    assert process.returncode == 130
    assert b"Traceback" not in err


def unread(pipe: int) -> int:
    """Bytes that nobody has read yet."""
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]


@pytest.mark.parametrize(("words", "goes_on"), [(["-o", "out"], True), ([], False)])
def test_who_interrupts_a_file_is_told_how_to_go_on(
    words: list[str], goes_on: bool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("transduce.cli.run", stopped)
    assert cli.main(["translate", "run", "a.txt", *words]) == 130
    assert ("--resume goes on" in capfd.readouterr().err) == goes_on


# ---- wrong input: one sentence, exit code 2


def test_wrong_settings_and_words(capfd: pytest.CaptureFixture[str], tmp_path: Path, model_folder: Path) -> None:
    run = tmp_path / "run"
    assert (
        refused(capfd, "train", run, "--model.layer", "3") == "unknown setting model.layer, did you mean model.layers"
    )
    assert "did you mean tiny" in refused(capfd, "train", run, "--preset", "tinny")
    assert "a trained model takes --search.key flags" in refused(
        capfd, "translate", model_folder, "--model.layers", "3", __file__
    )
    assert "device gpu is not available" in refused(capfd, "translate", model_folder, __file__, "--device", "gpu")
    assert "--source is missing" in refused(capfd, "train", run, "--target", "x")
    assert "--valid-target is given without" in refused(
        capfd, "train", run, "--source", "a", "--target", "b", "--valid-target", "c"
    )
    assert "must be one of auto, cpu" in refused(capfd, "train", run, "--device", "gpu")
    assert "unknown BLEU tokenizer" in refused(
        capfd, "evaluate", model_folder, "--source", __file__, "--reference", __file__, "--tokenize", "x"
    )
    assert not run.exists()


def test_wrong_files(
    capfd: pytest.CaptureFixture[str], files: tuple[Path, Path], tmp_path: Path, model_folder: Path
) -> None:
    run = tmp_path / "run"
    (tmp_path / "bad").write_bytes(b"ok\n\xff\n")
    (tmp_path / "short").write_text("eins\n")
    (tmp_path / "empty").write_text("")
    assert "there is no file nowhere" in refused(capfd, "train", run, "--source", "nowhere", "--target", files[1])
    assert "120 lines but" in refused(capfd, "train", run, "--source", files[0], "--target", tmp_path / "short")
    text = ("--source", files[0], "--target", files[1])
    for valid in ("nowhere", tmp_path / "short", tmp_path / "empty"):  # before anything is learned or written
        problem = refused(capfd, "train", run, *text, "--valid-source", files[0], "--valid-target", valid)
        assert "there is no file nowhere" in problem or "120 lines but" in problem
    assert not run.exists()
    assert "bad, line 2: not valid UTF-8" in refused(
        capfd, "translate", model_folder, tmp_path / "bad", "-o", tmp_path / "new"
    )
    assert "no sentence pairs" in refused(
        capfd, "train", tmp_path / "r2", "--source", tmp_path / "empty", "--target", tmp_path / "empty"
    )
    assert "there is no folder" in refused(capfd, "translate", tmp_path / "none", files[0])
    assert "is not a model folder" in refused(capfd, "translate", tmp_path, files[0])
    assert "for the output out.txt; make it first" in refused(
        capfd, "translate", model_folder, files[0], "-o", tmp_path / "none" / "out.txt"
    )
    assert "cannot write" in refused(capfd, "translate", model_folder, files[0], "-o", tmp_path)
    assert "is an input and cannot be the output too" in refused(
        capfd, "translate", model_folder, files[0], "-o", files[0]
    )
    (tmp_path / "old").write_text("kept")
    assert "there is no file" in refused(
        capfd, "translate", model_folder, files[0], tmp_path / "x", "-o", tmp_path / "old"
    )
    assert "is there already; choose another name, or replace it with --force" in refused(
        capfd, "translate", model_folder, files[0], "-o", tmp_path / "old"
    )
    assert "n_best=9" in refused(
        capfd, "translate", model_folder, files[0], "--n-best", "9", "-o", tmp_path / "old", "--force"
    )
    assert (tmp_path / "old").read_text() == "kept"
    (tmp_path / "wrong.yaml").write_text("data: 5")
    assert "data is a section" in refused(capfd, "train", tmp_path / "r3", "--config", tmp_path / "wrong.yaml")
    assert "cannot write the corpus" in refused(capfd, "corpus", files[0] / "x", "--train", "5")


def test_closed_and_full_streams(model_folder: Path) -> None:
    def shell(words: str) -> tuple[int, str]:
        command = f"{sys.executable} -m transduce {words}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr
        return done.returncode, done.stderr

    code, said = shell(f"translate {model_folder} <&-")
    assert code == 2
    assert "standard input is closed; name a file" in said
    assert shell("settings >&-")[0] == 0
    code, said = shell("settings > /dev/full")
    assert code == 2
    assert "No space left on device: standard output" in said


def test_output_is_utf8_in_any_locale(model_folder: Path) -> None:
    command = [sys.executable, "-m", "transduce", "translate", str(model_folder), "--json"]
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(command, input="möchte 我\n".encode(), capture_output=True, env=plain, check=False)
    assert json.loads(done.stdout.decode("utf-8"))["source"] == "möchte 我"


def test_search_settings_are_flags_of_using_a_model(model_folder: Path) -> None:
    done = transduce("translate", model_folder, "--search.extra", "1", "--json", text="ich schlafe\n")
    record = json.loads(done.stdout)
    assert len(record["candidates"][0]["tokens"]) <= 2 + len("ich schlafe")


def test_bad_bytes_on_a_pipe(model_folder: Path) -> None:
    done = transduce("translate", model_folder, text=b"ich\n\xffbad\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert "standard input, line 2: not valid UTF-8" in done.stderr


# ---- looking things up


def test_presets_settings_and_corpus(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["presets"]) == 0
    out, _ = capfd.readouterr()
    names = [line.split()[0] for line in out.splitlines()]
    assert names[:4] == ["auto", "tiny", "small", "paper-base"]
    assert {"rnn", "rnn-attention", "notes-tutorial", "notes-annotated", "notes-seq2seq", "notes-pytorch"} < {*names}
    assert cli.main(["presets", "notes-pytorch"]) == 0
    out, _ = capfd.readouterr()
    assert "forgets the scale" in out
    assert "* model.attention_bias          false" in out
    assert cli.main(["presets", "paper-big"]) == 0
    out, _ = capfd.readouterr()
    assert "* model.d_model                 1024" in out
    assert "  model.activation              relu" in out
    assert cli.main(["settings"]) == 0
    out, _ = capfd.readouterr()
    assert "--model.layers" in out
    assert "auto for other text" in out
    assert cli.main(["corpus", str(tmp_path / "c"), "--train", "50"]) == 0
    assert len((tmp_path / "c/train.de").read_text().splitlines()) == 50
    assert len((tmp_path / "c/test.en").read_text().splitlines()) == 1000
    assert cli.main(["--version"]) == 0


def test_settings_are_taken_out_of_the_words() -> None:
    words = [
        "train",
        "runs/x.y",
        "--model.layers",
        "3",
        "--text.joint",
        "--source",
        "a.de",
        "--batch.tokens=9",
        "-o",
        "b.c",
    ]
    rest, settings = cli.split_settings(words)
    assert rest == ["train", "runs/x.y", "--source", "a.de", "-o", "b.c"]
    assert settings == {"model": {"layers": "3"}, "text": {"joint": "true"}, "batch": {"tokens": "9"}}
    assert cli.split_settings(["--training.validate-every", "5"])[1] == {"training": {"validate_every": "5"}}


def test_a_bar_on_the_terminal_leaves_standard_output_alone(model_folder: Path, tmp_path: Path) -> None:
    """stderr is a terminal, stdout is a file: the file gets the translations."""
    import pty

    (tmp_path / "in").write_text("ich schlafe\n" * 50)
    primary, secondary = pty.openpty()
    with open(tmp_path / "out", "wb") as out:
        command = [sys.executable, "-m", "transduce", "translate", str(model_folder), str(tmp_path / "in")]
        process = subprocess.Popen(command, stdout=out, stderr=secondary, stdin=subprocess.DEVNULL)
        os.close(secondary)
        shown = b""
        while process.poll() is None:
            try:
                shown += os.read(primary, 4096)
            except OSError:
                break
        process.wait()
    assert process.returncode == 0
    assert (tmp_path / "out").read_text().count("\n") == 50
    assert b"translate" in shown


@pytest.mark.parametrize("command", [function.__name__ for function in cli.COMMANDS])
def test_help_offers_nothing_that_nobody_wants(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, "--help"]) == 0
    flags = set(re.findall(r"--(?:no|empty)-[a-z-]+", capsys.readouterr().out))
    assert flags <= {"--no-split"}
