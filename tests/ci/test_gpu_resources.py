"""What compilers say of GPU kernels is read right: registers, scratch memory and spills."""

from __future__ import annotations

from ci.gpu_resources import Resources, amd, crowded, nvidia

NOTES = """
    amdhsa.kernels:
  - .agpr_count:     0
    .args:
      - .offset:         0
        .size:           8
    .group_segment_fixed_size: 4352
    .name:           linear_bf16__mmafast
    .private_segment_fixed_size: 0
    .vgpr_count:     130
    .vgpr_spill_count: 0
    .wavefront_size: 64
  - .agpr_count:     0
    .group_segment_fixed_size: 0
    .name:           rope__simt
    .private_segment_fixed_size: 272
    .vgpr_count:     66
    .vgpr_spill_count: 3
amdhsa.target:   amdgcn-amd-amdhsa--gfx950
"""
LOG = """
ptxas info    : Compiling entry function 'add__simt' for 'sm_90'
ptxas info    : Function properties for add__simt
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers
ptxas info    : Compiling entry function 'pool__simt' for 'sm_90'
    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 3088 bytes smem
"""


def test_amd_notes() -> None:
    assert amd(NOTES, "gfx950") == [
        Resources("linear_bf16__mmafast", 130, 4352, 0, 0, 3),
        Resources("rope__simt", 66, 0, 272, 3, 7),
    ]
    assert amd(NOTES, "gfx1100")[0].waves == 10


def test_ptxas_log() -> None:
    assert nvidia(LOG) == [Resources("add__simt", 32, 0, 0, 0, 64), Resources("pool__simt", 255, 3088, 16, 3, 8)]


def test_decoding_leaves_registers_for_four_waves_of_gfx9() -> None:
    few = Resources("paged_attention_bf16_d256__mmafast", 128, 0, 0, 0, 4)
    assert not crowded(few, "gfx942")
    assert "129 registers" in crowded(Resources(few.kernel, 129, 0, 0, 0, 3), "gfx942")
    assert not crowded(Resources(few.kernel, 250, 0, 0, 0, 6), "gfx1100")
    assert not crowded(Resources("paged_attention_bf16_d256__mmafastwide", 200, 0, 0, 0, 2), "gfx942")


def test_spills_and_scratch_are_complained_of_but_for_packing() -> None:
    assert "spills 3" in amd(NOTES, "gfx950")[1].complaint
    assert not amd(NOTES, "gfx950")[0].complaint
    assert "272 bytes" in Resources("rope__simt", 66, 0, 272, 0, 7).complaint
    assert not Resources("pack_q4_0__simt", 66, 0, 272, 3, 7).complaint
