import pytest
from small_checkout import copy_to


@pytest.fixture(scope="session")
def shared_root(tmp_path_factory):
    """One cache for all builds of the copies, apart from the user's own."""
    return tmp_path_factory.mktemp("extensions")


@pytest.fixture
def checkout(tmp_path, shared_root, monkeypatch):
    """A copy of the project with one operator."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(shared_root))
    directory = tmp_path / "checkout"
    directory.mkdir()
    copy_to(directory)
    return directory
