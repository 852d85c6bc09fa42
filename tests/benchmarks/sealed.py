"""Records of benchio with other contents, sealed as benchio seals them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def sealed(record: Mapping[str, Any]) -> str:
    """The text of a record with its count and digest (schema/record.schema.json, `integrity`)."""
    contents = {name: value for name, value in record.items() if name != "integrity"}
    body = json.dumps(contents, indent=2, ensure_ascii=False).removesuffix("\n}")
    seal = {
        "repetitions": sum(len(operation["repetitions"]) for operation in record["operations"])
        + len(record.get("total", ())),
        "sha256": hashlib.sha256(body.encode()).hexdigest(),
    }
    return f'{body},\n  "integrity": {json.dumps(seal)}\n}}\n'
