"""The speed of a TCP connection between two hosts, measured before anything else."""
import subprocess
import sys

SINK = """
import socket, sys, time
listener = socket.create_server(("", int(sys.argv[1])))
print("ready", flush=True)
connection, _ = listener.accept()
memory, received = bytearray(1 << 20), connection.recv_into(bytearray(1))
begin = time.monotonic()
while got := connection.recv_into(memory):
    received += got
print(8e-6 * received / (time.monotonic() - begin))
"""
SOURCE = """
import socket, sys, time
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
memory, end = bytes(1 << 16), time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    connection.sendall(memory)
"""
PORT = 5001


def throughput(hosts, pairs, seconds=2.0):
    """Mbit/s of payload from host a to host b for every (a, b) of `pairs`, all at once."""
    sinks = [hosts.start(to, [sys.executable, "-c", SINK, str(PORT + a)], stdout=subprocess.PIPE, text=True)
             for a, to in pairs]
    for sink in sinks:
        sink.stdout.readline()
    sources = [hosts.start(a, [sys.executable, "-c", SOURCE, hosts.address(to), str(PORT + a), str(seconds)])
               for a, to in pairs]
    rates = [float(sink.stdout.readline()) for sink in sinks]
    for process in sources + sinks:
        process.wait()
    return rates
