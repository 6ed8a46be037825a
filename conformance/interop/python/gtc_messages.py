"""Sockets, messages and record batches for gtc_sockets.py.

The messages of the global transaction coordinator as KIP.md has them, and those
of Apache Kafka that a transactional producer and a consumer need. Standard
library only.
"""

import socket
import struct
import time
import uuid

PATIENCE = 110.0  # seconds, for one step
BACKOFF = 0.02
NO_TIMEOUT = 2147483647

# --- messages ----------------------------------------------------------------
# Fields in wire order. A list is an array of structs, "?" ends a nullable type.
# All versions used are flexible: compact lengths, tagged fields after every struct.

# name: (key, version, request, response)
GTC = {
    "InitGlobalTxn": (
        1000, 0,
        [("GlobalTransactionalId", "string"), ("TimeoutMs", "int32"), ("ClusterIds", "[]string"), ("InstanceId", "uuid")],
        [("ThrottleTimeMs", "int32"), ("ErrorCode", "int16"), ("ErrorMessage", "string?"), ("GlobalEpoch", "int32"), ("Sequence", "int64"),
         ("ClusterErrors", [("ClusterId", "string"), ("ErrorCode", "int16"), ("ErrorMessage", "string?")])]),
    "EndGlobalTxn": (
        1001, 0,
        [("GlobalTransactionalId", "string"), ("GlobalEpoch", "int32"), ("Sequence", "int64"), ("Committed", "bool"), ("TimeoutMs", "int32"),
         ("Participants", [("ClusterId", "string"), ("ProducerId", "int64"), ("ProducerEpoch", "int16")])],
        [("ThrottleTimeMs", "int32"), ("ErrorCode", "int16"), ("ErrorMessage", "string?"), ("Outcome", "int8"),
         ("Participants", [("ClusterId", "string"), ("State", "int8"), ("ProducerId", "int64"), ("ProducerEpoch", "int16"), ("Message", "string?")])]),
    "DescribeGlobalTransactions": (
        1002, 0,
        [("GlobalTransactionalIds", "[]string")],
        [("ThrottleTimeMs", "int32"),
         ("GlobalTransactions", [
             ("ErrorCode", "int16"), ("ErrorMessage", "string?"), ("GlobalTransactionalId", "string"), ("State", "string"),
             ("GlobalEpoch", "int32"), ("Sequence", "int64"), ("TimeoutMs", "int32"), ("SessionEnded", "bool"), ("ClusterIds", "[]string"),
             ("DecisionTimestampMs", "int64"), ("UpdateTimestampMs", "int64"), ("Reason", "string?"),
             ("Participants", [("ClusterId", "string"), ("ProducerId", "int64"), ("ProducerEpoch", "int16"), ("State", "int8"),
                               ("OpenSinceMs", "int64"), ("Message", "string?")])])]),
    "ListGlobalTransactions": (
        1003, 0,
        [("StateFilters", "[]string"), ("DurationFilterMs", "int64"), ("PatternFilter", "string?"), ("HeuristicOnly", "bool")],
        [("ThrottleTimeMs", "int32"), ("ErrorCode", "int16"), ("ErrorMessage", "string?"), ("UnknownStateFilters", "[]string"),
         ("GlobalTransactions", [("GlobalTransactionalId", "string"), ("State", "string"), ("GlobalEpoch", "int32"), ("Sequence", "int64"),
                                 ("AgeMs", "int64"), ("Heuristic", "bool"), ("PendingClusterIds", "[]string")])]),
    "ResolveGlobalTransaction": (
        1004, 0,
        [("GlobalTransactionalId", "string"), ("Action", "int8"), ("ClusterId", "string?")],
        [("ThrottleTimeMs", "int32"), ("ErrorCode", "int16"), ("ErrorMessage", "string?"), ("State", "string")]),
}

FIND_COORDINATOR = (
    [("KeyType", "int8"), ("CoordinatorKeys", "[]string")],
    [("ThrottleTimeMs", "int32"),
     ("Coordinators", [("Key", "string"), ("NodeId", "int32"), ("Host", "string"), ("Port", "int32"), ("ErrorCode", "int16"), ("ErrorMessage", "string?")])])

KAFKA = {
    "ApiVersions": (
        18, 3,
        [("ClientSoftwareName", "string"), ("ClientSoftwareVersion", "string")],
        [("ErrorCode", "int16"), ("ApiKeys", [("ApiKey", "int16"), ("MinVersion", "int16"), ("MaxVersion", "int16")]), ("ThrottleTimeMs", "int32")]),
    "Metadata": (
        3, 9,
        [("Topics", [("Name", "string")]), ("AllowAutoTopicCreation", "bool"), ("IncludeClusterAuthorizedOperations", "bool"),
         ("IncludeTopicAuthorizedOperations", "bool")],
        [("ThrottleTimeMs", "int32"), ("Brokers", [("NodeId", "int32"), ("Host", "string"), ("Port", "int32"), ("Rack", "string?")]),
         ("ClusterId", "string?"), ("ControllerId", "int32"),
         ("Topics", [
             ("ErrorCode", "int16"), ("Name", "string"), ("IsInternal", "bool"),
             ("Partitions", [("ErrorCode", "int16"), ("PartitionIndex", "int32"), ("LeaderId", "int32"), ("LeaderEpoch", "int32"),
                             ("ReplicaNodes", "[]int32"), ("IsrNodes", "[]int32"), ("OfflineReplicas", "[]int32")]),
             ("TopicAuthorizedOperations", "int32")]),
         ("ClusterAuthorizedOperations", "int32")]),
    "FindCoordinator": (10, 4, *FIND_COORDINATOR),
    "FindCoordinator 6": (10, 6, *FIND_COORDINATOR),
    "FindCoordinator 7": (10, 7, *FIND_COORDINATOR),
    "InitProducerId": (
        22, 4,
        [("TransactionalId", "string?"), ("TransactionTimeoutMs", "int32"), ("ProducerId", "int64"), ("ProducerEpoch", "int16")],
        [("ThrottleTimeMs", "int32"), ("ErrorCode", "int16"), ("ProducerId", "int64"), ("ProducerEpoch", "int16")]),
    "AddPartitionsToTxn": (
        24, 3,
        [("TransactionalId", "string"), ("ProducerId", "int64"), ("ProducerEpoch", "int16"), ("Topics", [("Name", "string"), ("Partitions", "[]int32")])],
        [("ThrottleTimeMs", "int32"), ("Results", [("Name", "string"), ("Partitions", [("PartitionIndex", "int32"), ("ErrorCode", "int16")])])]),
    "Produce": (
        0, 9,
        [("TransactionalId", "string?"), ("Acks", "int16"), ("TimeoutMs", "int32"),
         ("TopicData", [("Name", "string"), ("PartitionData", [("Index", "int32"), ("Records", "bytes?")])])],
        [("Responses", [("Name", "string"), ("PartitionResponses", [
            ("Index", "int32"), ("ErrorCode", "int16"), ("BaseOffset", "int64"), ("LogAppendTimeMs", "int64"), ("LogStartOffset", "int64"),
            ("RecordErrors", [("BatchIndex", "int32"), ("Message", "string?")]), ("ErrorMessage", "string?")])]),
         ("ThrottleTimeMs", "int32")]),
    "EndTxn": (
        26, 4,
        [("TransactionalId", "string"), ("ProducerId", "int64"), ("ProducerEpoch", "int16"), ("Committed", "bool")],
        [("ThrottleTimeMs", "int32"), ("ErrorCode", "int16")]),
    "EndTxn 5": (
        26, 5,
        [("TransactionalId", "string"), ("ProducerId", "int64"), ("ProducerEpoch", "int16"), ("Committed", "bool")],
        [("ThrottleTimeMs", "int32"), ("ErrorCode", "int16"), ("ProducerId", "int64"), ("ProducerEpoch", "int16")]),
    "Fetch": (
        1, 12,
        [("ReplicaId", "int32"), ("MaxWaitMs", "int32"), ("MinBytes", "int32"), ("MaxBytes", "int32"), ("IsolationLevel", "int8"),
         ("SessionId", "int32"), ("SessionEpoch", "int32"),
         ("Topics", [("Topic", "string"), ("Partitions", [
             ("Partition", "int32"), ("CurrentLeaderEpoch", "int32"), ("FetchOffset", "int64"), ("LastFetchedEpoch", "int32"),
             ("LogStartOffset", "int64"), ("PartitionMaxBytes", "int32")])]),
         ("ForgottenTopicsData", [("Topic", "string"), ("Partitions", "[]int32")]), ("RackId", "string")],
        [("ThrottleTimeMs", "int32"), ("ErrorCode", "int16"), ("SessionId", "int32"),
         ("Responses", [("Topic", "string"), ("Partitions", [
             ("PartitionIndex", "int32"), ("ErrorCode", "int16"), ("HighWatermark", "int64"), ("LastStableOffset", "int64"),
             ("LogStartOffset", "int64"), ("AbortedTransactions", [("ProducerId", "int64"), ("FirstOffset", "int64")]),
             ("PreferredReadReplica", "int32"), ("Records", "bytes?")])])]),
}

APIS = GTC | KAFKA

COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
CONCURRENT_TRANSACTIONS = 51
PARTICIPANT_NOT_AVAILABLE = 1000

NUMBERS = {"int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q", "bool": ">?"}


def uvarint(n):
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def varint(n):
    return uvarint((n << 1) ^ (n >> 63))


def encode(kind, value):
    if isinstance(kind, list):
        return uvarint(len(value) + 1) + b"".join(encode_struct(kind, v) for v in value)
    if kind.startswith("[]"):
        return uvarint(len(value) + 1) + b"".join(encode(kind[2:], v) for v in value)
    if kind in NUMBERS:
        return struct.pack(NUMBERS[kind], value)
    if kind == "uuid":
        return value.bytes
    if value is None:
        if not kind.endswith("?"):
            raise ValueError(f"null for {kind}")
        return b"\0"
    raw = value.encode() if kind.startswith("string") else value
    return uvarint(len(raw) + 1) + raw


def encode_struct(fields, values):
    if values.keys() != dict(fields).keys():
        raise ValueError(f"{sorted(values)} for {[name for name, _ in fields]}")
    return b"".join(encode(kind, values[name]) for name, kind in fields) + b"\0"


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        if n < 0 or self.at + n > len(self.data):
            raise ValueError(f"{n} bytes at {self.at} of {len(self.data)}")
        self.at += n
        return self.data[self.at - n:self.at]

    def number(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def uvarint(self):
        n = shift = 0
        while True:
            b = self.take(1)[0]
            n |= (b & 0x7F) << shift
            shift += 7
            if b < 0x80:
                return n

    def varint(self):
        n = self.uvarint()
        return (n >> 1) ^ -(n & 1)

    def value(self, kind):
        if isinstance(kind, list):
            n = self.uvarint() - 1
            return None if n < 0 else [self.struct(kind)[0] for _ in range(n)]
        if kind in NUMBERS:
            return self.number(NUMBERS[kind])
        if kind == "uuid":
            return uuid.UUID(bytes=self.take(16))
        n = self.uvarint() - 1
        if kind.startswith("[]"):
            return None if n < 0 else [self.value(kind[2:]) for _ in range(n)]
        if n < 0:
            return None
        raw = self.take(n)
        return raw.decode() if kind.startswith("string") else raw

    def tags(self):
        return {self.uvarint(): self.take(self.uvarint()) for _ in range(self.uvarint())}

    def struct(self, fields):
        values = {name: self.value(kind) for name, kind in fields}
        return values, self.tags()


class Failed(Exception):
    """An answer after which this client does not go on."""


class Node:
    """A connection to one broker, opened when it is needed."""

    def __init__(self, address):
        host, _, port = address.rpartition(":")
        self.address = host, int(port)
        self.socket = None
        self.correlation = 0

    def ask(self, api, **values):
        return self.ask_with_tags(api, **values)[0]

    def ask_with_tags(self, api, **values):
        key, version, request, response = APIS[api]
        self.correlation += 1
        # Request header 2: its client id is a string that is not compact.
        client = b"gtc_sockets"
        header = struct.pack(">hhih", key, version, self.correlation, len(client)) + client + b"\0"
        frame = header + encode_struct(request, values)
        try:
            if self.socket is None:
                self.socket = socket.create_connection(self.address, timeout=PATIENCE)
            self.socket.sendall(struct.pack(">i", len(frame)) + frame)
            reader = Reader(self.read(struct.unpack(">i", self.read(4))[0]))
        except OSError:
            self.close()
            raise
        if reader.number(">i") != self.correlation:
            raise Failed(f"{api}: answer to another request")
        if key != APIS["ApiVersions"][0]:  # Kafka answers that one with response header 0
            reader.tags()
        answer = reader.struct(response)
        if reader.at != len(reader.data):
            raise Failed(f"{api}: {len(reader.data) - reader.at} bytes after the answer")
        return answer

    def read(self, n):
        data = b""
        while len(data) < n:
            more = self.socket.recv(n - len(data))
            if not more:
                raise ConnectionError(f"{self.address} closed the connection")
            data += more
        return data

    def close(self):
        if self.socket is not None:
            self.socket.close()
            self.socket = None


def until(what, attempt):
    """Repeats attempt, which returns None as long as it has to be repeated."""
    deadline, last = time.monotonic() + PATIENCE, "refused for now"
    while time.monotonic() < deadline:
        try:
            if (result := attempt()) is not None:
                return result
        except OSError as e:
            last = e
        time.sleep(BACKOFF)
    raise Failed(f"{what}: not in {PATIENCE} s ({last})")


# --- records -----------------------------------------------------------------


def crc32c_table():
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


CRC32C = crc32c_table()
TRANSACTIONAL, CONTROL, COMPRESSION = 0x10, 0x20, 0x07


def crc32c(data):
    crc = 0xFFFFFFFF
    for b in data:
        crc = crc >> 8 ^ CRC32C[(crc ^ b) & 0xFF]
    return crc ^ 0xFFFFFFFF


def record_batch(producer_id, epoch, sequence, values):
    now = int(time.time() * 1000)
    records = b""
    for i, value in enumerate(values):
        raw = value.encode()
        # attributes, time delta, offset delta, no key, value, no headers
        body = b"\0" + varint(0) + varint(i) + varint(-1) + varint(len(raw)) + raw + varint(0)
        records += varint(len(body)) + body
    covered = struct.pack(">hiqqqhii", TRANSACTIONAL, len(values) - 1, now, now, producer_id, epoch, sequence, len(values)) + records
    tail = struct.pack(">ibI", -1, 2, crc32c(covered)) + covered  # leader epoch, magic, CRC
    return struct.pack(">qi", 0, len(tail)) + tail


def batches(data):
    """The whole batches of a fetched record set; the last may be cut short."""
    while len(data) >= 61:
        base, length = struct.unpack(">qi", data[:12])
        if len(data) < 12 + length:
            return
        crc = struct.unpack(">I", data[17:21])[0]
        if crc != crc32c(data[21:12 + length]):
            raise Failed(f"batch at {base}: CRC")
        attributes, last, _, _, producer_id, _, _, count = struct.unpack(">hiqqqhii", data[21:61])
        if attributes & COMPRESSION:
            raise Failed(f"batch at {base} is compressed")
        yield base, last, attributes, producer_id, records_of(Reader(data[61:12 + length]), count)
        data = data[12 + length:]


def records_of(reader, count):
    found = []
    for _ in range(count):
        one = Reader(reader.take(reader.varint()))
        one.take(1)
        one.varint()
        delta = one.varint()
        key, value = (one.take(n) if (n := one.varint()) >= 0 else None for _ in range(2))
        found.append((delta, key, value))
    return found
