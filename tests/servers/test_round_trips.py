from kip30_conformance.servers.round_trips import Turns

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING = 0, 1, 4, 6


def frame(kind: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, 0, 0, 0, 0, 1]) + payload


REQUEST = frame(HEADERS, b"to whom") + frame(DATA, b"what")
ANSWER = frame(HEADERS) + frame(DATA, b"that") + frame(HEADERS, b"done")


def test_an_answer_in_several_pieces_is_one_turn() -> None:
    turns = Turns()
    turns.ask(b"ru")
    turns.ask(b"ok")
    assert [turns.answer(piece) for piece in (b"im", b"ok")] == [True, False]


def test_an_unsolicited_message_is_not_a_response() -> None:
    assert not Turns().answer(b"hello")


def test_pings_ask_and_answer_nothing() -> None:
    turns = Turns()
    turns.ask(PREFACE + frame(SETTINGS, b"six of it"))
    assert not turns.answer(frame(SETTINGS))
    turns.ask(REQUEST)
    assert not turns.answer(frame(PING, b"8 bytes."))
    assert turns.answer(ANSWER)
    turns.ask(frame(PING, b"8 bytes."))
    assert not turns.answer(frame(PING, b"8 bytes."))


def test_frames_may_be_cut_anywhere() -> None:
    said, told = PREFACE + frame(SETTINGS) + REQUEST, frame(PING, b"8 bytes.") + ANSWER
    for size in range(1, len(said)):
        turns = Turns()
        for begin in range(0, len(said), size):
            turns.ask(said[begin : begin + size])
        answers = [turns.answer(told[at : at + size]) for at in range(0, len(told), size)]
        assert sum(answers) == 1
