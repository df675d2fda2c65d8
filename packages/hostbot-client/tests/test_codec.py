"""The wire format, byte by byte, and what it must refuse."""

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from hostbot_client import BadMessage, pack, unpack

DTYPES = ["<f4", "<f8", "<f2", "|u1", "<i8", "<i4", "|b1", ">f4"]


@given(
    st.sampled_from(DTYPES).flatmap(
        lambda d: arrays(d, array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    )
)
@settings(max_examples=200, deadline=None)
def test_arrays_come_back_bit_for_bit(array):
    back = unpack(pack({"images": {"top": array}, "prompt": "stack"}))
    assert back["prompt"] == "stack"
    found = back["images"]["top"]
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert found.tobytes() == array.tobytes()
    assert not found.flags.writeable


def test_the_bytes_are_openpis():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    raw = msgpack.unpackb(pack({"a": array, "s": np.float32(0.5)}), strict_map_key=False)
    assert raw["a"] == {b"__ndarray__": True, b"data": array.tobytes(), b"dtype": "<f4", b"shape": [2, 3]}
    assert raw["s"] == {b"__npgeneric__": True, b"data": 0.5, b"dtype": "<f4"}
    assert unpack(pack({"s": np.float32(0.1)}))["s"] == np.float32(0.1)
    assert isinstance(unpack(pack(np.int16(3))), np.int16)


def test_non_contiguous_arrays_travel_in_their_own_order():
    array = np.arange(12).reshape(3, 4).T[::2]
    np.testing.assert_array_equal(unpack(pack(array)), array)


@pytest.mark.parametrize(
    "value", [np.array([object()]), np.array(["a"]), np.array([1j]), np.zeros(2, "V4"), object(), {1, 2}]
)
def test_what_is_no_number_is_not_sent(value):
    with pytest.raises(BadMessage):
        pack({"x": value})


def array_map(**changes):
    base = {b"__ndarray__": True, b"data": b"\0" * 8, b"dtype": "<f4", b"shape": [2]}
    return msgpack.packb({**base, **{key.encode(): value for key, value in changes.items()}})


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "|O"},
        {"dtype": "O"},
        {"dtype": "<c8"},
        {"dtype": "|V4"},
        {"dtype": "<U2"},
        {"dtype": "f4,f4"},
        {"dtype": "nonsense"},
        {"dtype": "(2,)f4"},
        {"dtype": 3},
        {"dtype": "<M8[s]"},
        {"shape": [3]},
        {"shape": [-2]},
        {"shape": [2**62, 4]},
        {"shape": [True, 2]},
        {"shape": [1] * 7 + [2, 1]},
        {"shape": 2},
        {"shape": ["2"]},
        {"data": "text"},
        {"data": None},
    ],
    ids=str,
)
def test_dangerous_arrays_are_refused(changes):
    with pytest.raises(BadMessage):
        unpack(array_map(**changes))


@given(st.binary(max_size=200))
@settings(max_examples=500, deadline=None)
def test_random_bytes_give_a_value_or_bad_message(data):
    try:
        unpack(data)
    except BadMessage as refusal:
        told = str(refusal)
    else:
        told = "a value"
    assert told


@given(st.integers(0, 60), st.integers(0, 255))
@settings(max_examples=300, deadline=None)
def test_a_flipped_byte_never_yields_an_object_array(place, value):
    data = bytearray(pack({"x": np.arange(4, dtype=np.float32)}))
    data[place % len(data)] = value
    try:
        found = unpack(bytes(data))
    except BadMessage:
        return
    arrays = [v for v in found.values() if isinstance(v, np.ndarray)] if isinstance(found, dict) else []
    assert all(v.dtype.kind in "biuf" for v in arrays)


def test_large_and_deep_messages_are_refused():
    with pytest.raises(BadMessage, match="over the limit of 10"):
        unpack(b"x" * 11, max_bytes=10)
    with pytest.raises(BadMessage):
        unpack(b"\x91" * 100_000)
    with pytest.raises(BadMessage):
        unpack(pack(1) + pack(2))
