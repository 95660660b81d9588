"""Streams, windows and recordings."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from pgqdoctor.errors import PgqdoctorError
from pgqdoctor.frames import frame_of
from pgqdoctor.history import History, Part, decode, encode
from pgqdoctor.observation import Observation, load_observation, save_observation
from pgqdoctor.recording import Writer, last_observation, open_recording, parts_of, write_history
from pgqdoctor.render.phrases import verdict_word
from pgqdoctor.window import Beat, Look, Moment, Scene, Stream, observation_of, window_of

RECORDINGS = Path(__file__).parents[2] / "fixtures" / "observations"
STREAM = RECORDINGS / "idle-snapshot.pgqd"
SINGLE = RECORDINGS / "idle-snapshot.json.gz"


def parts() -> list[Part]:
    """The parts of the recording, in order."""
    history = History()
    open_recording(STREAM, history)
    found = [decode(member) for member in history.members()]
    return [one for one in found if one is not None]


def moments() -> list[Moment]:
    stream = Stream()
    return [moment for part in parts() if (moment := stream.take(part)) is not None]


@pytest.fixture(scope="module")
def seen() -> Observation:
    return load_observation(SINGLE)


def test_window_reaches_back_as_far_as_asked() -> None:
    all_moments = moments()
    window = window_of(all_moments, 6.0)
    assert 6.0 <= window[-1].beat.at - window[0].beat.at < 9.0
    assert window[-1] is all_moments[-1]
    assert list(window_of(all_moments[:1], 6.0)) == all_moments[:1]
    assert window_of([], 6.0) == ()


def test_window_does_not_reach_across_a_gap() -> None:
    all_moments = moments()
    place = len(all_moments) - 3
    gap = all_moments[place]
    all_moments[place] = replace(gap, beat=replace(gap.beat, resumed=True))
    assert window_of(all_moments, 60.0)[0] is all_moments[place]


def test_observation_needs_two_readings() -> None:
    assert observation_of(moments()[:1]) is None
    assert observation_of(()) is None


def test_samples_are_those_between_the_readings() -> None:
    window = moments()[2:6]
    made = observation_of(window)
    assert made is not None
    assert len(made.samples) == sum(len(one.beat.samples) for one in window[1:])
    assert all(made.first.at <= one.at <= made.last.at for one in made.samples)


def test_what_was_not_looked_at_yet_is_not_called_healthy() -> None:
    window = [replace(one, look=None) for one in moments()[:3]]
    made = observation_of(window)
    assert made is not None
    report = frame_of(made).report
    unseen = {one.check for one in report.skipped if "has not ended yet" in one.reason}
    assert {"claim-scans-dead-rows", "claim-scans-consumed-rows", "queue-unserved"} <= unseen
    assert verdict_word(replace(report, findings=(), verdict="healthy")) == "HEALTHY AS FAR AS SEEN"
    looked = observation_of(moments()[-3:])
    assert looked is not None
    assert not [one for one in looked.lacks if "has not ended yet" in one.reason]


def test_samples_keep_their_statements_across_a_new_list_of_texts() -> None:
    """The poller begins a new list of texts from time to time; an old sample must not get another's statement."""
    window = [replace(one, texts=("SELECT 'first'", *one.texts[1:])) for one in moments()[:4]]
    last = window[-1]
    window[-1] = replace(last, texts=("SELECT 'other'", "SELECT 'first'"))
    session = window[1].beat.samples[0].sessions[0]
    sample = replace(window[1].beat.samples[0], sessions=(replace(session, text=0), replace(session, text=1)))
    window[1] = replace(window[1], beat=replace(window[1].beat, samples=(sample,)))
    made = observation_of(window)
    assert made is not None
    kept, lost = made.samples[0].sessions[:2]
    assert made.texts[kept.text] == "SELECT 'first'"
    assert lost.text == -1


def test_a_part_survives_the_file(tmp_path: Path) -> None:
    for part in parts()[:4]:
        assert decode(encode(part)) == part


def test_a_recording_gives_the_findings_of_its_last_window() -> None:
    live = observation_of(window_of(moments(), 10.0))
    assert live is not None
    again = last_observation(STREAM)
    assert again == live
    assert [one.key for one in frame_of(again).report.findings] == [
        one.key for one in frame_of(live).report.findings
    ]


def test_a_single_observation_opens_as_it_was_saved(seen: Observation, tmp_path: Path) -> None:
    assert last_observation(SINGLE) == seen
    history = History()
    assert open_recording(SINGLE, history).beats == 2
    made = observation_of(history.moments(1, 10.0))
    assert made is not None
    assert replace(made, generated_at=seen.generated_at) == seen
    plain = tmp_path / "plain.json"
    plain.write_bytes(gzip.decompress(SINGLE.read_bytes()))
    assert last_observation(plain) == seen


def test_a_plain_text_recording_opens_too(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_bytes(gzip.decompress(STREAM.read_bytes()))
    assert last_observation(plain) == last_observation(STREAM)


@pytest.mark.parametrize("share", [0.35, 0.5, 0.75, 0.9, 0.999])
def test_a_cut_recording_opens_up_to_the_cut(tmp_path: Path, share: float) -> None:
    data = STREAM.read_bytes()
    cut = tmp_path / "cut.pgqd"
    cut.write_bytes(data[: int(len(data) * share)])
    whole, part = History(), History()
    all_beats = open_recording(STREAM, whole).beats
    opened = open_recording(cut, part)
    assert opened.cut
    assert 2 <= opened.beats < all_beats
    assert part.times() == whole.times()[: opened.beats]
    assert last_observation(cut).interrupted


def test_every_cut_either_opens_or_says_why_not(tmp_path: Path) -> None:
    data = STREAM.read_bytes()
    cut = tmp_path / "cut.pgqd"
    for length in (0, 1, 2, 10, 60, 100, 140, 5_000, 12_000, 20_000, len(data) - 9, len(data) - 1):
        cut.write_bytes(data[:length])
        try:
            last_observation(cut)
        except PgqdoctorError as error:
            assert error.exit_code == 2
            assert "recording" in error.message or "reading" in error.message


def test_damage_in_the_middle_is_a_cut(tmp_path: Path) -> None:
    data = bytearray(STREAM.read_bytes())
    place = len(data) * 3 // 4
    data[place : place + 40] = b"\x00" * 40
    damaged = tmp_path / "damaged.pgqd"
    damaged.write_bytes(data)
    assert open_recording(damaged, History()).cut


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"hello", id="text"),
        pytest.param(b"{}", id="plain object"),
        pytest.param(gzip.compress(b"{}\n"), id="object"),
        pytest.param(gzip.compress(b"[1]"), id="list"),
        pytest.param(b"\x1f\x8bno", id="broken gzip"),
        pytest.param(bytes(range(256)), id="bytes"),
    ],
)
def test_what_is_no_recording_is_said_in_a_sentence(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "other"
    file.write_bytes(content)
    with pytest.raises(PgqdoctorError, match="not a pgqdoctor recording"):
        last_observation(file)


def test_another_schema_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "later"
    file.write_bytes(gzip.compress(b'{"schema":"pgqdoctor.recording/9"}\n'))
    with pytest.raises(PgqdoctorError, match="recording/9"):
        open_recording(file, History())


def test_a_kind_of_a_later_version_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "later.pgqd"
    file.write_bytes(STREAM.read_bytes() + gzip.compress(b'{"kind":"weather","body":{"rain":true}}\n'))
    assert not open_recording(file, History()).cut


def test_missing_file_is_said() -> None:
    with pytest.raises(PgqdoctorError, match="could not read"):
        last_observation(Path("/nowhere/at/all"))


def test_redacted_recording_names_nobody_and_keeps_the_findings(tmp_path: Path) -> None:
    history = History()
    open_recording(STREAM, history)
    file = tmp_path / "redacted.pgqd"
    write_history(history, file, redacted=True)
    text = gzip.decompress(file.read_bytes())
    assert b'"redacted":true' in text.splitlines()[0]
    assert b"analytics" not in text
    assert b'"application":"worker"' not in text
    assert b'"database":"app"' not in text
    assert [one.check for one in frame_of(last_observation(file)).report.findings] == [
        one.check for one in frame_of(last_observation(STREAM)).report.findings
    ]


def test_writing_says_where_it_failed(tmp_path: Path) -> None:
    with pytest.raises(PgqdoctorError, match="could not write"):
        Writer(tmp_path / "no" / "such" / "file")


def test_save_observation_and_the_stream_agree(seen: Observation, tmp_path: Path) -> None:
    file = tmp_path / "again.json.gz"
    save_observation(seen, file)
    assert last_observation(file) == seen
    kinds = [type(part) for part in parts_of(seen)]
    assert kinds == [Scene, Look, Beat, Beat]


class TestHistory:
    def test_it_is_bounded_in_number(self) -> None:
        history = History(most_beats=4)
        numbers = [number for part in parts() if (number := history.add(part)) is not None]
        assert numbers == list(range(len(numbers)))
        assert history.span() == (len(numbers) - 4, len(numbers))
        assert len(history.times()) == 4

    def test_it_is_bounded_in_bytes(self) -> None:
        history = History(most_bytes=12_000)
        for part in parts():
            history.add(part)
        assert history.size <= 12_000
        assert history.span()[1] - history.span()[0] >= 2

    def test_what_is_left_can_still_be_written_and_read(self, tmp_path: Path) -> None:
        """The beats that brought the statement texts are gone: the first that is left brings them."""
        history = History(most_beats=4)
        for part in parts():
            history.add(part)
        file = tmp_path / "left.pgqd"
        write_history(history, file)
        again = History()
        assert open_recording(file, again).beats == 4
        for number in range(1, 4):
            written = observation_of(again.moments(number, 10.0))
            assert written == observation_of(history.moments(history.span()[0] + number, 10.0))

    def test_moments_of_a_beat_that_is_gone(self) -> None:
        history = History(most_beats=3)
        for part in parts():
            history.add(part)
        assert history.moments(0, 10.0) == ()

    def test_a_beat_before_any_scene_is_nothing(self) -> None:
        beat = next(part for part in parts() if isinstance(part, Beat))
        assert History().add(beat) is None

    def test_an_hour_stays_within_its_bounds(self) -> None:
        """Two hours at two seconds: the oldest go, the memory stays."""
        history = History(most_beats=100)
        stream = parts()
        beats = [part for part in stream if isinstance(part, Beat)]
        for part in stream:
            history.add(part)
        encoded = {id(beat): encode(beat) for beat in beats}
        sizes = []
        for turn in range(3_600):
            beat = beats[turn % len(beats)]
            history.add(beat, encoded[id(beat)])
            if turn % 600 == 599:
                sizes.append(history.size)
        assert len(history.times()) == 100
        assert max(sizes) < 1.1 * min(sizes)


def test_header_is_readable_by_hand() -> None:
    first = gzip.decompress(STREAM.read_bytes()).splitlines()[0]
    assert msgspec.json.decode(first)["schema"] == "pgqdoctor.recording/1"
