"""A GPU's driver that remembers what it was given."""

import ctypes
import struct
from types import SimpleNamespace

CONFIG = "@IIIIIIIPPI4x"


class Driver:
    """It takes any code but b"wrong", and has a kernel of every name but "none".

    ``sizes`` are those of the parameters, if it can tell.
    """

    def __init__(self) -> None:
        self.launched: list[SimpleNamespace] = []
        self.loaded: list[bytes] = []
        self.attributes: list[tuple[int, int, int]] = []
        self.statuses: list[int] = []  # of the next launches
        self.sizes: list[int] = []

    cuInit = cuKernelGetFunction = staticmethod(lambda *_: 0)

    def cuLibraryLoadData(self, library, code, *options):
        self.loaded.append(code)
        library._obj.value = len(self.loaded)
        return 200 if code == b"wrong" else 0

    def cuLibraryGetKernel(self, kernel, library, name):
        kernel._obj.value = 1000 * library.value + len(name)
        return 500 * (name == b"none")

    def cuKernelGetParamInfo(self, kernel, place, offset, size):
        if place.value >= len(self.sizes):
            return 1
        size._obj.value = self.sizes[place.value]
        return 0

    def cuKernelSetAttribute(self, attribute, value, kernel, device):
        self.attributes.append((attribute, value, device))
        return 0

    def cuGetErrorString(self, status, words):
        words._obj.value = b"invalid argument" if status == 1 else b"device kernel image is invalid"
        return 0

    def cuLaunchKernelEx(self, config, kernel, pointers, extra):
        status = self.statuses.pop(0) if self.statuses else 0
        told = struct.unpack(CONFIG, ctypes.string_at(config.value, struct.calcsize(CONFIG)))
        places = [address for address in pointers if address]
        size = 72 * told[9]
        launch = SimpleNamespace(
            grid=told[0:3], block=told[3:6], shared=told[6], stream=told[7], kernel=kernel.value,
            attributes=ctypes.string_at(told[8], size), places=places, status=status,
            first=[ctypes.string_at(place, 16) for place in places],
        )  # fmt: skip
        if not status:
            self.launched.append(launch)
        return status
