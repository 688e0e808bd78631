"""install(): imports of a StyleGAN repository's training script, unchanged."""

import importlib
import pickle
import subprocess
import sys

import pytest
import torch
from op_testing import refusal

from lltm_jit import ops
from lltm_jit.ops import drop_in

FOREIGN = "raise AssertionError('the operators of the repository are imported')\n"

NVIDIA = {
    "torch_utils/__init__.py": "",
    "torch_utils/misc.py": "import torch_utils.ops\nname = 'misc of the repository'\n",
    "torch_utils/custom_ops.py": "verbosity = 'brief'\n",
    "torch_utils/persistence.py": "from .misc import name\n",
    "torch_utils/training_stats.py": "from . import misc\n",
    "torch_utils/ops/__init__.py": FOREIGN,
    "torch_utils/ops/bias_act.py": FOREIGN,
    "training/__init__.py": "",
    "training/networks.py": """
import torch
from torch_utils import misc, persistence
from torch_utils.ops import bias_act, upfirdn2d, filtered_lrelu, conv2d_gradfix, conv2d_resample
from torch_utils.ops import fma, grid_sample_gradfix
from torch_utils.ops.conv2d_resample import conv2d_resample as resampled

class Synthesis(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 3, 3, 3))
        self.register_buffer("f", upfirdn2d.setup_filter([1, 3, 3, 1]))

    def forward(self, x):
        x = resampled(x, self.weight, f=self.f, up=2, padding=1)
        x = bias_act.bias_act(x, torch.zeros(4), act="lrelu", clamp=256)
        x = filtered_lrelu.filtered_lrelu(x, fu=self.f, fd=self.f, up=2, down=2, padding=3)
        x = fma.fma(x, torch.ones(4, 1, 1), torch.zeros(1))
        theta = torch.eye(2, 3)[None].repeat(len(x), 1, 1)
        grid = torch.nn.functional.affine_grid(theta, x.shape, align_corners=False)
        x = grid_sample_gradfix.grid_sample(x, grid)
        return conv2d_gradfix.conv2d(x, self.weight.new_ones(1, 4, 1, 1))
""",
    "train.py": """
import lltm_jit
lltm_jit.ops.install("torch_utils.ops")

import pickle
import torch
from torch_utils import custom_ops, misc, training_stats
from torch_utils.ops import conv2d_gradfix, grid_sample_gradfix
from training.networks import Synthesis

def spawned(rank, network):
    import torch_utils.ops.upfirdn2d
    print(rank, torch_utils.ops.upfirdn2d.__name__, network(torch.ones(1, 3, 4, 4)).shape[-1])

if __name__ == "__main__":
    custom_ops.verbosity = "none"
    conv2d_gradfix.enabled = grid_sample_gradfix.enabled = True
    network = pickle.loads(pickle.dumps(Synthesis()))
    images = torch.randn(2, 3, 4, 4, requires_grad=True)
    with conv2d_gradfix.no_weight_gradients():
        [slope] = torch.autograd.grad(network(images).sum(), [images], create_graph=True)
    slope.square().sum().backward()
    assert network.weight.grad.abs().sum() > 0
    print(misc.name, custom_ops.__file__ != misc.__file__, training_stats.misc is misc)
    torch.multiprocessing.spawn(spawned, (network,), nprocs=1)
    import port
    import torch_utils, torch_utils.ops
    assert torch_utils.ops is lltm_jit.ops and torch_utils.ops.bias_act is lltm_jit.ops.bias_act
""",
}

PORT = {
    "op/__init__.py": FOREIGN,
    "model.py": """
from op import FusedLeakyReLU, fused_leaky_relu, upfirdn2d, conv2d_gradfix
""",
    "port.py": """
import lltm_jit
lltm_jit.ops.install("op")

import torch
from op.upfirdn2d import upfirdn2d as in_module
from op.fused_act import FusedLeakyReLU, fused_leaky_relu
import model
from op import conv2d_gradfix

assert model.upfirdn2d is in_module and model.FusedLeakyReLU is FusedLeakyReLU
x = torch.randn(1, 3, 4, 4)
x = conv2d_gradfix.conv_transpose2d(x, torch.randn(3, 2, 3, 3), stride=2)
x = model.upfirdn2d(FusedLeakyReLU(2)(x), torch.ones(4, 4), pad=(1, 1))
print(fused_leaky_relu(x).shape[-1])
""",
}


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Write one, where this process and its children find it first; forget its modules after."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = {*sys.modules}

    def write(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    yield write
    for package in [each for each in sys.meta_path if isinstance(each, drop_in._Package)]:
        ops.uninstall(package.name)
    for name in {*sys.modules} - before:
        if name.partition(".")[0] in ("op", "torch_utils", "models"):
            del sys.modules[name]


def test_scripts_of_stylegan3_and_of_the_port_run(repository):
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=repository({**NVIDIA, **PORT}),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "misc of the repository True True",
        "0 lltm_jit.ops.upfirdn2d 8",
        "8",
    ]


@pytest.mark.parametrize("name", ["op", "torch_utils.ops"])
def test_uninstall_gives_the_repository_back(name, repository):
    package = name.replace(".", "/")
    repository({**NVIDIA, f"{package}/__init__.py": "mine = True", f"{package}/upfirdn2d.py": ""})
    path = [*sys.meta_path]
    ops.install(name)
    ops.install(name)
    ours = importlib.import_module(f"{name}.upfirdn2d")
    assert ours.__name__.startswith("lltm_jit.ops.")
    assert ours.__spec__.name == ours.__name__
    assert len(sys.meta_path) == len(path) + 2
    ops.install(name)  # also when it is imported
    ops.uninstall(name)
    ops.uninstall(name)
    assert sys.meta_path == path
    assert importlib.import_module(name).mine
    assert importlib.import_module(ours.__name__) is ours
    assert importlib.import_module(f"{name}.upfirdn2d") is not ours
    top = importlib.import_module(name.partition(".")[0])
    assert top.mine if name == "op" else top.ops.mine


INSIDE = {
    "op": "from {0} import FusedLeakyReLU, upfirdn2d; from {0}.fused_act import fused_leaky_relu",
    "torch_utils.ops": "from {0} import bias_act, upfirdn2d; import {0}.filtered_lrelu",
    "torch_utils.custom_ops": "from {0} import get_plugin",
}


@pytest.mark.parametrize("above", ["", "models.", "models.stylegan2."])
@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("name", INSIDE)
def test_names_within_packages_and_without_them(name, there, above, repository):
    """The packages above may be the program's, whose relative imports find ours, too, or absent."""
    whole = above + name
    outer, _, last = whole.rpartition(".")
    files = {"unrelated.py": ""}
    if there and outer:
        parts = outer.split(".")
        files = {"/".join([*parts[: i + 1], "__init__.py"]): "" for i in range(len(parts))}
        files |= {f"{outer.replace('.', '/')}/user.py": f"from .{last} import __name__ as found"}
        files |= {f"{whole.replace('.', '/')}/__init__.py": FOREIGN}
    repository(files)
    ops.install(whole)
    exec(INSIDE[name].format(whole))
    assert importlib.import_module(whole).__name__.startswith("lltm_jit.ops")
    if there and outer:
        assert importlib.import_module(f"{outer}.user").found.startswith("lltm_jit.ops")
    elif outer:
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(f"{outer}.more")


def test_what_is_imported_already_is_not_replaced(repository):
    folder = repository({**NVIDIA, "torch_utils/ops/__init__.py": ""})
    importlib.import_module("torch_utils.ops")
    assert refusal(RuntimeError, ops.install, "torch_utils.ops") == (
        "install(): torch_utils.ops is already imported, from "
        f"{folder}/torch_utils/ops/__init__.py; call lltm_jit.ops.install('torch_utils.ops') "
        "before anything imports it, at the top of the script or in a new process"
    )


@pytest.mark.parametrize("function", [ops.install, ops.uninstall])
def test_unknown_packages(function):
    for name in ("torch_utils", "models.myop", ""):
        assert refusal(ValueError, function, name) == (
            f"{function.__name__}(): expected name to end in one of 'op', "
            f"'torch_utils.custom_ops', 'torch_utils.ops', but got {name!r}"
        )


def test_a_module_that_is_not_ours(repository):
    repository({**NVIDIA, "torch_utils/ops/more.py": ""})
    ops.install("torch_utils.ops")
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module("torch_utils.ops.more")
    assert caught.value.name == "torch_utils.ops.more"
    assert str(caught.value) == (
        "No module named 'torch_utils.ops.more': torch_utils.ops is lltm_jit's, which "
        "consists of torch_utils.ops, torch_utils.ops.bias_act, torch_utils.ops.conv2d_gradfix, "
        "torch_utils.ops.conv2d_resample, torch_utils.ops.filtered_lrelu, torch_utils.ops.fma, "
        "torch_utils.ops.grid_sample_gradfix, torch_utils.ops.upfirdn2d; "
        "lltm_jit.ops.uninstall('torch_utils.ops') gives the other one back"
    )


def test_a_module_that_was_pickled_with_a_class_of_the_repository(repository):
    own = (
        "import torch\nclass FusedLeakyReLU(torch.nn.Module):\n    def __init__(self, channel):\n"
        "        super().__init__()\n        self.bias = torch.nn.Parameter(torch.ones(channel))\n"
        "        self.negative_slope, self.scale = 0.5, 2.0\n"
    )
    repository({"op/__init__.py": "", "op/fused_act.py": own})
    pickled = pickle.dumps(importlib.import_module("op.fused_act").FusedLeakyReLU(3))
    for name in ("op", "op.fused_act"):
        del sys.modules[name]
    ops.install("op")
    module = pickle.loads(pickled)
    assert repr(module) == "FusedLeakyReLU(channel=None, bias=True, negative_slope=0.5, scale=2)"
    assert module(torch.full((1, 3), -3.0)).tolist() == [[-2, -2, -2]]


def test_custom_ops_compiles(repository):
    folder = repository({**NVIDIA, "csrc/seven.h": "#define SEVEN 7\n"})
    (folder / "csrc" / "seven.cpp").write_text(
        '#include <Python.h>\n#include "seven.h"\n'
        'static PyModuleDef def = {PyModuleDef_HEAD_INIT, "drop_in_seven"};\n'
        "PyMODINIT_FUNC PyInit_drop_in_seven() {\n"
        "  PyObject* module = PyModule_Create(&def);\n"
        '  PyModule_AddIntConstant(module, "seven", SEVEN);\n  return module;\n}\n'
    )
    ops.install("torch_utils.custom_ops")
    custom_ops = importlib.import_module("torch_utils.custom_ops")
    plugin = custom_ops.get_plugin(
        module_name="drop_in_seven",
        sources=["seven.cpp"],
        headers=["seven.h"],
        source_dir=str(folder / "csrc"),
        build_directory=str(folder),
    )
    assert plugin.seven == 7
    custom_ops.verbosity = "loud"
    with pytest.raises(ValueError, match="to be 'none', 'brief' or 'full', but got 'loud'"):
        custom_ops.get_plugin("drop_in_seven", ["seven.cpp"])
    custom_ops.verbosity = "brief"
