import pytest
from small_checkout import copy_to


@pytest.fixture
def checkout(tmp_path):
    """A copy of the project with one operator."""
    directory = tmp_path / "checkout"
    directory.mkdir()
    copy_to(directory)
    return directory
