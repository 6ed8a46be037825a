"""Reads and writes back what Kafka's own protocol types have written.

  golden.py DIRECTORY

DIRECTORY is wire/testdata/golden. Prints the number of messages; the first that
this client reads or writes otherwise is an error and exit status 1.
"""

import base64
import json
import pathlib
import sys
import uuid

from gtc_messages import GTC, KAFKA, Reader, encode_struct

MESSAGES = GTC | {"FindCoordinator": KAFKA["FindCoordinator 7"]}


def plain(value):
    """A value as the files have it, without tagged fields: none of them is known here."""
    if isinstance(value, uuid.UUID):
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if k != "_tags"}
    return value


def main(directory):
    count = 0
    for name, (_, version, request, response) in MESSAGES.items():
        for kind, fields in (("Request", request), ("Response", response)):
            for case in json.loads((directory / f"{name}{kind}.json").read_text()):
                what, raw = f"{name}{kind} {case['case']}", bytes.fromhex(case["hex"])
                reader = Reader(raw)
                values, _ = reader.struct(fields)
                if reader.at != len(raw) or case["version"] != version or plain(values) != plain(case["value"]):
                    sys.exit(f"golden: {what}: read {values}, want {case['value']} in version {case['version']}")
                if case["case"] != "tags" and encode_struct(fields, values) != raw:
                    sys.exit(f"golden: {what}: wrote {encode_struct(fields, values).hex()}, want {case['hex']}")
                count += 1
    print(count)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
