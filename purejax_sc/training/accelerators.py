"""Accelerators by name, with what their vendors state: rates of matrix products, and memory.

Rates are dense, without sparsity, and with sums in float32. JAX multiplies float32 in TF32 on NVIDIA's GPUs from
Ampere on and in one pass of bfloat16 on TPUs, unless it is told another `jax_default_matmul_precision`; so these are
the rates of float32 here. Volta has neither TF32 nor bfloat16.
"""

from typing import NamedTuple

from purejax_sc.config import ConfigError
from purejax_sc.config.errors import advice, quote


class Accelerator(NamedTuple):
    """One device, as JAX counts them.

    memory: GiB.   bandwidth: of that memory, GB/s.   float32, bfloat16: matrix products of such numbers, TFLOP/s.
    share: of the memory, that JAX takes for itself unless `XLA_PYTHON_CLIENT_MEM_FRACTION` says otherwise.
    """

    name: str
    memory: float
    bandwidth: float
    float32: float
    bfloat16: float
    share: float


GPU_SHARE, TPU_SHARE = 0.75, 0.95

ACCELERATORS = (
    # NVIDIA V100 data sheet (SXM2, 32 GB): single precision 15.7
    Accelerator("v100", 32, 900, 15.7, 15.7, GPU_SHARE),
    # NVIDIA A100 data sheet (SXM, 40 and 80 GB)
    Accelerator("a100-40", 40, 1_555, 156, 312, GPU_SHARE),
    Accelerator("a100-80", 80, 2_039, 156, 312, GPU_SHARE),
    # NVIDIA H100 and H200 data sheets (SXM): TF32 989 and BF16 1,979 with sparsity, which is twice the dense rate
    Accelerator("h100", 80, 3_350, 494.7, 989.4, GPU_SHARE),
    Accelerator("h200", 141, 4_800, 494.7, 989.4, GPU_SHARE),
    # NVIDIA Ampere GA102 and Ada GPU architecture whitepapers, appendices: tensor cores with sums in float32
    Accelerator("rtx3090", 24, 936, 35.6, 71.2, GPU_SHARE),
    Accelerator("rtx4090", 24, 1_008, 82.6, 165.2, GPU_SHARE),
    # Google's pages of the system architecture, docs.cloud.google.com/tpu/docs/v3 and so on, per chip. A chip of v3 is
    # two devices, of which this is one; those of v4 and v5p are one device.
    Accelerator("tpu-v3", 16, 450, 61.5, 61.5, TPU_SHARE),
    Accelerator("tpu-v4", 32, 1_200, 275, 275, TPU_SHARE),
    Accelerator("tpu-v5e", 16, 819, 197, 197, TPU_SHARE),
    Accelerator("tpu-v5p", 95, 2_765, 459, 459, TPU_SHARE),
    Accelerator("tpu-v6e", 32, 1_638, 918, 918, TPU_SHARE),
)


def find(name: str | None) -> tuple[Accelerator, ...]:
    """The accelerator of that name, or all for None. Raises ConfigError."""
    found = tuple(x for x in ACCELERATORS if name is None or x.name == name.lower())
    if not found:
        raise ConfigError(f"--device {quote(name)}: {advice(name or '', [x.name for x in ACCELERATORS])}")
    return found
