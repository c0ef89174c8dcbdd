"""Which hardware computes."""

from __future__ import annotations

import platform
import resource
import sys
import warnings

import torch

from transduce.errors import SettingsError


def choose_device(wanted: str) -> str:
    """`auto` becomes the best device there is; a device that is not there is refused."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if wanted == "auto":
        return next(name for name in ("cuda", "mps", "cpu") if available[name])
    if not available.get(wanted):
        have = ", ".join(name for name, yes in available.items() if yes)
        raise SettingsError(f"device {wanted} is not available on this machine; there is: auto, {have}")
    return wanted


def set_backend_flags() -> None:
    """Turn off what PyTorch's libraries do slowly for models like ours. These flags hold for the whole process."""
    if platform.machine() == "aarch64":
        # oneDNN spends about 0.6 ms on every small product there; without it decoding is 1.6 times as fast.
        torch.backends.mkldnn.set_flags(False)
    # cuDNN's attention plans anew for every shape of batch, about a second each; the other kernels do not.
    torch.backends.cuda.enable_cudnn_sdp(False)
    # cuDNN likes the weights of an RNN side by side; ours lie in the order of their shapes (core/flat.py), and it
    # copies them together at every call, which is little beside the rest.
    warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")


def prepare_device(wanted: str) -> str:
    """The device, with the flags set that it wants: what every command that computes begins with."""
    set_backend_flags()
    return choose_device(wanted)


def peak_memory(device: str) -> int:
    """Bytes at the peak so far: of the GPU, or of this process."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
