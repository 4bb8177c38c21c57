"""What `octavo doctor` says of GPUs: every device with what it can, and of each kind why it is or is not used."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.platforms.gpu.chips import CHIPS, TARGETS

from octavo.engine.server.commands.doctor import lines
from octavo.platforms.doctor import report as doctor
from octavo.platforms.gpu.choice import Found, Torch
from octavo.platforms.gpu.report import described


def machine(*names: str, torch: Torch | None = None) -> Found:
    chips = [CHIPS[name] for name in names]
    kind = chips[0].kind
    devices = tuple(chip.facts(index) for index, chip in enumerate(chips))
    return Found(kind, has_driver=True, binding="1.0", devices=devices, targets=TARGETS[kind], torch=torch)


def test_every_device_is_a_row_with_what_it_can() -> None:
    found = described([machine("MI300X", "RX 6800"), machine("B200")])
    first, second, third = found["devices"]
    assert first == {
        "device": "rocm:0", "name": "AMD Instinct MI300X", "arch": "gfx942", "memory_bytes": 192 << 30, "units": 304,
        "is_integrated": False, "driver": "driver 1.0", "library": "binding 1.0", "float8": "FNUZ", "mx": False,
        "code": "gfx9-4-generic",
    }  # fmt: skip
    assert second["code"].startswith("rocm:1 AMD Radeon RX 6800 (gfx1030, 16.0 GiB) has no code object")
    assert (third["device"], third["float8"], third["mx"], third["code"]) == ("cuda:0", "OCP", True, "sm_100")
    assert json.loads(json.dumps(found)) == found


def test_each_kind_says_what_is_used_or_why_nothing_is() -> None:
    torch = Torch("2.9.1+cu128", "cuda")
    found = described(
        [machine("GTX 1080", torch=torch), replace(machine("Strix Halo", "RX 9070"), torch=torch), Found("rocm")]
    )
    assert found["cuda"]["used"] == "" and "is older than" in found["cuda"]["reason"]
    assert found["cuda"]["torch"] == "2.9.1+cu128 for cuda" and "--device torch" in found["cuda"]["reason"]
    assert found["rocm"] == {"used": "", "reason": "no AMD GPU was found on this machine"}
    (rocm,) = [described([replace(machine("Strix Halo", "RX 9070"), torch=torch)])["rocm"]]
    assert (rocm["used"], rocm["reason"], len(rocm["notes"])) == ("rocm:1", "", 2)


def test_the_report_has_both_kinds_and_reads_as_text() -> None:
    found = doctor()["gpus"]
    assert {"devices", "cuda", "rocm"} == found.keys()
    text = "\n".join(lines(described([machine("MI300X"), machine("GTX 1080")])))
    assert "192 GiB" in text and "FNUZ" in text and "rocm:0" in text and "is older than" in text
