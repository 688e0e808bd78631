"""What layers know about their cells, which the compiled library alone says."""

import pickle
from types import SimpleNamespace

import pytest
import torch
from sequence_testing import cell_of

import lltm_jit
from lltm_jit import native
from lltm_jit.ops.rnn import layers
from lltm_jit.ops.rnn.recurrent_layer.types import Cell


def test_each_cell_of_the_library_has_a_layer():
    """Its class in lower case is the name in kernels/rnn/cells/cells.h; norms have their own."""
    cells = {name: Cell(name, *facts) for name, *facts in native.rnn.own_cells()}
    with_norms = [lltm_jit.LayerNormGRU(2, 3)]
    with_norms += [lltm_jit.LayerNormLSTM(2, 3, carried=carried) for carried in (False, True)]
    known = {name: cell_of(name) for name in layers.LAYERS}
    assert known | {layer.cell.name: layer.cell for layer in with_norms} == cells
    assert cells["gru"] == Cell("gru", gates=3, states=1, parameters=0, adds_gates=False)


def test_a_layer_whose_cell_the_library_lacks_is_told():
    cells = [row for row in native.rnn.own_cells() if row[0] != "gru"]
    with pytest.raises(RuntimeError, match=r"cells\.h .* none for gru; there are lltm, lstm"):
        layers._learn_cells(SimpleNamespace(own_cells=lambda: cells))


@pytest.fixture
def unknown():
    """The LSTM as before anything asked what its cell is."""
    lltm_jit.LSTM.cell = layers._CellOfLibrary()
    yield
    layers._learn_cells(native.rnn)


@pytest.mark.usefixtures("unknown")
def test_a_layer_is_made_before_its_library_is_used():
    assert lltm_jit.LSTM(2, 3, device="meta").weight_hh_l0.shape == (12, 3)


def test_a_layer_out_of_a_pickle_is_traced_before_its_library_is_used():
    layer, x = lltm_jit.LSTM(2, 3), torch.randn(4, 2, 2)
    pickled, expected = pickle.dumps(layer), layer(x)[0]
    lltm_jit.LSTM.cell = layers._CellOfLibrary()
    traced = torch.compile(pickle.loads(pickled), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(traced(x)[0], expected)
