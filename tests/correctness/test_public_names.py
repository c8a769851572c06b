"""``tilewright.NAME`` for every public name."""

import importlib

import pytest

import tilewright


@pytest.mark.parametrize("name", tilewright.__all__)
def test_a_public_name_exists_and_is_listed(name):
    assert getattr(tilewright, name) is not None
    assert name in dir(tilewright)


@pytest.mark.parametrize("package", ["graph", "select", "runtime.sim"])
def test_names_that_a_package_loads_when_they_are_used_are_listed(package):
    found = importlib.import_module(f"tilewright.{package}")
    assert set(dir(found)) >= {*found.__all__}
    assert all(getattr(found, name) is not None for name in found.__all__)


def test_the_schedule_of_a_declaration_is_made_under_tvms_name():
    assert tilewright.te.create_schedule is tilewright.create_schedule


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'tensorflow'"):
        tilewright.tensorflow
