"""The committed Python code is what the .proto gives, whichever version of the tools made it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

from sirius.transport import broadcast_pb2, packets, sirius_pb2

ROOT = Path(__file__).resolve().parents[2]


def without_json_names(file: Any) -> Any:
    """Some versions write those down and some do not; they follow from the names."""
    messages = list(file.message_type)
    for message in messages:
        messages.extend(message.nested_type)
        for field in (*message.field, *message.extension):
            field.ClearField("json_name")
    return file


both = pytest.mark.parametrize("made", [sirius_pb2, broadcast_pb2])


@both
def test_the_python_code_is_up_to_date(tmp_path: Path, made: Any) -> None:
    out = tmp_path / "descriptors"
    folder = ROOT / "proto"
    arguments = [f"--proto_path={folder}", f"--descriptor_set_out={out}", made.DESCRIPTOR.name]
    assert protoc.main(["protoc", *arguments]) == 0
    (wanted,) = FileDescriptorSet.FromString(out.read_bytes()).file
    committed = FileDescriptorProto.FromString(made.DESCRIPTOR.serialized_pb)
    assert without_json_names(committed) == without_json_names(wanted), "run `make proto`"


@both
def test_the_stub_names_every_message_and_field(made: Any) -> None:
    name = made.__name__.rpartition(".")[2]
    stub = (ROOT / "sirius" / "transport" / f"{name}.pyi").read_text("utf-8")
    named = {
        name: set(re.findall(r'"(\w+)"', slots))
        for name, slots in re.findall(r"^class (\w+)\(.*\):\n    __slots__ = \((.*)\)", stub, re.M)
    }
    assert named == {
        name: {field.name for field in message.fields}
        for name, message in made.DESCRIPTOR.message_types_by_name.items()
    }


@both
def test_packets_are_fields_of_frames_and_blobs_of_envelopes(made: Any) -> None:
    assert made.Frame.ENVELOPES_FIELD_NUMBER == packets.ENVELOPES
    assert made.Envelope.BLOBS_FIELD_NUMBER == packets.BLOBS
