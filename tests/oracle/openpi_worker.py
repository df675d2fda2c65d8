"""Runs in openpi-client's own environment: observations in on stdin, its answers out on stdout, nothing of ours."""

import struct
import sys

import numpy
from openpi_client import action_chunk_broker, msgpack_numpy, websocket_client_policy

host, port, horizon, key = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] or None
assert numpy.__version__.startswith("1."), numpy.__version__
policy = websocket_client_policy.WebsocketClientPolicy(host, port, api_key=key)
source = action_chunk_broker.ActionChunkBroker(policy, horizon) if horizon else policy


def write(value):
    data = msgpack_numpy.Packer().pack(value)
    sys.stdout.buffer.write(struct.pack("<Q", len(data)) + data)
    sys.stdout.buffer.flush()


write(policy.get_server_metadata())
while True:
    head = sys.stdin.buffer.read(8)
    if len(head) < 8:
        break
    message = msgpack_numpy.unpackb(sys.stdin.buffer.read(struct.unpack("<Q", head)[0]))
    try:
        write(source.infer(message))
    except RuntimeError as told:
        write({"error": str(told)})
