import pytest
from small_checkout import copy_with_my_op, copy_with_small_families


@pytest.fixture(scope="session")
def shared_root(tmp_path_factory):
    """One cache for all builds of the copies, apart from the user's own."""
    return tmp_path_factory.mktemp("extensions")


@pytest.fixture
def checkout(tmp_path, shared_root, monkeypatch):
    """A copy of the project with one operator."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(shared_root))
    copy_with_my_op(tmp_path / "checkout")
    return tmp_path / "checkout"


@pytest.fixture
def small_checkout(tmp_path, shared_root, monkeypatch):
    """A copy of the project whose families compile in a second."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(shared_root))
    copy_with_small_families(tmp_path / "checkout")
    return tmp_path / "checkout"
