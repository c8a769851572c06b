"""``tilewright.NAME`` for every public name."""

import pytest

import tilewright


@pytest.mark.parametrize("name", tilewright.__all__)
def test_a_public_name_exists_and_is_listed(name):
    assert getattr(tilewright, name) is not None
    assert name in dir(tilewright)


def test_the_schedule_of_a_declaration_is_made_under_tvms_name():
    assert tilewright.te.create_schedule is tilewright.create_schedule


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'tensorflow'"):
        tilewright.tensorflow
