"""Recordings: a stream of scenes, beats and looks in a compressed, versioned file.

The file is a series of gzip members, each one line of JSON: first a header, then the parts. ``gzip -dc`` shows it, and one that was
cut off (a full disk, a killed process) opens up to the cut. The single observation that
``observation.save_observation`` writes opens as well, as a stream of two beats.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import msgspec

from pgqdoctor import __version__
from pgqdoctor import observation as observations
from pgqdoctor.errors import USAGE, PgqdoctorError
from pgqdoctor.history import History, Part, decode_line, encode
from pgqdoctor.observation import Observation
from pgqdoctor.redact import Redactor
from pgqdoctor.window import Beat, Look, Scene, observation_of

SCHEMA = "pgqdoctor.recording/1"
WINDOW_S = 10.0
"""The window of ``report --from``: the same as that of a live report."""
_CHUNK = 1 << 16
_GZIP = b"\x1f\x8b"
_HINT = "Record one with: pgqdoctor record DSN FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line of a recording; ``redacted`` tells that names and literals were replaced."""

    schema: str
    tool_version: str = ""
    redacted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What a file turned out to be; ``cut`` says that it ends in the middle of a part."""

    header: Header
    beats: int
    cut: bool


class Writer:
    """Writes a recording part by part; every part is complete in the file once ``add`` returns.

    Raises PgqdoctorError where the file cannot be written.
    """

    def __init__(self, path: Path, *, redacted: bool = False) -> None:
        self.path = path
        self._redactor = Redactor() if redacted else None
        header = Header(schema=SCHEMA, tool_version=__version__, redacted=redacted)
        try:
            self._file: IO[bytes] = path.open("wb")
        except OSError as error:
            raise _unwritable(path, error) from error
        self._write(gzip.compress(msgspec.json.encode(header) + b"\n", mtime=0))

    def add(self, part: Part) -> None:
        """Write one part, redacted where that was asked for."""
        self._write(encode(self._redactor.part(part) if self._redactor is not None else part))

    def add_encoded(self, member: bytes) -> None:
        """Write a part that is encoded already."""
        if self._redactor is None:
            self._write(member)
            return
        part = decode_line(gzip.decompress(member))
        if part is not None:
            self.add(part)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, data: bytes) -> None:
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise _unwritable(self.path, error) from error


def write_history(history: History, path: Path, *, redacted: bool = False) -> int:
    """Write what a history keeps; return the number of bytes.

    Raises PgqdoctorError where the file cannot be written.
    """
    writer = Writer(path, redacted=redacted)
    try:
        for member in history.members():
            writer.add_encoded(member)
    finally:
        writer.close()
    return path.stat().st_size


def open_recording(path: Path, history: History) -> Opened:
    """Read a recording, or a saved observation, into a history.

    Raises PgqdoctorError where the file cannot be read, is none, or holds no window at all.
    """
    header: Header | None = None
    cut = False
    try:
        for line in _lines(path):
            if line is None:
                cut = True
                break
            if header is None:
                header = _header(path, line)
                if header.schema == observations.SCHEMA:
                    for part in parts_of(observations.load_observation(path)):
                        history.add(part)
                    break
                continue
            try:
                part_read = decode_line(line)
            except msgspec.DecodeError:
                cut = True
                break
            if part_read is not None:
                history.add(part_read)
    except OSError as error:
        raise PgqdoctorError(f"could not read {path}: {error.strerror or error}", exit_code=USAGE) from error
    if header is None:
        raise PgqdoctorError(f"{path} is not a pgqdoctor recording", hint=_HINT, exit_code=USAGE)
    first, end = history.span()
    if end - first < 2:
        raise PgqdoctorError(
            f"{path} was cut off before its second reading"
            if cut
            else f"{path} holds fewer than two readings",
            hint="A recording needs a few seconds: pgqdoctor record DSN FILE --for 1m",
            exit_code=USAGE,
        )
    return Opened(header=header, beats=end - first, cut=cut)


def last_observation(path: Path, window_s: float = WINDOW_S) -> Observation:
    """Return the observation of a recording's last window, or the saved observation as it is.

    Raises PgqdoctorError as ``open_recording`` does.
    """
    first_line = next(iter(_lines_or_fail(path)), None)
    if first_line is not None and _header(path, first_line).schema == observations.SCHEMA:
        return observations.load_observation(path)
    history = History(most_beats=1_000_000, most_bytes=1 << 40)
    opened = open_recording(path, history)
    for number in range(history.span()[1] - 1, history.span()[0], -1):
        # The last beat may stand alone behind a gap: then the window before the gap is the last one.
        seen = observation_of(history.moments(number, window_s))
        if seen is not None:
            return replace(seen, interrupted=opened.cut)
    raise PgqdoctorError(f"{path} holds no two readings of one connection", hint=_HINT, exit_code=USAGE)


def parts_of(seen: Observation) -> tuple[Part, ...]:
    """Return an observation as a stream of two beats."""
    scene = Scene(
        tool_version=seen.tool_version,
        server=seen.server,
        catalog=seen.catalog,
        statement_texts=seen.statement_texts,
        queues=seen.queues,
        looked_for=seen.looked_for,
        lacks=seen.lacks,
    )
    return (
        scene,
        Look(at=seen.last.at, probes=seen.probes),
        Beat(reading=seen.first, samples=(), texts_start=0, texts=seen.texts, resumed=True),
        Beat(reading=seen.last, samples=seen.samples, texts_start=len(seen.texts), texts=()),
    )


def _lines_or_fail(path: Path) -> Iterator[bytes | None]:
    try:
        yield from _lines(path)
    except OSError as error:
        raise PgqdoctorError(f"could not read {path}: {error.strerror or error}", exit_code=USAGE) from error


def _header(path: Path, line: bytes | None) -> Header:
    try:
        header = msgspec.json.decode(line or b"", type=Header)
    except msgspec.DecodeError:
        raise PgqdoctorError(f"{path} is not a pgqdoctor recording", hint=_HINT, exit_code=USAGE) from None
    if header.schema not in (SCHEMA, observations.SCHEMA):
        raise PgqdoctorError(
            f"{path} has the schema {header.schema!r}, this version reads {SCHEMA!r}",
            hint="Use the pgqdoctor version that wrote it.",
            exit_code=USAGE,
        )
    return header


def _lines(path: Path) -> Iterator[bytes | None]:
    """Yield the lines of a file of joined gzip members, or of a plain one; None stands for a cut and is the last."""
    with path.open("rb") as file:
        start = file.read(2)
        file.seek(0)
        if start != _GZIP:
            for line in file:
                yield line if line.endswith((b"\n", b"}")) else None
            return
        waiting = b""
        while True:
            inflate = zlib.decompressobj(wbits=31)
            pieces: list[bytes] = []
            while not inflate.eof:
                data = waiting or file.read(_CHUNK)
                waiting = b""
                if not data:
                    if pieces or not inflate.eof:
                        yield None
                    return
                try:
                    pieces.append(inflate.decompress(data))
                except zlib.error:
                    yield None
                    return
            waiting = inflate.unused_data
            yield b"".join(pieces)
            if not waiting:
                waiting = file.read(_CHUNK)
                if not waiting:
                    return


def _unwritable(path: Path, error: OSError) -> PgqdoctorError:
    return PgqdoctorError(f"could not write {path}: {error.strerror}", exit_code=USAGE)
