"""What machines say and do, in words that a person can read: for transcripts, and for a test that fails."""

from __future__ import annotations

from typing import Any

from sirius.paxos import Configuration, Machine, Member, PValue, Request
from sirius.paxos.effects import (
    Answer,
    Done,
    Entry,
    KeepAccepted,
    KeepBallot,
    KeepNote,
    KeepPromise,
    ReadAt,
    Trim,
)
from sirius.types import NO_BALLOT, Ballot
from tests.paxos.words import Words


class Speaker:
    """Knows the names of node ids. A second life of a disk is a', a third one a''."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}

    def show_ballot(self, ballot: Ballot) -> str:
        if ballot == NO_BALLOT:
            return "none"
        return f"{ballot.round}.{self.names.get(ballot.node, ballot.node)}"

    def show_value(self, value: Any) -> str:
        return show_slots(value) + " " + " ".join(self.show_word(word) for word in value)

    def show_word(self, word: Any) -> str:
        if word.configuration is None:
            return str(word.text)
        return self.show_configuration(word.configuration)

    def show_configuration(self, configuration: Configuration) -> str:
        voters = "".join(self.names[member.node] for member in configuration.voters)
        learners = "".join(self.names[member.node] for member in configuration.learners)
        shown = f"#{configuration.number} {voters}" + (f"+{learners}" if learners else "")
        reign = configuration.reign
        return f"[{shown}]" if reign == NO_BALLOT else f"[{shown} by {self.show_ballot(reign)}]"

    def show_entry(self, entry: Entry) -> str:
        match entry:
            case KeepPromise(ballot):
                return f"promise {self.show_ballot(ballot)}"
            case KeepBallot(ballot):
                return f"ballot {self.show_ballot(ballot)}"
            case KeepAccepted(ballot, value):
                return f"accepted {self.show_ballot(ballot)} {self.show_value(value)}"
            case KeepNote(key, note):
                return f"note {key} {self._show_field(note)}"
            case Trim(decided):
                return f"trim {decided}"

    def show(self, message: Any) -> str:
        fields = " ".join(
            f"{name}={self._show_field(field)}"
            for name, field in zip(message._fields, message, strict=True)
            if field is not False and field is not None
        )
        return f"{type(message).__name__} {fields}".rstrip()

    def _show_field(self, field: Any) -> str:
        match field:
            case Ballot():
                return self.show_ballot(field)
            case Words():
                return self.show_value(field)
            case Configuration():
                return self.show_configuration(field)
            case Member() | PValue() | Request() | tuple():
                return self._show_tuple(field)
            case int() if field > 1 << 32:
                return "#"
        return str(field)

    def _show_tuple(self, field: Any) -> str:
        match field:
            case Member(_, name):
                return name
            case PValue(ballot, value):
                return f"{self.show_ballot(ballot)}:{self.show_value(value)}"
            case Request(_, serial, _, updates, _, cancelled):
                return f"{serial}:" + " ".join("-" if cancelled else each for each in updates)
        return "(" + ", ".join(map(self._show_field, field)) + ")"


def show_leader(machine: Machine) -> str:
    return machine.leader.name if machine.leader else "nobody"


def show_slots(value: Any) -> str:
    return f"{value.first}" if value.first == value.last else f"{value.first}-{value.last}"


def show_answer(answer: Answer) -> str:
    match answer:
        case Done(token, last):
            return f"{token}: done, {last}"
        case ReadAt(token, slot):
            return f"{token}: read at {slot}"
    return f"{answer.token}: {type(answer).__name__.lower()}, {answer.reason}"
