from __future__ import annotations

from pathlib import Path

from poolhouse.stack.status_file import tail, trim_log


def test_a_log_over_its_limit_is_trimmed_under_its_writer(tmp_path: Path) -> None:
    log = tmp_path / "component.log"
    with log.open("ab", buffering=0) as writer:
        writer.write(b"old\n" * 100)
        assert trim_log(log, limit_bytes=100)
        writer.write(b"new\n")
    assert log.read_bytes() == b"new\n"
    assert (tmp_path / "component.log.1").read_bytes() == b"old\n" * 100


def test_a_log_within_its_limit_is_not_trimmed(tmp_path: Path) -> None:
    log = tmp_path / "component.log"
    assert not trim_log(log)
    log.write_text("line\n")
    assert not trim_log(log)
    assert log.read_text() == "line\n"


def test_tail(tmp_path: Path) -> None:
    log = tmp_path / "component.log"
    log.write_text("".join(f"line {n}\n" for n in range(100_000)) + "x" * 1000)
    assert tail(log, lines=2, width=10) == "line 99999\nxxxxxxxxxx"
    assert tail(tmp_path / "none") == ""
